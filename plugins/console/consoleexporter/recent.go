package consoleexporter

import (
	"container/list"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// What is remembered of traces that were drawn, at most: about 3 MiB. The trace
// that no span came of for the longest time is forgotten first.
const (
	recentTraces = 1024
	recentSpans  = 16384
	// spansOfTrace is how many of one trace are remembered, parents first.
	spansOfTrace = 1024
	// nameBytes is how much of a name is, and serviceBytes of a service's, which is
	// cut when it is read: what is remembered is compared with what comes.
	nameBytes    = 64
	serviceBytes = 256
)

// recent remembers the traces that were drawn lately, so that a span that comes
// later is shown under them. The zero value is ready. It is safe for concurrent
// use.
type recent struct {
	mu     sync.Mutex
	traces map[trace.TraceID]*list.Element
	// order has each *history, the one added to last in front.
	order list.List
	spans int // of all
}

// history is what is remembered of a trace. It does not change. A nil one knows
// nothing.
type history struct {
	id         trace.TraceID
	start, end int64 // of all that was drawn; 0: not known
	service    string
	spans      map[trace.SpanID]past
}

// past is a span that was drawn.
type past struct {
	parent trace.SpanID
	name   string
	start  int64
}

// find gives what is remembered of a span.
func (h *history) find(id trace.SpanID) (past, bool) {
	if h == nil {
		return past{}, false
	}
	p, ok := h.spans[id]
	return p, ok
}

// children counts, for each span, the children that are remembered and are not
// among those here.
func (h *history) children(here map[trace.SpanID]*node) map[trace.SpanID]int {
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

// find gives what is remembered of a trace, nil if nothing is.
func (r *recent) find(id trace.TraceID) *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	if element := r.traces[id]; element != nil {
		return element.Value.(*history)
	}
	return nil
}

// add remembers that rows of a trace were drawn.
func (r *recent) add(d drawn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := &history{id: d.id, start: d.start, end: d.end, service: d.service, spans: map[trace.SpanID]past{}}
	if element := r.traces[d.id]; element != nil {
		old := element.Value.(*history)
		for id, p := range old.spans {
			next.spans[id] = p
		}
		r.forgetLocked(element)
	}
	for _, row := range d.rows {
		if len(next.spans) >= spansOfTrace {
			break
		}
		if s := row.span; s != nil && s.id.IsValid() {
			next.spans[s.id] = past{parent: s.parent, name: head(s.name, nameBytes), start: s.start}
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

func (r *recent) forgetLocked(element *list.Element) {
	old := r.order.Remove(element).(*history)
	delete(r.traces, old.id)
	r.spans -= len(old.spans)
}

// head is a copy of the first bytes of s, to the end of a character, which does
// not hold the rest.
func head(s string, most int) string {
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), most)], ""))
}
