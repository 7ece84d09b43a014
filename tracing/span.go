package tracing

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/servetrace/servetrace/internal/ended"
)

// span is a span of this package. It keeps what our families need itself, and is
// light as long as nobody asks for more. Whoever does, to add an event, a link or
// an attribute of his own, gets a span of the SDK's behind it, with the same ids
// and times, which from then on has all but our attributes: see heavyLocked.
//
// Each of our attributes is set once, under a key of its own. The SDK (v1.47)
// can not know that: it copies each twice, and as the span ends it puts them all
// into a map to find the doubles, and copies the span. That is three quarters of
// what a span with 14 attributes costs, and itself half of the rest.
type span struct {
	// The SDK's span, while there is one; guarded by mu. Every method of it is
	// here too, but for the private ones, which nobody calls.
	sdktrace.ReadWriteSpan

	provider *Provider
	over     atomic.Bool // it has ended: nothing below changes any more

	mu     sync.Mutex
	beside bool // our attributes are in own, and not with the SDK's span
	own    []attribute.KeyValue
	first  int // of own, which were set at the start
	room   int // of own, from the start on; once the span has ended, what of it is does not show
	// is what there is to say of it. Without a span of the SDK's, name, status and
	// children hold always, the rest but the end and the attributes from the start
	// on. With one, they hold at the end.
	is ended.Span
}

// The rooms for attributes that there are. Under Ray's names alone, a proxy's span
// has few and the others some, but for the router's of a call by handle from a
// replica, and under today's a proxy's has many. With both it has more, and grows.
const (
	fewAttributes  = 12
	someAttributes = 16
	manyAttributes = 20
)

var (
	_ sdktrace.ReadWriteSpan = (*span)(nil)
	_ ended.Holder           = (*span)(nil)
)

// attributes gives a list to add to, for set. Nobody else may be at it.
func (s *span) attributes() attributes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return attributes{span: s, naming: s.provider.naming, list: s.own}
}

// set puts the list of a on the span it is for.
func (a *attributes) set() {
	s := a.span
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over.Load():
	case !s.beside:
		s.heavyLocked().SetAttributes(a.list...)
	default:
		if len(s.own) == 0 {
			s.first = len(a.list)
		}
		s.own = a.list
	}
}

// mergedLocked gives our attributes and those that others have set meanwhile, up
// to the limit. What was set last of a key counts.
func (s *span) mergedLocked() (all []attribute.KeyValue, dropped int) {
	if s.ReadWriteSpan == nil {
		return s.own, 0
	}
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

// End implements [trace.Span].
func (s *span) End(opts ...trace.SpanEndOption) {
	end := s.is.StartTime.Add(time.Since(s.is.StartTime)) // by the monotonic clock
	s.mu.Lock()
	if s.over.Load() {
		s.mu.Unlock()
		return
	}
	if len(opts) > 0 {
		if cfg := trace.NewSpanEndConfig(opts...); !cfg.Timestamp().IsZero() {
			end = cfg.Timestamp()
		}
	}
	s.is.EndTime = end
	s.endLocked()
	s.mu.Unlock()
	s.provider.pipeline.OnEnd(s)
}

// endLocked completes is, and lets go of the SDK's span.
func (s *span) endLocked() {
	inner := s.ReadWriteSpan
	if inner != nil {
		inner.End(trace.WithTimestamp(s.is.EndTime)) // from here on nobody changes it; it has no processors to call
		s.is.Name, s.is.Status = inner.Name(), inner.Status()
		s.is.Events, s.is.DroppedEventCount = inner.Events(), inner.DroppedEvents()
		s.is.Links, s.is.DroppedLinkCount = inner.Links(), inner.DroppedLinks()
		s.is.DroppedAttributeCount = inner.DroppedAttributes()
	}
	all, dropped := s.mergedLocked()
	if cap(s.own) == s.room && unsafe.SliceData(all) == unsafe.SliceData(s.own) {
		s.room = 0
	}
	s.is.Attributes = all
	s.is.DroppedAttributeCount += dropped
	s.ReadWriteSpan, s.own = nil, nil
	s.over.Store(true)
}

// Ended implements [ended.Holder].
func (s *span) Ended() *ended.Span {
	if !s.over.Load() {
		return nil
	}
	return &s.is
}

// UnseenHeap is how many bytes an ended span holds that can not be told from what
// its other methods give. Who bounds what spans hold may look for it.
func (s *span) UnseenHeap() int {
	if !s.over.Load() {
		return 0
	}
	return s.room * int(unsafe.Sizeof(attribute.KeyValue{}))
}

// addChild counts a span that has been started under s. The SDK counts for spans
// of its own type only.
func (s *span) addChild() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over.Load() {
		s.is.ChildSpanCount++
	}
}

// What never changes.

// SpanContext implements [trace.Span].
func (s *span) SpanContext() trace.SpanContext { return s.is.SpanContext }

// Parent implements [sdktrace.ReadOnlySpan].
func (s *span) Parent() trace.SpanContext { return s.is.Parent }

// SpanKind implements [sdktrace.ReadOnlySpan].
func (s *span) SpanKind() trace.SpanKind { return s.is.SpanKind }

// StartTime implements [sdktrace.ReadOnlySpan].
func (s *span) StartTime() time.Time { return s.is.StartTime }

// Resource implements [sdktrace.ReadOnlySpan].
func (s *span) Resource() *resource.Resource { return s.is.Resource }

// InstrumentationScope implements [sdktrace.ReadOnlySpan].
func (s *span) InstrumentationScope() instrumentation.Scope { return s.is.InstrumentationScope }

// InstrumentationLibrary implements [sdktrace.ReadOnlySpan].
//
//nolint:staticcheck // the interface has it
func (s *span) InstrumentationLibrary() instrumentation.Library { return s.is.InstrumentationScope }

// TracerProvider implements [trace.Span]: spans that user code makes by it are to
// reach the pipeline as well.
func (s *span) TracerProvider() trace.TracerProvider { return s.provider.sdk }

// unsampled is a span of this package that does not record.
type unsampled struct {
	noop.Span

	provider *Provider
	sc       trace.SpanContext
}

// SpanContext implements [trace.Span].
func (s unsampled) SpanContext() trace.SpanContext { return s.sc }

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
