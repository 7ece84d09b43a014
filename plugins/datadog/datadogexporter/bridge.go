package datadogexporter

import (
	"encoding/binary"
	"strings"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// unit is the spans of a batch that become one of Datadog's chunks: those of one
// trace whose ways up end at the same missing parent, or none.
type unit struct {
	outer parentContext
	// by is who made the first span.
	by maker
	// spans stand after their parents.
	spans []unitSpan
}

type unitSpan struct {
	pluginsdk.Span
	// up is the parent's index in spans; -1 if it is not in the batch.
	up int
}

// parentContext is a parent that is not in the batch, for tracer.FromGenericCtx:
// ddtrace.SpanContext, and the decision about the trace, which the host has made.
// An id of zero makes a span a root, with the trace id kept.
type parentContext struct {
	trace trace.TraceID
	span  trace.SpanID
}

func (c parentContext) SpanID() uint64                               { return binary.BigEndian.Uint64(c.span[:]) }
func (c parentContext) TraceID() string                              { return c.trace.String() }
func (c parentContext) TraceIDBytes() [16]byte                       { return c.trace }
func (c parentContext) TraceIDLower() uint64                         { return binary.BigEndian.Uint64(c.trace[8:]) }
func (c parentContext) ForeachBaggageItem(func(string, string) bool) {}

// SamplingDecision is "keep": with Priority it locks what the host decided, so
// that neither rates nor rules of dd-trace-go touch the trace.
func (c parentContext) SamplingDecision() uint32 { return 2 }

// Priority is Datadog's for a trace that a sampler kept.
func (c parentContext) Priority() *float64 { one := 1.0; return &one }

// forV1 are the lines of an environment from which dd-trace-go fills in what
// protocol 1.0 says once for all of a payload; with 0.4 the agent looks for it.
func (m maker) forV1() string {
	lines := ""
	for _, t := range []tag{{envEnv, m.env}, {envVersion, m.version}, {envSourceHostname, m.host}} {
		if t.value != "" && !strings.Contains(t.value, "\n") {
			lines += "\n" + t.key + "=" + t.value
		}
	}
	return lines
}

// planner sorts the spans of a batch into units.
type planner struct {
	mapper *mapper
	nodes  []node
	known  map[spanKey]int // index in nodes
	units  []unit
	of     map[parentContext]int // index in units
}

type spanKey struct {
	trace trace.TraceID
	span  trace.SpanID
}

// node is a span on its way into a unit.
type node struct {
	span pluginsdk.Span
	unit int // -1: not sorted yet; -2: on the way up that is being walked
	at   int // index in the unit's spans
}

// plan gives the units of a batch, in the order of the spans that begin them,
// and how many spans no agent takes.
func plan(b *pluginsdk.Batch, m *mapper) (units []unit, unfit int) {
	p := planner{mapper: m, known: map[spanKey]int{}, of: map[parentContext]int{}}
	for span := range b.Spans() {
		id, own := span.TraceID(), span.SpanID()
		if binary.BigEndian.Uint64(id[8:]) == 0 || !own.IsValid() {
			unfit++
			continue
		}
		if _, twice := p.known[spanKey{id, own}]; !twice {
			p.known[spanKey{id, own}] = len(p.nodes)
		}
		p.nodes = append(p.nodes, node{span: span, unit: -1})
	}
	for i := range p.nodes {
		p.sort(i)
	}
	return p.units, unfit
}

// sort walks up from a span to one that is in a unit, or that ends the way, and
// takes those in between along. Parents that go round in a circle end it too.
func (p *planner) sort(i int) {
	var way []int
	for i >= 0 && p.nodes[i].unit == -1 {
		p.nodes[i].unit = -2
		way = append(way, i)
		i = p.parent(i)
	}
	up := -1
	into := -1
	if i >= 0 && p.nodes[i].unit >= 0 {
		up, into = p.nodes[i].at, p.nodes[i].unit
	}
	for k := len(way) - 1; k >= 0; k-- {
		n := &p.nodes[way[k]]
		if into < 0 {
			into = p.unit(parentContext{n.span.TraceID(), n.span.ParentID()}, n.span)
		}
		n.unit, n.at = into, len(p.units[into].spans)
		p.units[into].spans = append(p.units[into].spans, unitSpan{n.span, up})
		up = n.at
	}
}

// parent is the index of a span's parent, -1 where the batch has none.
func (p *planner) parent(i int) int {
	span := p.nodes[i].span
	if above, ok := p.known[spanKey{span.TraceID(), span.ParentID()}]; ok {
		return above
	}
	return -1
}

func (p *planner) unit(outer parentContext, first pluginsdk.Span) int {
	i, ok := p.of[outer]
	if !ok {
		i = len(p.units)
		p.of[outer] = i
		p.units = append(p.units, unit{outer: outer, by: p.mapper.resource(first.Resource()).by})
	}
	return i
}

// bridge replays units in dd-trace-go. A chunk is complete when all its spans
// have ended, so all start first, parents before their children.
func bridge(units []unit, m *mapper) {
	for _, u := range units {
		outer := tracer.FromGenericCtx(u.outer)
		started := make([]*tracer.Span, 0, len(u.spans))
		for _, s := range u.spans {
			parent := outer
			if s.up >= 0 {
				parent = started[s.up].Context()
			}
			started = append(started, m.start(s.Span, parent))
		}
		for i, s := range u.spans {
			started[i].Finish(tracer.FinishTime(s.EndTime()))
		}
	}
}

// start starts one span in dd-trace-go, with everything but its end.
func (m *mapper) start(s pluginsdk.Span, parent *tracer.SpanContext) *tracer.Span {
	d, id := m.describe(s), s.SpanID()
	span := tracer.StartSpan(d.name,
		tracer.ChildOf(parent), //nolint:staticcheck // the parent may be none of the tracer's
		tracer.WithSpanID(binary.BigEndian.Uint64(id[:])), tracer.StartTime(s.StartTime()),
		tracer.ServiceName(d.service), tracer.ResourceName(d.resource), tracer.SpanType(d.typ),
		tracer.WithSpanLinks(d.links))
	// After the start, for what dd-trace-go sets there is the plugin's own.
	for key, value := range d.tags.meta {
		span.SetTag(key, value)
	}
	for key, value := range d.tags.metrics {
		span.SetTag(key, value)
	}
	if d.failed {
		span.SetTag("error", true)
	}
	m.addEvents(span, s)
	return span
}
