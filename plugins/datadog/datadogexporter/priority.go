package datadogexporter

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
	"go.opentelemetry.io/otel/trace"
)

// priorities remembers the sampling priorities of traces, so that all spans of a trace get
// the same priority, even if they come in several batches. It is not safe for concurrent
// use.
type priorities struct {
	recent, older map[trace.TraceID]int8 // priorities by trace id; when recent is full, it becomes older
}

// maxRecent is the largest number of traces in each map of priorities.
const maxRecent = 16_384

func (p *priorities) remember(id trace.TraceID, priority int) {
	if len(p.recent) >= maxRecent || p.recent == nil {
		p.recent, p.older = map[trace.TraceID]int8{}, p.recent
	}
	p.recent[id] = int8(priority)
}

func (p *priorities) recall(id trace.TraceID) (priority int, ok bool) {
	known, ok := p.recent[id]
	if !ok {
		known, ok = p.older[id]
	}
	return int(known), ok
}

// context returns the parent for the spans of a unit that have no parent in it. The
// parent carries the sampling decision for an earlier batch of the trace. If there is
// none, it carries the decision of the calling service, as in the span's tracestate. If
// there is none either, the tracer decides.
func (p *priorities) context(u unit) *tracer.SpanContext {
	if priority, ok := p.recall(u.outer.trace); ok {
		return tracer.FromGenericCtx(outerContext{u.outer, &priority})
	}
	if from := inherited(u); from != nil {
		return from
	}
	return tracer.FromGenericCtx(outerContext{key: u.outer})
}

// inherited returns the span context with which the calling service has called, if it has
// a sampling priority of Datadog, and otherwise nil.
func inherited(u unit) *tracer.SpanContext {
	first := u.spans[0].span
	if remote, _ := first.ParentIsRemote(); !remote || !u.outer.span.IsValid() {
		return nil
	}
	carrier := tracer.TextMapCarrier{
		"traceparent": "00-" + u.outer.trace.String() + "-" + u.outer.span.String() + "-01",
		"tracestate":  first.TraceState().String(),
	}
	from, err := tracer.Extract(carrier)
	if err != nil || from == nil || from.TraceIDBytes() != u.outer.trace ||
		from.SpanID() != binary.BigEndian.Uint64(u.outer.span[:]) {
		return nil // the operator has disabled the propagation by these headers
	}
	if _, ok := from.SamplingPriority(); !ok {
		return nil
	}
	return from
}

// outerContext is a parent that is not in the batch, as an argument for
// tracer.FromGenericCtx. If its span id is zero, the child becomes a root span with this
// trace id.
type outerContext struct {
	key      spanKey
	priority *int // sampling priority; nil if the tracer decides
}

func (c outerContext) SpanID() uint64                               { return binary.BigEndian.Uint64(c.key.span[:]) }
func (c outerContext) TraceID() string                              { return c.key.trace.String() }
func (c outerContext) TraceIDBytes() [16]byte                       { return c.key.trace }
func (c outerContext) TraceIDLower() uint64                         { return binary.BigEndian.Uint64(c.key.trace[8:]) }
func (c outerContext) ForeachBaggageItem(func(string, string) bool) {}

// SamplingDecision returns dd-trace-go's number for "keep" or "drop". While the priority
// is nil it returns "drop", which decides nothing: the tracer still samples, and sends
// the spans of a unit in one chunk.
func (c outerContext) SamplingDecision() uint32 {
	const drop, keep = 1, 2
	if c.priority != nil && *c.priority > 0 {
		return keep
	}
	return drop
}

// Priority returns the sampling priority, or nil if the tracer decides.
func (c outerContext) Priority() *float64 {
	if c.priority == nil {
		return nil
	}
	p := float64(*c.priority)
	return &p
}

// sampledAt returns the sampling probability in the entry "ot" of a tracestate. The field
// "th" there has the hexadecimal digits of a fraction, the share of traces that was
// dropped. From the probability, Datadog computes how many spans this span stands for.
func sampledAt(member string) (float64, bool) {
	for field := range strings.SplitSeq(member, ";") {
		value, found := strings.CutPrefix(field, "th:")
		if !found || value == "" || len(value) > 14 {
			continue
		}
		if n, err := strconv.ParseUint(value+strings.Repeat("0", 14-len(value)), 16, 64); err == nil {
			return 1 - float64(n)/(1<<56), true
		}
	}
	return 0, false
}
