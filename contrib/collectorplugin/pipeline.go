package collectorplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Exporter returns the constructor of a plugin's exporter: an exporter of the Collector
// with the Collector's processors in front of it. The components must support traces.
//
// The host counts the spans that a processor drops as filtered, under the processor's
// type. Some processors hold spans and release them later: tail_sampling, groupbytrace and
// batch. A batch counts as delivered when such a processor has taken it. So the spans that it
// holds are lost if the plugin is killed. Released spans are sent again until the back end
// takes or refuses them, or the plugin ends. Meanwhile the processor takes batches until its
// own buffer is full, and the host keeps the other batches. The log has the number of lost
// spans.
func Exporter(f exporter.Factory, front ...processor.Factory) pluginsdk.NewExporter {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		p := &pipeline{log: s.Log}
		p.life, p.end = context.WithCancel(context.Background())
		err := p.build(s, f, front)
		if err == nil {
			err = p.start(ctx)
		}
		if err != nil {
			p.end()
			return nil, err
		}
		return p, nil
	}
}

// pipeline is a pluginsdk.Exporter: processors of the Collector, and an exporter behind them.
type pipeline struct {
	log      *slog.Logger
	stages   []string        // the types of the processors, in order
	first    consumer.Traces // the first processor, or the exporter
	exporter exporter.Traces
	parts    []component.Component // the processors in order, then the exporter

	// life is the context in which the parts were created, and in which released spans are
	// sent. Shutdown ends it.
	life context.Context //nolint:containedctx // released spans belong to no call that has a context
	end  context.CancelFunc
	lost atomic.Int64 // number of released spans that were not delivered
}

// build creates the exporter, and then the processors from the last to the first. They get
// the context life, because a component may keep the context of its creation.
func (p *pipeline) build(s pluginsdk.Setup, f exporter.Factory, front []processor.Factory) error {
	cfg, fault := configure(s, f)
	configs := make([]component.Config, len(front))
	for i, factory := range front {
		c, err := configure(s, factory)
		configs[i], fault = c, errors.Join(fault, err)
	}
	if fault != nil {
		return fault
	}
	var err error
	p.exporter, err = f.CreateTraces(p.life, exporter.Settings{
		ID: component.NewID(f.Type()), TelemetrySettings: telemetry(s, f), BuildInfo: buildInfo(),
	}, cfg)
	if err != nil {
		return fmt.Errorf("create the exporter %s: %w", f.Type(), err)
	}
	p.parts, p.first = []component.Component{p.exporter}, sink{p}
	for i, factory := range slices.Backward(front) {
		stage, err := create(p.life, s, factory, configs[i], gate{i, p.first})
		if err != nil {
			return err
		}
		p.first = stage
		p.parts = slices.Insert(p.parts, 0, component.Component(stage))
		p.stages = slices.Insert(p.stages, 0, factory.Type().String())
	}
	return nil
}

// start starts the exporter, and then the processors from the last to the first. If a part
// fails to start, it shuts down the parts that have started.
func (p *pipeline) start(ctx context.Context) error {
	for i, part := range slices.Backward(p.parts) {
		if err := part.Start(ctx, componentHost{p.log}); err != nil {
			for _, started := range p.parts[i+1:] {
				err = errors.Join(err, started.Shutdown(ctx))
			}
			return fmt.Errorf("start %s: %w", p.name(i), err)
		}
	}
	return nil
}

// name returns the name of a part for errors. part is its index in p.parts.
func (p *pipeline) name(part int) string {
	if part < len(p.stages) {
		return "the processor " + p.stages[part]
	}
	return "the exporter"
}

// Export implements pluginsdk.Exporter.
func (p *pipeline) Export(ctx context.Context, b *pluginsdk.Batch) error {
	spans := b.Len()
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(b.Bytes())
	if err != nil {
		return pluginsdk.Permanent(fmt.Errorf("decode the batch: %w", err))
	}
	if spans == 0 {
		return nil
	}
	call := &passage{left: make([]atomic.Int64, len(p.stages))}
	err = p.first.ConsumeTraces(context.WithValue(ctx, passageKey{}, call), td)
	call.over.Store(true)
	if err != nil {
		return answer(err)
	}
	for i, name := range p.stages {
		if holds(name) {
			break
		}
		left := int(call.left[i].Load())
		b.CountFiltered(name, spans-left)
		spans = left
	}
	return nil
}

// holds reports whether processors of this type hold spans and release them later.
func holds(name string) bool {
	return slices.Contains([]string{"tail_sampling", "groupbytrace", "batch"}, name)
}

// Shutdown implements pluginsdk.Exporter.
func (p *pipeline) Shutdown(ctx context.Context) error {
	defer p.end()
	defer context.AfterFunc(ctx, p.end)()
	var faults []error
	for i, part := range p.parts {
		if err := part.Shutdown(ctx); err != nil {
			faults = append(faults, fmt.Errorf("shut down %s: %w", p.name(i), err))
		}
	}
	if lost := p.lost.Load(); lost > 0 {
		faults = append(faults, fmt.Errorf("%d spans that processors released later were not delivered", lost))
	}
	return errors.Join(faults...)
}

// passage is one call of Export. It is a value in the context that goes with the spans
// through the processors.
type passage struct {
	left []atomic.Int64 // number of spans that have left each processor
	over atomic.Bool    // the call has ended
}

type passageKey struct{}

// passageOf returns the call of Export to which ctx belongs. It returns nil if there is none,
// or if the call has ended: then a processor has held the spans and releases them.
func passageOf(ctx context.Context) *passage {
	if call, _ := ctx.Value(passageKey{}).(*passage); call != nil && !call.over.Load() {
		return call
	}
	return nil
}

// gate is the consumer behind a processor. It counts the spans that leave the processor, and
// passes them on.
type gate struct {
	stage int             // index of the processor
	next  consumer.Traces // the next processor, or the sink
}

// Capabilities implements consumer.Traces.
func (g gate) Capabilities() consumer.Capabilities { return g.next.Capabilities() }

// ConsumeTraces implements consumer.Traces.
func (g gate) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	if call := passageOf(ctx); call != nil {
		call.left[g.stage].Add(int64(td.SpanCount()))
	}
	return g.next.ConsumeTraces(ctx, td)
}

// sink is the consumer behind the last processor. It passes spans to the exporter.
type sink struct{ p *pipeline }

// Capabilities implements consumer.Traces.
func (s sink) Capabilities() consumer.Capabilities { return s.p.exporter.Capabilities() }

// ConsumeTraces implements consumer.Traces. Spans of a running call of Export are sent once,
// because the host sends them again after an error. The host no longer has released spans, so
// deliver sends them again.
func (s sink) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	if passageOf(ctx) != nil {
		return s.p.exporter.ConsumeTraces(ctx, td)
	}
	return s.p.deliver(td)
}

// Bounds of the pause between two attempts to send released spans.
const minPause, maxPause = 100 * time.Millisecond, 5 * time.Second

// deliver sends released spans until the back end takes or refuses them, or life ends. Spans
// that were not taken are lost.
func (p *pipeline) deliver(td ptrace.Traces) error {
	spans := td.SpanCount()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		attempt := td
		if p.exporter.Capabilities().MutatesData {
			attempt = ptrace.NewTraces()
			td.CopyTo(attempt)
		}
		err := p.exporter.ConsumeTraces(p.life, attempt)
		if err == nil {
			return nil
		}
		if pause == minPause && !consumererror.IsPermanent(err) && p.life.Err() == nil {
			p.log.Warn("released spans are not delivered yet, and are sent again", "spans", spans, "error", err)
		}
		if consumererror.IsPermanent(err) || !p.wait(max(pause, throttled(err))) {
			p.lost.Add(int64(spans))
			p.log.Error("released spans are lost", "spans", spans, "error", err)
			return err
		}
	}
}

// wait blocks for the pause. It returns false if life ends before the end of the pause.
func (p *pipeline) wait(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.life.Done():
		return false
	}
}
