package datadogexporter

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/ext"
	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// theEncoder is the only encoder of the process, because dd-trace-go's tracer and its
// settings are global.
var theEncoder = &encoder{busy: make(chan struct{}, 1), capture: capture{changed: make(chan struct{}, 1)}}

// encoder converts batches to requests to the agent, by dd-trace-go's tracer.
type encoder struct {
	// busy is a mutex whose callers can stop waiting. A goroutine holds it while it starts,
	// uses or stops the tracer. It guards all fields below except capture.
	busy   chan struct{}
	owner  *native // the exporter for which the tracer runs; nil if the tracer is stopped
	bridge *bridge
	env    string // the environment (DD_ENV) of all statistics of the tracer
	// carriedTraces and carriedSpans are the numbers of dropped traces and spans that no
	// payload has reported to the agent yet.
	carriedTraces, carriedSpans int

	// capture receives the tracer's requests.
	capture capture
}

// delivery is an encoded batch on its way to the agent: its payloads, and the numbers of
// spans that are in no payload.
type delivery struct {
	id       string    // id of the batch; set when the delivery is interrupted
	payloads []payload // requests that the agent has not accepted yet, in order
	filtered int       // number of spans that Datadog's samplers have dropped
	rejected int       // number of spans that cannot be delivered
	reason   string    // reason of the last rejection
	// taken reports that the agent has accepted a payload of the batch, or has refused a
	// payload only because of its size. refused is the error of a payload that the agent has
	// refused for good, or nil.
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

// maxChunks is the largest number of chunks (parts of a trace) that the tracer gets
// before the encoder waits for its output. The tracer's queue holds 1,000 chunks, and
// drops any more.
const maxChunks = 500

// barrierName is the name of the span that startBarrier starts. It is never sent to the
// agent.
const barrierName = "servetrace.barrier"

// encode passes the spans of a batch to the tracer, and returns the requests that the
// tracer makes of them. It first waits until no other goroutine uses the tracer, or ctx
// ends. It uses the network only to start the tracer.
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

// encodeUnits passes units, each of which becomes a chunk, to the tracer. There must be
// at most maxChunks units. It adds the resulting payloads and numbers of spans to d.
func (e *encoder) encodeUnits(units []unit, d *delivery) error {
	e.capture.resetChunks()
	barrier := startBarrier()
	if barrier == nil {
		return errNoTracer
	}
	spans, expected := 0, 0 // expected is the number of spans in chunks that the tracer's sampler keeps
	for _, u := range units {
		spans += len(u.spans)
		if e.bridge.replay(u) > 0 {
			expected += len(u.spans)
		}
	}
	barrier.Finish()
	complete := e.await(len(units) + 1)
	if !complete {
		tracer.Stop() // the tracer flushes all remaining payloads when it stops
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

// startBarrier starts a span that must be ended after all spans of the batch. Chunks
// leave the tracer in the order in which they end, also chunks that the sampler drops. So
// when the barrier has left the tracer, all chunks of the batch have left it. Statistics
// do not count the barrier.
func startBarrier() *tracer.Span {
	keep := ext.PriorityUserKeep
	parent := tracer.FromGenericCtx(outerContext{spanKey{trace: trace.TraceID{15: 1}}, &keep})
	s := tracer.StartSpan(barrierName, tracer.ChildOf(parent)) //nolint:staticcheck // the span has no context.Context
	if s != nil {
		s.SetTag(topLevel, 0)
	}
	return s
}

const (
	// flushPace is the longest time between two calls of tracer.Flush.
	flushPace = time.Millisecond
	// encodeTimeout bounds the time in which no chunk leaves the tracer.
	encodeTimeout = 10 * time.Second
)

// await waits until n chunks have left the tracer. It returns false if no chunk has left
// it for encodeTimeout.
func (e *encoder) await(n int) bool {
	pace := time.NewTimer(flushPace)
	defer pace.Stop()
	last, since := -1, time.Now()
	for {
		select {
		case <-e.capture.changed:
		case <-pace.C:
		}
		tracer.Flush() // ends the tracer's current payload, which another goroutine sends to capture
		got := e.capture.leftChunks()
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

// takePayloads removes and returns the captured payloads, without the barrier.
// filteredOut is the number of spans that the operator's trace filters in the tracer have
// dropped.
func (e *encoder) takePayloads() (payloads []payload, filteredOut int, err error) {
	captured, filteredOut, err := e.capture.take()
	for _, p := range captured {
		if p.chunks == nil { // the payload has statistics
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

// enter locks the tracer for the calling goroutine, or returns the cause of the end of
// ctx. The caller must call leave.
func (e *encoder) enter(ctx context.Context) error {
	select {
	case e.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *encoder) leave() { <-e.busy }
