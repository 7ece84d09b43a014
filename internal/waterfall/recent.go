package waterfall

import (
	"container/list"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// Limits of the memory of a Recent, about 3 MiB together. At a limit, it forgets the trace that
// has had no new span for the longest time.
const (
	recentTraces = 1024
	recentSpans  = 16384
	// spansOfTrace bounds the spans of a trace. Further spans are not remembered.
	spansOfTrace = 1024
	// nameBytes bounds the length of a remembered span's name. serviceBytes bounds the length
	// of a service's name, which already the function Read cuts, because Draw compares the name
	// of each span's service with the remembered name.
	nameBytes    = 64
	serviceBytes = 256
)

// Recent remembers recently drawn traces, so that a later span is drawn below its
// ancestors. The zero value is ready to use. It is safe for concurrent use.
type Recent struct {
	mu     sync.Mutex
	traces map[trace.TraceID]*list.Element
	// order holds the *History of each trace, the most recently added first.
	order list.List
	spans int // number of spans of all traces
}

// History is the part of a trace that earlier drawings have shown. It is immutable. A nil
// History is empty.
type History struct {
	extent
	spans map[trace.SpanID]past
}

// past is a remembered span.
type past struct {
	parent trace.SpanID
	name   string
	start  int64
}

func (h *History) find(id trace.SpanID) (past, bool) {
	if h == nil {
		return past{}, false
	}
	p, ok := h.spans[id]
	return p, ok
}

// children returns the number of remembered children of each span. It does not count children
// that are drawn now, which are in the map here.
func (h *History) children(here map[trace.SpanID]*node) map[trace.SpanID]int {
	if h == nil {
		return nil
	}
	counts := map[trace.SpanID]int{}
	for id, p := range h.spans {
		if here[id] == nil && p.parent.IsValid() {
			counts[p.parent]++
		}
	}
	return counts
}

// Find returns the remembered part of a trace, or nil if no part is remembered.
func (r *Recent) Find(id trace.TraceID) *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	if element := r.traces[id]; element != nil {
		return element.Value.(*History)
	}
	return nil
}

// Add remembers a trace that was drawn.
func (r *Recent) Add(d Trace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := &History{extent: d.extent, spans: map[trace.SpanID]past{}}
	if element := r.traces[d.id]; element != nil {
		old := element.Value.(*History)
		for id, p := range old.spans {
			next.spans[id] = p
		}
		r.forgetLocked(element)
	}
	for _, row := range d.rows {
		if len(next.spans) >= spansOfTrace {
			break
		}
		if s := row.span; s != nil && s.ID.IsValid() {
			next.spans[s.ID] = past{parent: s.Parent, name: head(s.Name, nameBytes), start: s.Start}
		}
	}
	if r.traces == nil {
		r.traces = map[trace.TraceID]*list.Element{}
	}
	r.traces[d.id] = r.order.PushFront(next)
	r.spans += len(next.spans)
	for len(r.traces) > recentTraces || r.spans > recentSpans {
		r.forgetLocked(r.order.Back())
	}
}

func (r *Recent) forgetLocked(element *list.Element) {
	old := r.order.Remove(element).(*History)
	delete(r.traces, old.id)
	r.spans -= len(old.spans)
}

// head returns a copy of the first bytes of s, up to the end of a character. The copy
// does not keep s in memory.
func head(s string, most int) string {
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), most)], ""))
}
