package collectorplugin

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"

	"github.com/servetrace/servetrace/pluginsdk"
)

// MainProcessors runs the plugin of [ProcessorSpec] as this process and does not return.
func MainProcessors(name string, factories ...processor.Factory) {
	pluginsdk.Main(ProcessorSpec(name, factories...))
}

// ProcessorSpec returns a processor plugin with processors of the Collector, in order. A
// host runs it before all exporters. The caller may change the
// result, for example its Env.
func ProcessorSpec(name string, factories ...processor.Factory) pluginsdk.Spec {
	spec := pluginsdk.Spec{Name: name}
	var types []string
	for _, f := range factories {
		spec.Processors = append(spec.Processors, Processor(f))
		types = append(types, f.Type().String())
	}
	spec.Description = "runs processors of the OpenTelemetry Collector: " + strings.Join(types, ", ")
	return spec
}

// Processor returns the constructor of a plugin's processor: a processor of the Collector,
// which must support traces. Its configuration is below its type in the
// plugin's configuration. A batch that it changes is replaced as a whole. If the plugin has
// an exporter of the Collector, give f to [Exporter] instead, which decodes each batch only
// once for all components.
//
// A processor that holds spans and releases them later (tail_sampling, groupbytrace, batch) is
// refused, because the host needs the result of each batch. It can be in front of an
// [Exporter].
func Processor(f processor.Factory) pluginsdk.NewProcessor {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
		name := f.Type().String()
		if holds(name) {
			return nil, fmt.Errorf("the processor %s releases spans later, so it cannot be before all exporters: build a plugin that has an exporter behind it", name)
		}
		cfg, err := configure(s, f)
		if err != nil {
			return nil, err
		}
		p := &single{name: name}
		life, end := context.WithCancel(context.Background())
		p.end = end
		p.part, err = create(life, s, f, cfg, collector{s.Log})
		if err == nil {
			err = p.part.Start(ctx, componentHost{s.Log})
		}
		if err != nil {
			end()
			return nil, fmt.Errorf("start the processor %s: %w", name, err)
		}
		return p, nil
	}
}

// create returns the processor of a factory, which passes its results to next. The processor
// may use the context life until its shutdown.
func create(life context.Context, s pluginsdk.Setup, f processor.Factory, cfg component.Config, next consumer.Traces) (processor.Traces, error) {
	part, err := f.CreateTraces(life, processor.Settings{
		ID: component.NewID(f.Type()), TelemetrySettings: telemetry(s, f), BuildInfo: buildInfo(),
	}, cfg, next)
	if err != nil {
		return nil, fmt.Errorf("create the processor %s: %w", f.Type(), err)
	}
	return part, nil
}

// single is a pluginsdk.Processor that runs one processor of the Collector.
type single struct {
	name string
	part processor.Traces
	end  context.CancelFunc
}

var _ interface {
	pluginsdk.Named
	pluginsdk.Stopper
} = (*single)(nil)

// Name implements pluginsdk.Named.
func (p *single) Name() string { return p.name }

// Process implements pluginsdk.Processor.
func (p *single) Process(ctx context.Context, b *pluginsdk.Batch) error {
	before := b.Bytes()
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(before)
	if err != nil {
		return pluginsdk.Permanent(fmt.Errorf("decode the batch: %w", err))
	}
	call := &collection{spans: ptrace.NewTraces()}
	err = p.part.ConsumeTraces(context.WithValue(ctx, collectionKey{}, call), td)
	spans := call.close()
	if err != nil {
		return answer(err)
	}
	after, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(spans)
	if err != nil {
		return pluginsdk.Permanent(fmt.Errorf("encode the batch: %w", err))
	}
	if bytes.Equal(before, after) {
		return nil
	}
	return b.Replace(after)
}

// Shutdown implements pluginsdk.Stopper.
func (p *single) Shutdown(ctx context.Context) error {
	defer p.end()
	return p.part.Shutdown(ctx)
}

// collection has the spans that have left the processor during one call of Process. It is a
// value in the context that goes with the spans.
type collection struct {
	mu     sync.Mutex
	spans  ptrace.Traces
	closed bool
}

type collectionKey struct{}

// close returns the spans. Spans that come later are refused.
func (c *collection) close() ptrace.Traces {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.spans
}

// collector is the consumer behind the processor. It adds spans to the collection of their
// call.
type collector struct{ log *slog.Logger }

// Capabilities implements consumer.Traces.
func (collector) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

// ConsumeTraces implements consumer.Traces.
func (c collector) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	if call, ok := ctx.Value(collectionKey{}).(*collection); ok {
		call.mu.Lock()
		defer call.mu.Unlock()
		if !call.closed {
			td.ResourceSpans().MoveAndAppendTo(call.spans.ResourceSpans())
			return nil
		}
	}
	c.log.Error("released spans are lost: the processor must not keep spans", "spans", td.SpanCount())
	return fmt.Errorf("%d spans were released after their call", td.SpanCount())
}
