package waterfall

import (
	"cmp"
	"slices"
)

// interval is a part of the time of a trace, in nanoseconds since 1970.
type interval struct{ from, to int64 }

func (i interval) length() int64 { return i.to - i.from }

// analysis holds the critical path of a trace and the gaps in it.
type analysis struct {
	// path holds the parts of the critical path in which the node itself ran.
	path map[*node][]interval
	// gaps holds long intervals of a node in which no child ran, earliest first.
	gaps map[*node][]interval
}

// gapShare sets the length of the shortest gap: 1/gapShare of the trace's duration.
const gapShare = 20

// Analyse finds the critical path of the trace, and its gaps. The critical path is the
// chain of spans that the end of the trace waited for. Each moment of the path counts for
// the deepest span. A gap is a time in which none of a span's children ran, of at least a
// twentieth of the trace. A span without children has no gap. Path and gaps need all spans
// of the trace.
//
// A child may outlive its parent, as a replica's span does below a router's. So the time
// of a child includes the time of its descendants.
func (t *Trace) Analyse() {
	a := &analysis{path: map[*node][]interval{}, gaps: map[*node][]interval{}}
	var roots []*node
	whole := map[*node]interval{} // intervals of spans together with their descendants
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

// walk finds the critical path, from the end of the trace back to its start.
func (a *analysis) walk(t *Trace, roots []*node, whole map[*node]interval) {
	type visit struct {
		*node // nil stands for the whole trace
		until int64
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

// add adds an interval to the path of n. The part of it after the end of n belongs to the
// parent of n.
func (a *analysis) add(n *node, part interval) {
	for ; n != nil && part.length() > 0; n = n.up {
		if time, timed := timeOf(n); timed && time.to > part.from {
			own := interval{part.from, min(part.to, time.to)}
			a.path[n] = append(a.path[n], own)
			part.from = own.to
		}
	}
}

// timeOf returns the time of a node, if it has a span with valid times.
func timeOf(n *node) (interval, bool) {
	if n.span == nil || !n.span.timed() {
		return interval{}, false
	}
	return interval{n.span.Start, n.span.End}, true
}

// latestFirst returns the nodes with valid times, sorted by their end, latest first.
func latestFirst(nodes []*node, whole map[*node]interval) []*node {
	list := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { _, timed := whole[n]; return !timed })
	slices.SortStableFunc(list, func(a, b *node) int { return cmp.Compare(whole[b].to, whole[a].to) })
	return list
}

// uncovered returns the parts of time in which no child ran. It returns none if no child
// ran at all. The children are sorted by their start.
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

// share is the part of the critical path in which a span itself ran.
type share struct {
	*node
	nanos int64
}

// shares returns the nodes on the critical path, the longest part first.
func (a *analysis) shares() []share {
	var list []share
	for n, parts := range a.path {
		one := share{node: n}
		for _, part := range parts {
			one.nanos += part.length()
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.nanos, a.nanos), cmp.Compare(a.start, b.start), cmp.Compare(a.id.String(), b.id.String()))
	})
	return list
}
