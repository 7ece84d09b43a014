package datadogexporter

import (
	"encoding/binary"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// unit has the spans of a batch that become one chunk of Datadog. These are all spans of a
// trace below the same missing parent, or all roots of a trace with the spans below them.
type unit struct {
	outer spanKey // the missing parent; the span id is zero for roots
	// spans are sorted: each parent comes before its children.
	spans []unitSpan
}

type unitSpan struct {
	span pluginsdk.Span
	// up is the index of the parent in spans. It is -1 if the parent is not in the batch.
	up int
}

type spanKey struct {
	trace trace.TraceID
	span  trace.SpanID
}

// planner sorts the spans of a batch into units.
type planner struct {
	nodes []node
	known map[spanKey]int // index in nodes
	units []unit
	of    map[spanKey]int // index in units, by the missing parent
}

type node struct {
	span    pluginsdk.Span
	visited bool
	unit    int // index in units, or -1 before the span is placed
	at      int // index in the unit's spans
}

// plan returns the units of a batch, and the number of spans that no agent accepts. These
// are spans without ids, and spans with a trace id that is zero in its low half.
func plan(b *pluginsdk.Batch) (units []unit, unfit int) {
	p := planner{known: map[spanKey]int{}, of: map[spanKey]int{}}
	for span := range b.Spans() {
		id, own := span.TraceID(), span.SpanID()
		if binary.BigEndian.Uint64(id[8:]) == 0 || !own.IsValid() {
			unfit++
			continue
		}
		p.known[spanKey{id, own}] = len(p.nodes)
		p.nodes = append(p.nodes, node{span: span, unit: -1})
	}
	for i := range p.nodes {
		p.place(i)
	}
	return p.units, unfit
}

// place adds a span to the unit of its parent, after the parent, or to the unit of its
// missing parent. A cycle of parents is cut at its last span.
func (p *planner) place(i int) {
	n := &p.nodes[i]
	if n.visited {
		return
	}
	n.visited = true
	outer, up := spanKey{n.span.TraceID(), n.span.ParentID()}, -1
	if parent, ok := p.known[outer]; ok {
		p.place(parent)
		n.unit, up = p.nodes[parent].unit, p.nodes[parent].at
	}
	if n.unit < 0 {
		n.unit, up = p.unit(outer), -1
	}
	n.at = len(p.units[n.unit].spans)
	p.units[n.unit].spans = append(p.units[n.unit].spans, unitSpan{n.span, up})
}

// unit returns the index of the unit below a missing parent.
func (p *planner) unit(outer spanKey) int {
	i, ok := p.of[outer]
	if !ok {
		i = len(p.units)
		p.of[outer] = i
		p.units = append(p.units, unit{outer: outer})
	}
	return i
}
