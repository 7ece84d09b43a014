package waterfall

import (
	"cmp"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// node is a span in the tree of a trace.
type node struct {
	// span is nil for an ancestor that only an earlier drawing has shown.
	span     *Span
	id       trace.SpanID
	parent   trace.SpanID // id of the parent; zero for a root span
	name     string
	start    int64   // start of the span, in nanoseconds since 1970
	up       *node   // the parent; nil if it is not in the tree
	children []*node // sorted by their start
	// lost reports that the parent should be known, because it belongs to the same process, but
	// is not in the tree.
	lost bool
	// drawn reports that the drawing has a row for this node.
	drawn bool
}

// row is a node at its place in the drawing.
type row struct {
	*node
	depth int
	// more reports that a sibling of the node follows. rails has the value of more for each
	// ancestor from depth 1 on, down to the deepest level that is drawn.
	more  bool
	rails []bool
	// above is the number of the node's children that only earlier drawings have shown.
	above int
}

// isFar reports whether the row is deeper than the deepest level that is drawn.
func (r row) isFar() bool { return r.depth > len(r.rails)+1 }

// arrange returns the rows of a drawing of spans. Each span comes after its parent, and
// siblings are sorted by their start. Each span has one row, even if its ids are wrong. If
// several spans have the same id, the first span gets the children. In a cycle of parents, the
// span that started first becomes a root. If an earlier drawing has shown a parent, the parent
// and its known ancestors get rows, too. most is the number of levels that are drawn.
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

// graft makes nodes of the spans and of their remembered ancestors, and connects each node with
// its parent. It also returns the nodes by their ids.
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
	for i := 0; i < len(nodes); i++ { // not a range loop, because the loop appends to nodes
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

// cutCycle finds the cycle among the ancestors of n, makes the node of the cycle that started
// first a root, and returns it. The number of its steps is proportional to the number of these
// ancestors, which matters because a trace may have as many cycles as spans.
func cutCycle(n *node) *node {
	// Two pointers that move at different speeds meet in the cycle.
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
