package tracing

import (
	"context"
	"math"
	"time"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/servetrace/servetrace/internal/ended"
)

// heavyLocked gives the SDK's span, and makes it first where there is none. Not
// for a span that has ended.
func (s *span) heavyLocked() trace.Span {
	if s.ReadWriteSpan == nil {
		sc := s.is.SpanContext()
		result := sdktrace.SamplingResult{Decision: sdktrace.RecordOnly, Tracestate: sc.TraceState()}
		if sc.IsSampled() {
			result.Decision = sdktrace.RecordAndSample
		}
		parent := trace.ContextWithSpanContext(context.Background(), s.is.Parent())
		s.beginLocked(decided{parent, sc, result}, nil)
	}
	return s.ReadWriteSpan
}

// heavy is heavyLocked for what may call foreign code, which must not be done
// under mu. That of a span that has ended does nothing.
func (s *span) heavy() trace.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over() {
		return noop.Span{}
	}
	return s.heavyLocked()
}

// What others set, which is the SDK's affair.

// SetAttributes implements [trace.Span].
func (s *span) SetAttributes(kvs ...attribute.KeyValue) {
	if len(kvs) > 0 {
		s.heavy().SetAttributes(kvs...)
	}
}

// AddEvent implements [trace.Span].
func (s *span) AddEvent(name string, opts ...trace.EventOption) { s.heavy().AddEvent(name, opts...) }

// AddLink implements [trace.Span].
func (s *span) AddLink(link trace.Link) { s.heavy().AddLink(link) }

// RecordError implements [trace.Span].
func (s *span) RecordError(err error, opts ...trace.EventOption) {
	if err != nil {
		s.heavy().RecordError(err, opts...)
	}
}

// What ours need as well.

// SetName implements [trace.Span].
func (s *span) SetName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setNameLocked(name)
}

func (s *span) setNameLocked(name string) {
	switch {
	case s.over():
	case s.ReadWriteSpan != nil:
		s.ReadWriteSpan.SetName(name)
	default:
		s.nameLocked(name)
	}
}

// nameLocked makes it the name in is.
func (s *span) nameLocked(name string) {
	if s.is.Like.Name != name {
		s.likeLocked(s.is.Like.Named(name))
	}
}

// likeLocked makes it what s is like, which no other span is. One at a time is held,
// however often that is done.
func (s *span) likeLocked(like *ended.Like) {
	if !s.owned {
		s.owned = true
		s.is.Bytes += uint32(unsafe.Sizeof(*like))
	}
	s.is.Like = like
}

// SetStatus implements [trace.Span]: a code never goes down, and only an error has
// a description.
func (s *span) SetStatus(code codes.Code, description string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setStatusLocked(code, description)
}

func (s *span) setStatusLocked(code codes.Code, description string) {
	switch {
	case s.over():
	case s.ReadWriteSpan != nil:
		s.ReadWriteSpan.SetStatus(code, description)
	case code >= codes.Code(s.is.Code):
		s.is.Code, s.is.More = narrow(code), nil
		if code == codes.Error && description != "" {
			s.is.More = &ended.More{Description: description}
		}
	}
}

// narrow is for ended.Light: a code that is none of the API's stays none.
func narrow(code codes.Code) uint8 { return uint8(min(code, math.MaxUint8)) }

// What can be seen of it, while it lasts and afterwards.

// IsRecording implements [trace.Span].
func (s *span) IsRecording() bool { return !s.over() }

// Name implements [sdktrace.ReadOnlySpan].
func (s *span) Name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ReadWriteSpan != nil {
		return s.ReadWriteSpan.Name()
	}
	return s.is.Like.Name
}

// Status implements [sdktrace.ReadOnlySpan].
func (s *span) Status() sdktrace.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ReadWriteSpan != nil {
		return s.ReadWriteSpan.Status()
	}
	return s.is.Status()
}

// EndTime implements [sdktrace.ReadOnlySpan].
func (s *span) EndTime() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over() {
		return time.Time{}
	}
	return time.Unix(0, s.is.End)
}

// Attributes implements [sdktrace.ReadOnlySpan].
func (s *span) Attributes() []attribute.KeyValue {
	s.mu.Lock()
	defer s.mu.Unlock()
	if more := s.is.More; more != nil && more.Attributes != nil {
		return more.Attributes
	}
	all, _ := s.listLocked()
	return all
}

// DroppedAttributes implements [sdktrace.ReadOnlySpan].
func (s *span) DroppedAttributes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ReadWriteSpan != nil {
		return s.ReadWriteSpan.DroppedAttributes()
	}
	return s.is.More.Get().DroppedAttributeCount
}

// Events implements [sdktrace.ReadOnlySpan].
func (s *span) Events() []sdktrace.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ReadWriteSpan != nil {
		return s.ReadWriteSpan.Events()
	}
	return append([]sdktrace.Event{}, s.is.More.Get().Events...)
}

// DroppedEvents implements [sdktrace.ReadOnlySpan].
func (s *span) DroppedEvents() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ReadWriteSpan != nil {
		return s.ReadWriteSpan.DroppedEvents()
	}
	return s.is.More.Get().DroppedEventCount
}

// Links implements [sdktrace.ReadOnlySpan].
func (s *span) Links() []sdktrace.Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ReadWriteSpan != nil {
		return s.ReadWriteSpan.Links()
	}
	return append([]sdktrace.Link{}, s.is.More.Get().Links...)
}

// DroppedLinks implements [sdktrace.ReadOnlySpan].
func (s *span) DroppedLinks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ReadWriteSpan != nil {
		return s.ReadWriteSpan.DroppedLinks()
	}
	return s.is.More.Get().DroppedLinkCount
}

// ChildSpanCount implements [sdktrace.ReadOnlySpan].
func (s *span) ChildSpanCount() int {
	return int(s.children.Load() & math.MaxInt32)
}
