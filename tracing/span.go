package tracing

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
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
//
// Ours are kept in OTLP's bytes from the moment they are set. A list of them was
// twice as large, and the drain read it on another processor, a cache line for
// each: half of what a span cost there. Most of them are those of all spans of its
// shape and of its request, and are there once for all. Its own are behind it.
type span struct {
	// The SDK's span, while there is one; guarded by mu. Every method of it is
	// here too, but for the private ones, which nobody calls.
	sdktrace.ReadWriteSpan

	provider *Provider
	epoch    int64 // the time of day, for its trace, when Clock was 0: see time
	// children is how many spans were started under it, and below zero once it has
	// ended: from there on neither that nor what is below changes.
	children atomic.Int32
	owned    bool // is has a Like of its own, or had one; guarded by mu

	mu     sync.Mutex
	first  uint32 // bytes of its own attributes, which were set at the start
	beside bool   // our attributes are in is, and not with the SDK's span
	odd    bool   // some text among them is not valid UTF-8
	room   uint16 // bytes behind the span, for its own attributes; needs no mu
	// is what there is to say of it. Without a span of the SDK's, name, status and
	// children hold always, the rest but the end and the attributes from the start
	// on. With one, they hold at the end.
	is ended.Light
}

var (
	_ sdktrace.ReadWriteSpan = (*span)(nil)
	_ ended.Holder           = (*span)(nil)
)

// begin gathers what a span that has just been started has from there on, for
// [attributes.begin]. Nobody else has got to its room yet.
func (s *span) begin() attributes {
	return attributes{span: s, naming: s.provider.naming, all: s.empty()}
}

// begin puts on the span what was gathered, and its name. With limits that ours may
// pass, or with attributes of a processor that ours may have to replace, the order
// in which all are set counts.
func (a *attributes) begin() {
	s := a.span
	if len(s.provider.pipeline.starts) == 0 && s.beside && s.ReadWriteSpan == nil {
		// Nobody else has got to the span at all.
		s.first = uint32(len(a.all))
		a.keep()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beside && len(s.theirsLocked()) > 0 {
		s.beside = false
	}
	if s.ReadWriteSpan != nil || !s.beside {
		s.setNameLocked(a.like.Name)
	}
	s.first = uint32(len(a.all))
	a.setLocked()
}

// attributes gives what there is to add to, for set or end, and until one of them
// keeps everybody else from the span.
func (s *span) attributes() attributes {
	s.mu.Lock()
	return attributes{
		span: s, naming: s.provider.naming, like: s.is.Like, id: s.is.Call, task: s.is.Task, all: s.is.Attributes, odd: s.odd,
	}
}

// set puts what was gathered in a on the span it is for.
func (a *attributes) set() {
	a.setLocked()
	a.span.mu.Unlock()
}

// end is set, SetStatus without a description, and End at the time at.
func (a *attributes) end(code codes.Code, at int64) {
	a.setLocked()
	if code != codes.Unset {
		a.span.setStatusLocked(code, "")
	}
	a.span.endLocked(at)
}

func (a *attributes) setLocked() {
	s := a.span
	switch {
	case s.over():
	case !s.beside:
		set := ended.Light{Like: a.like, Call: a.id, Task: a.task, Attributes: a.all, Whole: a.whole}
		s.heavyLocked().SetAttributes(set.List()...)
	default:
		a.keep()
	}
}

func (a *attributes) keep() {
	s := a.span
	s.is.Like, s.is.Call, s.is.Task, s.is.Whole = a.like, a.id, a.task, a.whole
	s.is.Attributes, s.odd = a.all, a.odd
	s.is.Bytes += uint32(a.bytes)
}

// listLocked gives our attributes and those that others have set meanwhile, up to
// the limit. What was set last of a key counts.
func (s *span) listLocked() (all []attribute.KeyValue, dropped int) {
	own, theirs := s.is.List(), s.theirsLocked()
	if len(own) == 0 {
		return slices.Clone(theirs), 0
	}
	all = slices.Grow(slices.Clip(own), len(theirs))
	for _, kv := range theirs {
		switch i := slices.IndexFunc(own, func(own attribute.KeyValue) bool { return own.Key == kv.Key }); {
		case i < 0:
			all = append(all, kv)
		case !s.fromEndLocked(i):
			all[i] = kv
		}
	}
	if limit := s.provider.attributeLimit; limit >= 0 && len(all) > limit {
		dropped = len(all) - limit
		all = all[:limit]
	}
	return all, dropped
}

// fromEndLocked tells whether that attribute of is.List was set at the end.
func (s *span) fromEndLocked(i int) bool {
	start := s.is
	start.Attributes = start.Attributes[:s.first]
	all := len(start.List())
	start.Whole = false
	shared := ended.Light{Like: &ended.Like{Start: start.Like.Start}, Call: start.Call}
	n := len(shared.List())
	return i >= all || i >= n && i < n+all-len(start.List())
}

// theirsLocked are the attributes that the SDK's span has.
func (s *span) theirsLocked() []attribute.KeyValue {
	if s.ReadWriteSpan == nil {
		return nil
	}
	return s.ReadWriteSpan.Attributes()
}

// End implements [trace.Span].
func (s *span) End(opts ...trace.SpanEndOption) {
	end := s.time(0)
	if len(opts) > 0 {
		if cfg := trace.NewSpanEndConfig(opts...); !cfg.Timestamp().IsZero() {
			end = cfg.Timestamp().UnixNano()
		}
	}
	s.endAt(end)
}

// endAt is End at the time at.
func (s *span) endAt(at int64) {
	s.mu.Lock()
	s.endLocked(at)
}

// endLocked ends the span unless it has ended, unlocks it, and tells of it.
func (s *span) endLocked(end int64) {
	if s.over() {
		s.mu.Unlock()
		return
	}
	s.is.End = end
	s.completeLocked()
	s.mu.Unlock()
	s.provider.pipeline.OnEnd(s)
}

// completeLocked completes is, and lets go of the SDK's span.
func (s *span) completeLocked() {
	if s.ReadWriteSpan != nil || s.odd {
		s.is.More = s.moreLocked()
	}
	if cap(s.is.Attributes) > int(s.room) {
		s.is.Bytes += uint32(cap(s.is.Attributes)) // they have outgrown it
	}
	s.ReadWriteSpan = nil
	s.children.Or(math.MinInt32) // it has ended
}

// moreLocked ends the SDK's span, and gives what is has none of itself.
func (s *span) moreLocked() *ended.More {
	more := &ended.More{Description: s.is.More.Get().Description}
	if inner := s.ReadWriteSpan; inner != nil {
		inner.End(trace.WithTimestamp(time.Unix(0, s.is.End))) // from here on nobody changes it; it has no processors to call
		s.nameLocked(inner.Name())
		s.is.Code, more.Description = narrow(inner.Status().Code), inner.Status().Description
		more.Events, more.DroppedEventCount = inner.Events(), inner.DroppedEvents()
		more.Links, more.DroppedLinkCount = inner.Links(), inner.DroppedLinks()
		more.DroppedAttributeCount = inner.DroppedAttributes()
	}
	if s.odd || len(s.theirsLocked()) > 0 {
		all, dropped := s.listLocked()
		more.Attributes = all
		more.DroppedAttributeCount += dropped
		bare := ended.Like{Origin: s.is.Like.Origin}
		s.likeLocked(bare.Named(s.is.Like.Name))
		s.is.Call, s.is.Task, s.is.Whole, s.is.Attributes = nil, 0, false, nil
	}
	return more
}

// Ended implements [ended.Holder].
func (s *span) Ended() *ended.Light {
	if !s.over() {
		return nil
	}
	return &s.is
}

// addChild counts a span that has been started under s. The SDK counts for spans
// of its own type only.
func (s *span) addChild() {
	for n := s.children.Load(); n >= 0 && n < math.MaxInt32 && !s.children.CompareAndSwap(n, n+1); {
		n = s.children.Load()
	}
}

// over tells whether it has ended.
func (s *span) over() bool { return s.children.Load() < 0 }

// What never changes.

// SpanContext implements [trace.Span].
func (s *span) SpanContext() trace.SpanContext { return s.is.SpanContext() }

// Parent implements [sdktrace.ReadOnlySpan].
func (s *span) Parent() trace.SpanContext { return s.is.Parent() }

// SpanKind implements [sdktrace.ReadOnlySpan].
func (s *span) SpanKind() trace.SpanKind { return trace.SpanKind(s.is.Kind) }

// StartTime implements [sdktrace.ReadOnlySpan].
func (s *span) StartTime() time.Time { return time.Unix(0, s.is.Start) }

// Resource implements [sdktrace.ReadOnlySpan].
func (s *span) Resource() *resource.Resource { return s.provider.origin.Resource }

// InstrumentationScope implements [sdktrace.ReadOnlySpan].
func (s *span) InstrumentationScope() instrumentation.Scope { return s.provider.origin.Scope }

// InstrumentationLibrary implements [sdktrace.ReadOnlySpan].
//
//nolint:staticcheck // the interface has it
func (s *span) InstrumentationLibrary() instrumentation.Library { return s.provider.origin.Scope }

// TracerProvider implements [trace.Span]: spans that user code makes by it are to
// reach the pipeline as well.
func (s *span) TracerProvider() trace.TracerProvider { return s.provider.sdk }

// unsampled is a span of this package that does not record. Its ids are drawn for the
// first who asks for them: in most requests nobody does.
type unsampled struct {
	*unrecorded

	ids atomic.Pointer[trace.SpanContext] // nil: not drawn yet; then it is the root of a trace
}

// SpanContext implements [trace.Span].
func (s *unsampled) SpanContext() trace.SpanContext {
	if sc := s.ids.Load(); sc != nil {
		return *sc
	}
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: drawTraceID(), SpanID: drawSpanID()})
	if !s.ids.CompareAndSwap(nil, &sc) { // two asked at once: the first one's count
		return *s.ids.Load()
	}
	return sc
}

// unrecorded is what all unsampled spans of a provider have in common.
type unrecorded struct {
	noop.Span

	provider *Provider
}

// TracerProvider implements [trace.Span], as that of span. A new trace that user
// code begins by it may well be sampled.
func (s *unrecorded) TracerProvider() trace.TracerProvider { return s.provider.sdk }

// context is the span's; zero for a nil span, which does not record.
func (s *span) context() trace.SpanContext {
	if s == nil {
		return trace.SpanContext{}
	}
	return s.SpanContext()
}
