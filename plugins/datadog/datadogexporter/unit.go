package datadogexporter

import (
	"encoding/binary"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// unit holds the spans of a batch that become a chunk of Datadog: the spans of a trace
// below the same missing parent, or below a root.
type unit struct {
	outer spanKey // the missing parent; its span id is zero for a root
	// spans are sorted: parents before their children.
	spans []unitSpan
}

type unitSpan struct {
	pluginsdk.Span
	// up is the parent's index in spans, or -1 if the batch does not have the parent.
	up int
}

type spanKey struct {
	trace trace.TraceID
	span  trace.SpanID
}

// node is a span while it is sorted into a unit.
type node struct {
	span pluginsdk.Span
	unit int // unsorted, onTheWay, or an index in units
	at   int // index in the unit's spans
}

const (
	unsorted = -1
	onTheWay = -2
)

// planner sorts the spans of a batch into units.
type planner struct {
	nodes []node
	known map[spanKey]int // index in nodes
	units []unit
	of    map[spanKey]int // index in units, by outer
}

// plan returns the units of a batch, and the number of spans that no agent accepts:
// spans without ids, or with a trace id of zero in the low half.
func plan(b *pluginsdk.Batch) (units []unit, unfit int) {
	p := planner{known: map[spanKey]int{}, of: map[spanKey]int{}}
	for span := range b.Spans() {
		id, own := span.TraceID(), span.SpanID()
		if binary.BigEndian.Uint64(id[8:]) == 0 || !own.IsValid() {
			unfit++
			continue
		}
		p.known[spanKey{id, own}] = len(p.nodes)
		p.nodes = append(p.nodes, node{span: span, unit: unsorted})
	}
	for i := range p.nodes {
		p.sort(i)
	}
	return p.units, unfit
}

// sort walks up from a span to an ancestor that is already in a unit, or to the topmost
// ancestor, and adds the spans on the way to the unit. A cycle of parents ends the
// walk, too.
func (p *planner) sort(i int) {
	var way []int
	for i >= 0 && p.nodes[i].unit == unsorted {
		p.nodes[i].unit = onTheWay
		way = append(way, i)
		i = p.parent(i)
	}
	up, into := -1, -1
	if i >= 0 && p.nodes[i].unit >= 0 {
		up, into = p.nodes[i].at, p.nodes[i].unit
	}
	for k := len(way) - 1; k >= 0; k-- {
		n := &p.nodes[way[k]]
		if into < 0 {
			into = p.unit(spanKey{n.span.TraceID(), n.span.ParentID()})
		}
		n.unit, n.at = into, len(p.units[into].spans)
		p.units[into].spans = append(p.units[into].spans, unitSpan{n.span, up})
		up = n.at
	}
}

// parent returns the index of a span's parent, or -1 if the batch does not have it.
func (p *planner) parent(i int) int {
	span := p.nodes[i].span
	if above, ok := p.known[spanKey{span.TraceID(), span.ParentID()}]; ok {
		return above
	}
	return -1
}

func (p *planner) unit(outer spanKey) int {
	i, ok := p.of[outer]
	if !ok {
		i = len(p.units)
		p.of[outer] = i
		p.units = append(p.units, unit{outer: outer})
	}
	return i
}
