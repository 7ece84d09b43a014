package tracing

import (
	"context"
	"slices"
	"sync"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// span is a span of this package: the SDK's, with its attributes beside it. All
// else, and what others set on it, is the SDK's affair.
//
// Each of our attributes is set once, under a key of its own. The SDK (v1.47)
// can not know that: it copies each twice, and as the span ends it puts them all
// into a map to find the doubles, and copies the span. That is three quarters of
// what a span with 14 attributes costs. So ours comes from a provider without
// processors, and is given to the pipeline as it is.
type span struct {
	sdktrace.ReadWriteSpan // the SDK's

	provider *Provider
	beside   bool // where our attributes are

	mu       sync.Mutex
	ended    bool
	own      []attribute.KeyValue // with those that others have set, once it has ended
	first    int                  // of own, which were set at the start
	dropped  int                  // of those of others
	unseen   int                  // places for attributes that it holds besides own, once it has ended
	children int
	room     [mostAttributes]attribute.KeyValue
}

// mostAttributes is what the largest span has, the router's. Under two names at
// once it has more, and grows.
const mostAttributes = 16

var _ sdktrace.ReadWriteSpan = (*span)(nil)

// newSpan makes inner, which has just been started under parent, ours.
func (p *Provider) newSpan(parent context.Context, inner sdktrace.ReadWriteSpan) *span {
	s := &span{ReadWriteSpan: inner, provider: p}
	p.pipeline.onStart(parent, s)
	// With limits that ours may pass, or with attributes of a processor that ours
	// may have to replace, the order in which all are set counts.
	s.beside = p.roomy && len(inner.Attributes()) == 0
	return s
}

// attributes gives a list to add to, for set. Nobody else may be at it.
func (s *span) attributes() attributes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		s.own = s.room[:0]
	}
	return attributes{span: s, naming: s.provider.naming, list: s.own}
}

// set puts the list of a on the span it is for.
func (a *attributes) set() {
	s := a.span
	if !s.beside {
		s.SetAttributes(a.list...)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if len(s.own) == 0 {
		s.first = len(a.list)
	}
	s.own = a.list
}

// Attributes implements [sdktrace.ReadOnlySpan].
func (s *span) Attributes() []attribute.KeyValue {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return s.own
	}
	all, _ := s.mergedLocked()
	return slices.Clone(all)
}

// DroppedAttributes implements [sdktrace.ReadOnlySpan].
func (s *span) DroppedAttributes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ReadWriteSpan.DroppedAttributes() + s.dropped
}

// mergedLocked gives our attributes and those that others have set meanwhile, up
// to the limit. What was set last of a key counts.
func (s *span) mergedLocked() (all []attribute.KeyValue, dropped int) {
	theirs := s.ReadWriteSpan.Attributes()
	switch {
	case len(theirs) == 0:
		return s.own, 0
	case len(s.own) == 0:
		return theirs, 0
	}
	all = make([]attribute.KeyValue, len(s.own), len(s.own)+len(theirs))
	copy(all, s.own)
	for _, kv := range theirs {
		switch i := slices.IndexFunc(s.own, func(own attribute.KeyValue) bool { return own.Key == kv.Key }); {
		case i < 0:
			all = append(all, kv)
		case i < s.first:
			all[i] = kv
		}
	}
	if limit := s.provider.attributeLimit; limit >= 0 && len(all) > limit {
		dropped = len(all) - limit
		all = all[:limit]
	}
	return all, dropped
}

// TracerProvider implements [trace.Span]: spans that user code makes by it are to
// reach the pipeline as well.
func (s *span) TracerProvider() trace.TracerProvider { return s.provider.sdk }

// End implements [trace.Span].
func (s *span) End(opts ...trace.SpanEndOption) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ReadWriteSpan.End(opts...) // it has no processors to call
	s.endLocked()
	s.mu.Unlock()
	s.provider.pipeline.OnEnd(s)
}

func (s *span) endLocked() {
	s.ended = true
	all, dropped := s.mergedLocked()
	if len(all) == 0 {
		return
	}
	if &all[0] != &s.room[0] {
		s.unseen = len(s.room)
	}
	if len(s.own) > 0 { // else theirs are all
		s.unseen += cap(s.ReadWriteSpan.Attributes())
	}
	s.own, s.dropped = all, dropped
}

// UnseenHeap is how many bytes an ended span holds that can not be told from what
// its other methods give. Who bounds what spans hold may look for it.
func (s *span) UnseenHeap() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unseen * int(unsafe.Sizeof(attribute.KeyValue{}))
}

// addChild counts a span that has been started under s.
func (s *span) addChild() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.children++
	}
}

// ChildSpanCount implements [sdktrace.ReadOnlySpan]. The SDK counts for spans of
// its own type only.
func (s *span) ChildSpanCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.children
}

// unsampled is a span of this package that does not record.
type unsampled struct {
	trace.Span // the SDK's

	provider *Provider
}

// TracerProvider implements [trace.Span], as that of span. A new trace that user
// code begins by it may well be sampled.
func (s unsampled) TracerProvider() trace.TracerProvider { return s.provider.sdk }

// context is the span's; zero for a nil span, which does not record.
func (s *span) context() trace.SpanContext {
	if s == nil {
		return trace.SpanContext{}
	}
	return s.SpanContext()
}
