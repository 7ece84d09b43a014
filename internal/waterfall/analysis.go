package waterfall

import (
	"cmp"
	"slices"
)

// interval is a period in a trace. Its limits are in nanoseconds since 1970.
type interval struct{ from, to int64 }

func (i interval) length() int64 { return i.to - i.from }

// analysis holds the critical path of a trace and the gaps in it.
type analysis struct {
	// path holds, for each node, the intervals of the critical path that count for this node.
	path map[*node][]interval
	// gaps holds, for each node, the long intervals in which none of its children ran, the
	// earliest first.
	gaps map[*node][]interval
}

// gapShare defines the length of the shortest gap: the trace's duration divided by gapShare.
const gapShare = 20

// Analyse finds the critical path of the trace and the gaps of its spans. The critical path
// is the chain of spans that delayed the end of the trace. Each moment of the path counts for
// the deepest span that ran. A gap is an interval of at least a twentieth of the trace in
// which a span ran, but none of its children. A span without children has no gap. The result
// is right only if the Trace has all spans of the trace.
//
// A child may end later than its parent, as a replica's span does below a router's. So the
// interval of a child includes the intervals of its descendants.
func (t *Trace) Analyse() {
	a := &analysis{path: map[*node][]interval{}, gaps: map[*node][]interval{}}
	var roots []*node
	whole := map[*node]interval{} // the interval of each span, extended to the end of its descendants
	for _, r := range slices.Backward(t.rows) {
		if r.depth == 0 {
			roots = append(roots, r.node)
		}
		if time, timed := timeOf(r.node); timed {
			for _, child := range r.children {
				if below, has := whole[child]; has {
					time.to = max(time.to, below.to)
				}
			}
			whole[r.node] = time
		}
	}
	for n := range whole {
		time, _ := timeOf(n)
		for _, gap := range uncovered(time, n.children, whole) {
			if gap.length() >= max((t.end-t.start)/gapShare, 1) {
				a.gaps[n] = append(a.gaps[n], gap)
			}
		}
	}
	a.walk(t, roots, whole)
	t.analysis = a
}

// walk finds the critical path. It follows the path from the end of the trace back to its
// start.
func (a *analysis) walk(t *Trace, roots []*node, whole map[*node]interval) {
	type visit struct {
		*node       // nil stands for the whole trace
		until int64 // the path before this time is still to be found
	}
	for stack := []visit{{until: t.end}}; len(stack) > 0; {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		children, begin, cursor := roots, t.start, v.until
		if v.node != nil {
			children, begin = v.children, v.start
		}
		for _, child := range latestFirst(children, whole) {
			end := min(whole[child].to, cursor)
			if whole[child].from >= cursor || end <= begin {
				continue
			}
			a.add(v.node, interval{end, cursor})
			stack = append(stack, visit{child, end})
			cursor = max(whole[child].from, begin)
		}
		a.add(v.node, interval{begin, cursor})
	}
}

// add adds an interval to the path of n. If n ended during the interval, the part after its
// end counts for the parent of n.
func (a *analysis) add(n *node, part interval) {
	for ; n != nil && part.length() > 0; n = n.up {
		if time, timed := timeOf(n); timed && time.to > part.from {
			own := interval{part.from, min(part.to, time.to)}
			a.path[n] = append(a.path[n], own)
			part.from = own.to
		}
	}
}

// timeOf returns the interval of a node's span. It returns false if the node has no span, or
// if the times of the span are not valid.
func timeOf(n *node) (interval, bool) {
	if n.span == nil || !n.span.timed() {
		return interval{}, false
	}
	return interval{n.span.Start, n.span.End}, true
}

// latestFirst returns the nodes that are in whole, sorted by their end, the latest first.
func latestFirst(nodes []*node, whole map[*node]interval) []*node {
	list := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { _, timed := whole[n]; return !timed })
	slices.SortStableFunc(list, func(a, b *node) int { return cmp.Compare(whole[b].to, whole[a].to) })
	return list
}

// uncovered returns the parts of an interval in which no child ran. If no child ran at all, it
// returns nil. The children must be sorted by their start.
func uncovered(time interval, children []*node, whole map[*node]interval) (gaps []interval) {
	at, ran := time.from, false
	for _, child := range children {
		below, timed := whole[child]
		if !timed || below.from >= time.to {
			continue
		}
		ran = true
		if below.from > at {
			gaps = append(gaps, interval{at, below.from})
		}
		at = max(at, below.to)
	}
	if !ran {
		return nil
	}
	if at < time.to {
		gaps = append(gaps, interval{at, time.to})
	}
	return gaps
}

// share is the part of the critical path that counts for one node.
type share struct {
	*node
	nanos, percent int64 // length of the part, and its share of the trace's duration
}

// shownShares bounds the number of shares, and shareCells the width of a name beside them.
const (
	shownShares = 8
	shareCells  = 32
)

// shares returns the nodes with the longest parts of the critical path, the longest first. It
// returns nil before Analyse.
func (t *Trace) shares() []share {
	if t.analysis == nil {
		return nil
	}
	var list []share
	for n, parts := range t.analysis.path {
		one := share{node: n}
		for _, part := range parts {
			one.nanos += part.length()
		}
		one.percent = 100 * one.nanos / max(t.end-t.start, 1)
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.nanos, a.nanos), cmp.Compare(a.start, b.start), cmp.Compare(a.id.String(), b.id.String()))
	})
	return list[:min(len(list), shownShares)]
}
