package datadogexporter

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/ext"
	ddotel "github.com/DataDog/dd-trace-go/v2/ddtrace/opentelemetry"
	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// theEncoder wraps dd-trace-go. A process has only one encoder, because dd-trace-go's
// tracer and its settings are global.
var theEncoder = &encoder{turn: make(chan struct{}, 1), captured: make(chan struct{}, 1)}

// encoder converts batches to requests to the agent, with dd-trace-go. It is the
// transport of the tracer's HTTP client. It keeps the payloads of traces and statistics
// for the Export that caused them, which sends them and handles the answers. Other
// requests of the tracer are forwarded to the agent.
type encoder struct {
	// turn is a mutex with a timeout. A goroutine holds it while it starts, uses or stops
	// the tracer. It guards the fields below up to carriedSpans.
	turn   chan struct{}
	owner  *native // the exporter with the tracer's settings; nil if the tracer is stopped
	bridge *bridge
	env    string // environment of the tracer's statistics
	// Dropped traces and spans that no payload has reported to the agent yet.
	carriedTraces, carriedSpans int

	// captured receives a value when a field of capture has changed.
	captured chan struct{}
	capture
}

// delivery is an encoded batch: payloads, and counts of spans without a payload.
type delivery struct {
	id       string    // id of the batch; empty until the delivery was interrupted
	payloads []payload // not yet accepted by the agent
	filtered int       // spans dropped by Datadog's samplers
	rejected int       // spans that cannot be delivered
	reason   string    // reason of the last rejection
	// taken reports that the agent accepted a payload, or refused one for its size alone.
	// refused is the error of a payload that the agent refused for good.
	taken   bool
	refused error
}

func (d *delivery) reject(spans int, reason string) {
	if spans > 0 {
		d.rejected += spans
		d.reason = reason
	}
}

const reasonUnfit = "a Datadog agent drops spans without an id, and traces with an id of zero in the low 64 bits"

const reasonLost = "the Datadog tracer did not encode them"

// maxChunks is the number of chunks that the tracer gets at a time. The queue of the
// tracer holds 1,000 chunks and drops further chunks. It is empty before the tracer gets
// the next chunks.
const maxChunks = 500

// barrierName is the name of a span that is put into the tracer's queue after the batch. It
// is never sent to the agent.
const barrierName = "servetrace.barrier"

// encode passes the spans of a batch to the tracer, and returns the resulting payloads.
// It waits for its turn until ctx ends, and then for the tracer's worker. It uses the
// network only to start the tracer.
func (e *encoder) encode(ctx context.Context, n *native, b *pluginsdk.Batch) (*delivery, error) {
	units, unfit := plan(b)
	d := &delivery{}
	d.reject(unfit, reasonUnfit)
	if len(units) == 0 {
		return d, nil
	}
	if err := e.enter(ctx); err != nil {
		return nil, err
	}
	defer e.leave()
	if err := e.runFor(ctx, n, units); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(units, maxChunks) {
		if err := e.encodeUnits(some, d); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// encodeUnits encodes at most maxChunks units.
func (e *encoder) encodeUnits(units []unit, d *delivery) error {
	e.resetChunks()
	barrier := startBarrier()
	if barrier == nil {
		return errNoTracer
	}
	spans, expected := 0, 0 // expected is the number of spans that the tracer keeps
	for _, u := range units {
		spans += len(u.spans)
		if e.bridge.replay(u) > 0 {
			expected += len(u.spans)
		}
	}
	barrier.Finish()
	complete := e.await(len(units) + 1)
	if !complete {
		e.stop() // all remaining payloads are flushed
		defer func() { e.owner = nil }()
	}
	payloads, filteredOut, err := e.takePayloads()
	if err != nil {
		return pluginsdk.Permanent(err)
	}
	got := 0
	for _, p := range payloads {
		got += p.kept()
	}
	lost := max(0, expected-filteredOut-got)
	d.reject(lost, reasonLost)
	d.filtered += spans - got - lost
	d.payloads = append(d.payloads, payloads...)
	return nil
}

var errNoTracer = errors.New("the Datadog tracer did not start")

// startBarrier starts a span that is ended after all other spans. Chunks leave the tracer
// in the order of their end, including chunks that the sampler drops. So after the barrier,
// all other chunks have left the tracer. Statistics do not count the barrier.
func startBarrier() *tracer.Span {
	keep := ext.PriorityUserKeep
	parent := tracer.FromGenericCtx(outerContext{spanKey{trace: trace.TraceID{15: 1}}, &keep})
	s := tracer.StartSpan(barrierName, tracer.ChildOf(parent)) //nolint:staticcheck // there is no context
	if s != nil {
		s.SetTag(topLevel, 0)
	}
	return s
}

const (
	// flushPace is the time between two flushes.
	flushPace = time.Millisecond
	// encodeTimeout bounds the time without progress.
	encodeTimeout = 10 * time.Second
)

// await waits until n chunks have left the tracer. It returns false if there was no
// progress for encodeTimeout.
func (e *encoder) await(n int) bool {
	pace := time.NewTimer(flushPace)
	defer pace.Stop()
	last, since := -1, time.Now()
	for {
		select {
		case <-e.captured:
		case <-pace.C:
		}
		tracer.Flush() // completes a payload, which another goroutine sends
		got := e.leftChunks()
		switch {
		case got >= n:
			return true
		case got != last:
			last, since = got, time.Now()
		case time.Since(since) > encodeTimeout:
			return false
		}
		pace.Reset(flushPace)
	}
}

// takePayloads returns the captured payloads without the barrier. filteredOut is the number of
// spans that trace filters of the tracer have dropped.
func (e *encoder) takePayloads() (payloads []payload, filteredOut int, err error) {
	captured, filteredOut, err := e.take()
	for _, p := range captured {
		if p.chunks == nil { // statistics
			payloads = append(payloads, p)
			continue
		}
		e.carriedTraces += p.number(headerDroppedTraces)
		e.carriedSpans += p.number(headerDroppedSpans)
		p = p.withoutBarrier()
		if len(p.chunks) == 0 {
			continue
		}
		p.header.Set(headerDroppedTraces, strconv.Itoa(e.carriedTraces))
		p.header.Set(headerDroppedSpans, strconv.Itoa(e.carriedSpans))
		e.carriedTraces, e.carriedSpans = 0, 0
		payloads = append(payloads, p)
	}
	return payloads, filteredOut, err
}

// enter waits for the turn. The caller must call leave.
func (e *encoder) enter(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *encoder) leave() { <-e.turn }

// runFor makes the tracer run with the settings of n, and with the environment, service and
// version of the first resource. Statistics have only one environment. If spans of another
// environment arrive, the tracer restarts and leaves statistics to the agent.
func (e *encoder) runFor(ctx context.Context, n *native, units []unit) error {
	b := &bridge{serviceNames: n.settings.serviceNames, shared: map[origin]shared{}}
	if e.owner == n {
		b = e.bridge
		clear(b.shared)
	}
	first := b.sharedBy(units[0].spans[0].span)
	env := cmp.Or(first.env, n.settings.env)
	again := e.owner != n
	for _, u := range units {
		own := cmp.Or(b.sharedBy(u.spans[0].span).env, n.settings.env)
		if n.statistics && own != env || e.owner == n && n.statistics && own != e.env {
			n.statistics, again = false, true
			n.settings.log.Info("spans of several environments arrive: the Datadog agent computes their statistics", "environment", own)
		}
	}
	if !again {
		return nil
	}
	if err := n.settings.agent.checkReachable(ctx); err != nil {
		return err
	}
	e.handBack()
	e.serve(n)
	prepareEnvironment()
	provider := ddotel.NewTracerProvider(append(n.options(),
		tracer.WithService(first.service), tracer.WithEnv(env), tracer.WithServiceVersion(cmp.Or(first.version, n.settings.version)))...)
	b.otel, b.verdicts = provider.Tracer(""), &n.verdicts
	e.owner, e.bridge, e.env = n, b, env
	return nil
}

// options returns the tracer's options that depend only on the settings.
func (n *native) options() []tracer.StartOption {
	options := []tracer.StartOption{
		tracer.WithHTTPClient(&http.Client{Transport: theEncoder, Timeout: n.settings.agent.timeout}),
		tracer.WithAgentURL("http://" + tracersAgent),
		tracer.WithLogger(n.log), tracer.WithLogStartup(n.settings.startupLogs),
		tracer.WithStatsdClient(&health{encoder: theEncoder}),
		tracer.WithTraceEnabled(true),
		// These features would describe the plugin's process instead of the service.
		tracer.WithAppSecEnabled(false), tracer.WithLLMObsEnabled(false), tracer.WithDynamicInstrumentationEnabled(false),
		tracer.WithProfilerCodeHotspots(false), tracer.WithProfilerEndpoints(false),
	}
	if !n.statistics {
		options = append(options, tracer.WithStatsComputation(false))
	}
	return options
}

// prepareEnvironment sets variables for settings that have no option: the protocol, and
// complete chunks. It also prevents that variables of OpenTelemetry, and other products of
// Datadog, affect the plugin's process.
func prepareEnvironment() {
	for name, value := range map[string]string{
		envProtocol: "0.4", "DD_TRACE_PARTIAL_FLUSH_ENABLED": "false",
		"DD_RUNTIME_METRICS_ENABLED": "false", "DD_RUNTIME_METRICS_V2_ENABLED": "false",
		"DD_DATA_STREAMS_ENABLED": "false", "DD_CIVISIBILITY_ENABLED": "false",
	} {
		_ = os.Setenv(name, value) // fails only for an invalid name
	}
	for _, name := range []string{
		"OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
	} {
		_ = os.Unsetenv(name)
	}
}

// stop stops the tracer, which flushes first.
func (e *encoder) stop() { tracer.Stop() }

// handBack stops the tracer and passes its remaining payloads, which are statistics, to
// its owner.
func (e *encoder) handBack() {
	if e.owner == nil {
		return
	}
	e.stop()
	payloads, _, _ := e.takePayloads()
	e.owner.addLate(payloads)
	e.owner, e.bridge = nil, nil
}

// release stops the tracer if it runs for n.
func (e *encoder) release(ctx context.Context, n *native) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.leave()
	if e.owner == n {
		e.handBack()
	}
	return nil
}
