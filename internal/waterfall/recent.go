package waterfall

import (
	"container/list"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// Limits of the memory for drawn traces, about 3 MiB together. The trace that has had no
// new span for the longest time is removed first.
const (
	recentTraces = 1024
	recentSpans  = 16384
	// spansOfTrace bounds the spans of a trace. Further spans are not remembered.
	spansOfTrace = 1024
	// nameBytes bounds the length of a span's name. serviceBytes bounds a service's name.
	// Read cuts it, because Draw compares it with the service of the trace.
	nameBytes    = 64
	serviceBytes = 256
)

// Recent remembers recently drawn traces, so that a later span is drawn below its
// ancestors. The zero value is ready to use. It is safe for concurrent use.
type Recent struct {
	mu     sync.Mutex
	traces map[trace.TraceID]*list.Element
	// order has each *History, the most recently added first.
	order list.List
	spans int // number of spans of all traces
}

// History is the remembered part of a trace. It is immutable. A nil history is empty.
type History struct {
	id         trace.TraceID
	start, end int64 // first start and last end of all drawn spans; 0: unknown
	service    string
	spans      map[trace.SpanID]past
}

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

// children counts the remembered children of each span, except children that are in the
// map here.
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

// Find returns the remembered part of a trace, or nil.
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
	next := &History{id: d.id, start: d.start, end: d.end, service: d.service, spans: map[trace.SpanID]past{}}
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
