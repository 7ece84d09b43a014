package otelplugin

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/servetrace/servetrace/pluginsdk"
)

// liveSpan is what OnStart is given: the recorded span, as if it had not ended,
// and what processors add to it. They may keep it, and use it from several
// goroutines; once it is sealed, writes do nothing, as after a span's end.
type liveSpan struct {
	// What a later API or SDK adds to the interfaces does nothing, or is answered
	// by a snapshot of what was recorded.
	noop.Span
	sdktrace.ReadOnlySpan

	// How much of stub was recorded; what follows was added.
	attributes, events, links int
	recordedStatus            sdktrace.Status
	recordedName              string

	mu     sync.Mutex
	stub   tracetest.SpanStub
	set    sdktrace.Status // by processors
	sealed bool
}

var _ sdktrace.ReadWriteSpan = (*liveSpan)(nil)

func newLiveSpan(stub tracetest.SpanStub) *liveSpan {
	return &liveSpan{
		ReadOnlySpan:   stub.Snapshot(),
		attributes:     len(stub.Attributes),
		events:         len(stub.Events),
		links:          len(stub.Links),
		recordedStatus: stub.Status,
		recordedName:   stub.Name,
		stub:           stub,
	}
}

// seal ends the span and gives what became of it. No write comes after.
func (l *liveSpan) seal() tracetest.SpanStub {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealed = true
	return l.stub
}

// writeTo makes of a sealed span's additions edits of the span that it was made
// of.
func (l *liveSpan) writeTo(s pluginsdk.Span) {
	if added := l.stub.Attributes[l.attributes:]; len(added) > 0 {
		s.SetAttributes(added...)
	}
	for _, e := range l.stub.Events[l.events:] {
		s.AddEvent(e.Name, e.Time, e.Attributes...)
	}
	for _, link := range l.stub.Links[l.links:] {
		s.AddLink(trace.Link{SpanContext: link.SpanContext, Attributes: link.Attributes})
	}
	if l.stub.Name != l.recordedName {
		s.SetName(l.stub.Name)
	}
	if l.stub.Status != l.recordedStatus {
		s.SetStatus(l.stub.Status.Code, l.stub.Status.Description)
	}
}

// write calls change unless the span is sealed.
func (l *liveSpan) write(change func(*tracetest.SpanStub)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.sealed {
		change(&l.stub)
	}
}

func read[T any](l *liveSpan, field func(*tracetest.SpanStub) T) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return field(&l.stub)
}

// SetAttributes adds those whose keys were not recorded: what the service set
// came after OnStart. Slices that a reader has got do not change.
func (l *liveSpan) SetAttributes(kvs ...attribute.KeyValue) {
	l.write(func(stub *tracetest.SpanStub) {
		all := slices.Clone(stub.Attributes)
		for _, kv := range kvs {
			if !kv.Valid() {
				continue
			}
			at := slices.IndexFunc(all, func(have attribute.KeyValue) bool { return have.Key == kv.Key })
			switch {
			case at < 0:
				all = append(all, kv)
			case at >= l.attributes:
				all[at] = kv
			}
		}
		stub.Attributes = all
	})
}

// AddEvent adds an event at the span's start, if options say no other time:
// that is the moment for which OnStart is called.
func (l *liveSpan) AddEvent(name string, options ...trace.EventOption) {
	l.write(func(stub *tracetest.SpanStub) {
		config := trace.NewEventConfig(append([]trace.EventOption{trace.WithTimestamp(stub.StartTime)}, options...)...)
		stub.Events = append(slices.Clip(stub.Events), sdktrace.Event{
			Name: name, Time: config.Timestamp(), Attributes: slices.Clone(config.Attributes()),
		})
	})
}

// RecordError adds an exception event, in the SDK's form.
func (l *liveSpan) RecordError(err error, options ...trace.EventOption) {
	if err == nil || !l.IsRecording() {
		return
	}
	attributes := []attribute.KeyValue{
		attribute.String("exception.type", typeName(err)),
		attribute.String("exception.message", err.Error()),
	}
	if config := trace.NewEventConfig(options...); config.StackTrace() {
		attributes = append(attributes, attribute.String("exception.stacktrace", stack()))
	}
	l.AddEvent("exception", append(slices.Clip(options), trace.WithAttributes(attributes...))...)
}

// AddLink adds a link, unless it says nothing at all.
func (l *liveSpan) AddLink(link trace.Link) {
	if !link.SpanContext.IsValid() && len(link.Attributes) == 0 && link.SpanContext.TraceState().Len() == 0 {
		return
	}
	l.write(func(stub *tracetest.SpanStub) {
		stub.Links = append(slices.Clip(stub.Links), sdktrace.Link{
			SpanContext: link.SpanContext, Attributes: slices.Clone(link.Attributes),
		})
	})
}

// SetName replaces the name: it can not be known whether the recorded one was
// given at the start, where OnStart overrides it, or later.
func (l *liveSpan) SetName(name string) {
	l.write(func(stub *tracetest.SpanStub) { stub.Name = name })
}

// SetStatus goes by the SDK's order, Ok over Error over Unset, as if the
// recorded status had been set after it.
func (l *liveSpan) SetStatus(code codes.Code, description string) {
	l.write(func(stub *tracetest.SpanStub) {
		if l.set.Code > code {
			return
		}
		l.set = sdktrace.Status{Code: code}
		if code == codes.Error {
			l.set.Description = description
		}
		if code > l.recordedStatus.Code {
			stub.Status = l.set
		}
	})
}

// End does nothing: the span has ended in the service.
func (*liveSpan) End(...trace.SpanEndOption) {}

// IsRecording tells whether OnStart is still going on.
func (l *liveSpan) IsRecording() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.sealed
}

// EndTime is zero until the span is sealed, as for a span that runs.
func (l *liveSpan) EndTime() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.sealed {
		return time.Time{}
	}
	return l.stub.EndTime
}

// SpanContext is that of the recorded span.
func (l *liveSpan) SpanContext() trace.SpanContext { return l.ReadOnlySpan.SpanContext() }

// Name is the name as it stands.
func (l *liveSpan) Name() string {
	return read(l, func(s *tracetest.SpanStub) string { return s.Name })
}

// Attributes are the recorded ones and those added.
func (l *liveSpan) Attributes() []attribute.KeyValue {
	return read(l, func(s *tracetest.SpanStub) []attribute.KeyValue { return s.Attributes })
}

// Events are the recorded ones and those added.
func (l *liveSpan) Events() []sdktrace.Event {
	return read(l, func(s *tracetest.SpanStub) []sdktrace.Event { return s.Events })
}

// Links are the recorded ones and those added.
func (l *liveSpan) Links() []sdktrace.Link {
	return read(l, func(s *tracetest.SpanStub) []sdktrace.Link { return s.Links })
}

// Status is the status as it stands.
func (l *liveSpan) Status() sdktrace.Status {
	return read(l, func(s *tracetest.SpanStub) sdktrace.Status { return s.Status })
}

// typeName is the type of an error as the SDK writes it: with its package's
// whole path.
func typeName(err error) string {
	t := reflect.TypeOf(err)
	if t.PkgPath() == "" && t.Name() == "" {
		return t.String()
	}
	return fmt.Sprintf("%s.%s", t.PkgPath(), t.Name())
}

// stack is that of the caller, as long as the SDK has it.
func stack() string {
	text := make([]byte, 2048)
	return string(text[:runtime.Stack(text, false)])
}
