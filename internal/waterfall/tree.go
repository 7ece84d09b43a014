package waterfall

import (
	"cmp"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

type node struct {
	// span is nil for an ancestor that was only drawn with an earlier batch.
	span     *Span
	id       trace.SpanID
	parent   trace.SpanID
	name     string
	start    int64
	up       *node
	children []*node
	// lost reports that the node has no parent here although its parent belongs to the same
	// process.
	lost bool
	// drawn reports that the node has a row.
	drawn bool
}

// row is a node at its place in the drawing.
type row struct {
	*node
	depth int
	// more reports that a sibling follows. rails reports this for the ancestors from depth 1
	// up to the drawn depth.
	more  bool
	rails []bool
	// above is the number of children that were drawn with earlier batches.
	above int
}

// isFar reports whether the row is deeper than the drawn levels.
func (r row) isFar() bool { return r.depth > len(r.rails)+1 }

// arrange sorts the spans of a trace for drawing. Each span comes after its parent, and
// siblings are sorted by their start. Each span appears once, even if its ids are wrong.
// If several spans have the same id, the first span gets the children. In a cycle of
// parents, the span that started first becomes a root. If a parent was drawn earlier, its
// known ancestors appear, too. The field rails has at most most-1 members.
func arrange(spans []*Span, before *History, most int) []row {
	nodes, byID := graft(spans, before)
	slices.SortStableFunc(nodes, func(a, b *node) int { return cmp.Compare(a.start, b.start) })
	var roots []*node
	for _, n := range nodes {
		if n.up == nil {
			roots = append(roots, n)
		} else {
			n.up.children = append(n.up.children, n)
		}
	}
	above := before.children(byID)
	rows := make([]row, 0, len(nodes))
	// An explicit stack is used, because a trace may have as many levels as a batch has
	// spans.
	var stack []row
	push := func(children []*node, depth int, rails []bool) {
		for i, n := range slices.Backward(children) {
			stack = append(stack, row{node: n, depth: depth, rails: rails, more: i < len(children)-1})
		}
	}
	walk := func(roots ...*node) {
		push(roots, 0, nil)
		for len(stack) > 0 {
			next := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if next.span != nil && byID[next.id] == next.node {
				next.above = above[next.id]
			}
			next.drawn = true
			rows = append(rows, next)
			rails := next.rails
			if next.depth > 0 && len(rails) < most-1 {
				rails = append(slices.Clip(rails), next.more)
			}
			push(next.children, next.depth+1, rails)
		}
	}
	walk(roots...)
	for _, n := range nodes {
		if !n.drawn {
			walk(cutCycle(n))
		}
	}
	return rows
}

// graft makes the nodes of spans and of their remembered ancestors, and connects each
// with its parent.
func graft(spans []*Span, before *History) ([]*node, map[trace.SpanID]*node) {
	nodes := make([]*node, 0, len(spans))
	byID := make(map[trace.SpanID]*node, len(spans))
	for _, s := range spans {
		n := &node{span: s, id: s.ID, parent: s.Parent, name: s.Name, start: s.Start}
		nodes = append(nodes, n)
		if byID[s.ID] == nil && s.ID.IsValid() {
			byID[s.ID] = n
		}
	}
	for i := 0; i < len(nodes); i++ { // the loop appends to nodes
		n := nodes[i]
		if !n.parent.IsValid() {
			continue
		}
		n.up = byID[n.parent]
		if n.up == nil {
			if past, known := before.find(n.parent); known {
				n.up = &node{id: n.parent, parent: past.parent, name: past.name, start: past.start}
				nodes, byID[n.parent] = append(nodes, n.up), n.up
			}
		}
		n.lost = n.up == nil && n.span != nil && !n.span.RemoteParent
	}
	return nodes, byID
}

// cutCycle finds the cycle above n, makes its earliest node a root, and returns this node.
// The number of steps is proportional to the nodes above n, because a trace may have as
// many cycles as spans.
func cutCycle(n *node) *node {
	// Two nodes at different speeds meet in the cycle.
	for ahead := n.up; ahead != n; ahead = ahead.up.up {
		n = n.up
	}
	first := n
	for other := n.up; other != n; other = other.up {
		if other.start < first.start {
			first = other
		}
	}
	first.up.children = slices.DeleteFunc(first.up.children, func(child *node) bool { return child == first })
	first.up, first.lost = nil, true
	return first
}
