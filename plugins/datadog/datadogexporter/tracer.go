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

// theEncoder is dd-trace-go, of which a process has one: its tracer is global,
// and so are its settings.
var theEncoder = &encoder{turn: make(chan struct{}, 1), captured: make(chan struct{}, 1)}

// encoder has dd-trace-go turn batches into requests to the agent. The tracer's
// HTTP client ends in this type: it keeps the payloads of traces and statistics
// for the Export that made them, which sends them and has their answers. All else
// that the tracer asks of its agent goes there directly.
type encoder struct {
	// turn is held, by what lies in it, by the goroutine that starts, uses or
	// stops the tracer. It guards owner, bridge, env and carried.
	turn   chan struct{}
	owner  *native // whose settings the tracer runs with; nil: it is stopped
	bridge *bridge
	env    string // of the tracer's statistics
	// carried are what the tracer dropped and no payload has told the agent yet.
	carriedTraces, carriedSpans int

	// captured has something in it when one of the fields of capture has changed.
	captured chan struct{}
	capture
}

// delivery is what a batch came to: requests, and what no request has.
type delivery struct {
	payloads []payload // not yet taken by the agent
	filtered int       // spans that Datadog's samplers leave out
	rejected int       // spans that can not be delivered
	reason   string    // of rejected
	// taken says that the agent took a payload, and refused is its answer to one
	// that it will never take.
	taken   bool
	refused error
}

// reject adds spans that can not be delivered.
func (d *delivery) reject(spans int, reason string) {
	if spans > 0 {
		d.rejected += spans
		d.reason = reason
	}
}

const reasonUnfit = "a Datadog agent drops traces whose id has zeros in its low 64 bits, and spans without an id"

const reasonLost = "the Datadog tracer did not encode them"

// maxChunks is how many chunks the tracer gets at a time. Its queue holds 1,000
// and drops what is beyond; it is empty when the next begin.
const maxChunks = 500

// barrierName is the name of the span that follows the others through the
// tracer's queue. It never reaches the agent.
const barrierName = "servetrace.barrier"

// encode gives the spans of a batch to the tracer, and returns what leaves it. It
// waits for its turn until ctx ends, and then for the tracer's own worker: it
// touches no network but to start the tracer.
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
	for piece := range slices.Chunk(units, maxChunks) {
		if err := e.piece(piece, d); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// piece encodes some units.
func (e *encoder) piece(units []unit, d *delivery) error {
	e.begin()
	barrier := startBarrier()
	if barrier == nil {
		return errNoTracer
	}
	spans, expected := 0, 0 // expected are those that the tracer keeps
	for _, u := range units {
		spans += len(u.spans)
		if e.bridge.replay(u) > 0 {
			expected += len(u.spans)
		}
	}
	barrier.Finish()
	complete := e.await(len(units) + 1)
	if !complete {
		e.stop() // after which all that will ever come has come
		defer func() { e.owner = nil }()
	}
	payloads, filteredOut, err := e.take()
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

// startBarrier starts the span that is finished when all others are. Chunks leave
// the tracer in the order in which they were finished, so when it has left all
// have, those that the sampler drops, too. It counts in no statistics.
func startBarrier() *tracer.Span {
	keep := ext.PriorityUserKeep
	parent := tracer.FromGenericCtx(outerContext{spanKey{trace: trace.TraceID{15: 1}}, &keep})
	s := tracer.StartSpan(barrierName, tracer.ChildOf(parent)) //nolint:staticcheck // it has no context
	if s != nil {
		s.SetTag(topLevel, 0)
	}
	return s
}

// Pace of await.
const (
	// flushPace is how long the tracer's worker may work between two flushes.
	flushPace = time.Millisecond
	// encodePatience is how long it may show nothing new.
	encodePatience = 10 * time.Second
)

// await waits until n chunks have left the tracer. It gives up if nothing comes.
func (e *encoder) await(n int) bool {
	pace := time.NewTimer(flushPace)
	defer pace.Stop()
	last, since := -1, time.Now()
	for {
		select {
		case <-e.captured:
		case <-pace.C:
		}
		tracer.Flush() // cuts a payload; its request comes from another goroutine
		got := e.left()
		switch {
		case got >= n:
			return true
		case got != last:
			last, since = got, time.Now()
		case time.Since(since) > encodePatience:
			return false
		}
		pace.Reset(flushPace)
	}
}

// take returns what has been captured, without the barrier. filteredOut are the
// spans that the tracer's filters for traces have dropped.
func (e *encoder) take() (payloads []payload, filteredOut int, err error) {
	captured, filteredOut, err := e.capture.take()
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

// enter waits for the turn. The caller must leave.
func (e *encoder) enter(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *encoder) leave() { <-e.turn }

// runFor has the tracer run with n's settings, and with the environment, service
// and version of the resource that comes first. Statistics have one environment:
// if spans of another come, the tracer starts anew and leaves them to the agent.
func (e *encoder) runFor(ctx context.Context, n *native, units []unit) error {
	b := &bridge{defaults: n.settings.defaults, resources: map[pluginsdk.Resource]resource{}}
	if e.owner == n {
		b = e.bridge
		clear(b.resources)
	}
	first := b.resource(units[0].spans[0].Resource())
	env := cmp.Or(first.env, n.settings.env)
	again := e.owner != n
	for _, u := range units {
		own := cmp.Or(b.resource(u.spans[0].Resource()).env, n.settings.env)
		if n.statistics && own != env || e.owner == n && n.statistics && own != e.env {
			n.statistics, again = false, true
			n.settings.log.Info("spans of several environments come in: the Datadog agent computes their statistics", "environment", own)
		}
	}
	if !again {
		return nil
	}
	if err := n.settings.agent.meet(ctx); err != nil {
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

// options are the tracer's that follow from the settings, and do not depend on
// spans.
func (n *native) options() []tracer.StartOption {
	options := []tracer.StartOption{
		tracer.WithHTTPClient(&http.Client{Transport: theEncoder, Timeout: n.settings.agent.timeout}),
		tracer.WithAgentURL("http://" + tracersAgent),
		tracer.WithLogger(n.log), tracer.WithLogStartup(n.settings.startupLogs),
		tracer.WithStatsdClient(&health{encoder: theEncoder}),
		tracer.WithTraceEnabled(true),
		// What follows would be of the plugin's process, and not of the service's.
		tracer.WithAppSecEnabled(false), tracer.WithLLMObsEnabled(false), tracer.WithDynamicInstrumentationEnabled(false),
		tracer.WithProfilerCodeHotspots(false), tracer.WithProfilerEndpoints(false),
	}
	if !n.statistics {
		options = append(options, tracer.WithStatsComputation(false))
	}
	return options
}

// prepareEnvironment sets what the tracer has no option for: one protocol, whole
// chunks, and nothing that OpenTelemetry's variables or another product of
// Datadog's would make of the plugin's process.
func prepareEnvironment() {
	for name, value := range map[string]string{
		envProtocol: "0.4", "DD_TRACE_PARTIAL_FLUSH_ENABLED": "false",
		"DD_RUNTIME_METRICS_ENABLED": "false", "DD_RUNTIME_METRICS_V2_ENABLED": "false",
		"DD_DATA_STREAMS_ENABLED": "false", "DD_CIVISIBILITY_ENABLED": "false",
	} {
		_ = os.Setenv(name, value) // fails for a name that can not be only
	}
	for _, name := range []string{
		"OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
	} {
		_ = os.Unsetenv(name)
	}
}

// stop ends the tracer, which writes out what it has first.
func (e *encoder) stop() { tracer.Stop() }

// handBack ends the tracer, and gives its owner what has left it meanwhile, which
// is statistics.
func (e *encoder) handBack() {
	if e.owner == nil {
		return
	}
	e.stop()
	payloads, _, _ := e.take()
	e.owner.addLate(payloads)
	e.owner, e.bridge = nil, nil
}

// release ends the tracer if it runs for n.
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
