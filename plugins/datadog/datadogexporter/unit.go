package datadogexporter

import (
	"encoding/binary"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// unit has the spans of a batch that the tracer sends as one chunk. All are of one trace.
// They are either the roots of the trace and their descendants, or all descendants of one
// parent that is not in the batch.
type unit struct {
	outer spanKey // the parent that is not in the batch; its span id is zero for roots
	// spans are sorted, so that each parent comes before its children.
	spans []unitSpan
}

type unitSpan struct {
	span pluginsdk.Span
	// up is the index of the span's parent in unit.spans. It is -1 if the parent is not in
	// the batch.
	up int
}

type spanKey struct {
	trace trace.TraceID
	span  trace.SpanID
}

// planner divides the spans of a batch into units.
type planner struct {
	nodes []node
	known map[spanKey]int // index in nodes, by the ids of a span
	units []unit
	of    map[spanKey]int // index in units, by unit.outer
}

type node struct {
	span    pluginsdk.Span
	visited bool
	unit    int // index in planner.units; -1 before place has added the span
	at      int // index in the spans of that unit
}

// plan divides a batch into units. unfit is the number of spans that it leaves out,
// because no agent accepts them: spans without an id, and spans with a trace id that is
// zero in its low 64 bits.
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

// place adds a span to a unit. If the parent is in the batch, it first places the parent,
// and uses the parent's unit. If spans are each other's ancestors, it treats one of them
// as if its parent were missing.
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

// unit returns the index of the unit with the given outer, and adds the unit if it is
// new.
func (p *planner) unit(outer spanKey) int {
	i, ok := p.of[outer]
	if !ok {
		i = len(p.units)
		p.of[outer] = i
		p.units = append(p.units, unit{outer: outer})
	}
	return i
}
