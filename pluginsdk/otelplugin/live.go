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

// liveSpan is the argument of OnStart: the recorded span, but shown as if it had not
// ended, with everything that processors have added. Processors may keep it and use it
// concurrently. After seal, writes do nothing, as after the end of a span.
type liveSpan struct {
	// The embedded spans implement methods that later versions of OpenTelemetry add: writes
	// do nothing, and reads return the recorded value.
	noop.Span
	sdktrace.ReadOnlySpan

	recorded tracetest.SpanStub

	mu     sync.Mutex
	stub   tracetest.SpanStub // the recorded span; added attributes, events and links come last
	set    sdktrace.Status    // the last status that processors have set
	sealed bool
}

var _ sdktrace.ReadWriteSpan = (*liveSpan)(nil)

func newLiveSpan(stub tracetest.SpanStub) *liveSpan {
	return &liveSpan{ReadOnlySpan: stub.Snapshot(), recorded: stub, stub: stub}
}

// seal ends the time for writes, and returns the resulting span.
func (l *liveSpan) seal() tracetest.SpanStub {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealed = true
	return l.stub
}

// writeTo makes everything that processors have added to a sealed span an edit of s, the
// original span in the batch.
func (l *liveSpan) writeTo(s pluginsdk.Span) {
	if added := l.stub.Attributes[len(l.recorded.Attributes):]; len(added) > 0 {
		s.SetAttributes(added...)
	}
	for _, e := range l.stub.Events[len(l.recorded.Events):] {
		s.AddEvent(e.Name, e.Time, e.Attributes...)
	}
	for _, link := range l.stub.Links[len(l.recorded.Links):] {
		s.AddLink(trace.Link{SpanContext: link.SpanContext, Attributes: link.Attributes})
	}
	if l.stub.Name != l.recorded.Name {
		s.SetName(l.stub.Name)
	}
	if l.stub.Status != l.recorded.Status {
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

// SetAttributes adds attributes with new keys. Recorded attributes keep their values,
// because in the service they were set after OnStart. It copies the slice, because a
// processor may still read a slice that Attributes has returned.
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
			case at >= len(l.recorded.Attributes):
				all[at] = kv
			}
		}
		stub.Attributes = all
	})
}

// AddEvent adds an event. Its default time is the start of the span, because OnStart is
// called then in the service.
func (l *liveSpan) AddEvent(name string, options ...trace.EventOption) {
	l.write(func(stub *tracetest.SpanStub) {
		config := trace.NewEventConfig(append([]trace.EventOption{trace.WithTimestamp(stub.StartTime)}, options...)...)
		stub.Events = append(slices.Clip(stub.Events), sdktrace.Event{
			Name: name, Time: config.Timestamp(), Attributes: slices.Clone(config.Attributes()),
		})
	})
}

// RecordError adds an event "exception", with the same attributes as OpenTelemetry's SDK.
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

// AddLink adds a link, unless it has no span context, no attributes and no tracestate.
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

// SetName replaces the name. In the service, a later call of SetName would replace it
// again. OTLP does not show whether there was such a call.
func (l *liveSpan) SetName(name string) {
	l.write(func(stub *tracetest.SpanStub) { stub.Name = name })
}

// SetStatus follows the order of the SDK: Ok replaces Error, and Error replaces Unset.
// The recorded status counts as set after this call, so it replaces a status with the
// same code.
func (l *liveSpan) SetStatus(code codes.Code, description string) {
	l.write(func(stub *tracetest.SpanStub) {
		if l.set.Code > code {
			return
		}
		l.set = sdktrace.Status{Code: code}
		if code == codes.Error {
			l.set.Description = description
		}
		if code > l.recorded.Status.Code {
			stub.Status = l.set
		}
	})
}

// End does nothing, because the span has already ended in the service.
func (*liveSpan) End(...trace.SpanEndOption) {}

// IsRecording reports whether writes have an effect: it returns true until seal is
// called, after OnStart.
func (l *liveSpan) IsRecording() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.sealed
}

// EndTime returns zero until the span is sealed, as for a running span.
func (l *liveSpan) EndTime() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.sealed {
		return time.Time{}
	}
	return l.stub.EndTime
}

// SpanContext returns the context of the recorded span.
func (l *liveSpan) SpanContext() trace.SpanContext { return l.ReadOnlySpan.SpanContext() }

// Name returns the current name.
func (l *liveSpan) Name() string {
	return read(l, func(s *tracetest.SpanStub) string { return s.Name })
}

// Attributes returns the recorded and the added attributes.
func (l *liveSpan) Attributes() []attribute.KeyValue {
	return read(l, func(s *tracetest.SpanStub) []attribute.KeyValue { return s.Attributes })
}

// Events returns the recorded and the added events.
func (l *liveSpan) Events() []sdktrace.Event {
	return read(l, func(s *tracetest.SpanStub) []sdktrace.Event { return s.Events })
}

// Links returns the recorded and the added links.
func (l *liveSpan) Links() []sdktrace.Link {
	return read(l, func(s *tracetest.SpanStub) []sdktrace.Link { return s.Links })
}

// Status returns the current status.
func (l *liveSpan) Status() sdktrace.Status {
	return read(l, func(s *tracetest.SpanStub) sdktrace.Status { return s.Status })
}

// typeName returns the name of an error's type, with the path of its package, in the form
// of OpenTelemetry's SDK.
func typeName(err error) string {
	t := reflect.TypeOf(err)
	if t.PkgPath() == "" && t.Name() == "" {
		return t.String()
	}
	return fmt.Sprintf("%s.%s", t.PkgPath(), t.Name())
}

// stack returns the caller's stack, with the SDK's length limit.
func stack() string {
	text := make([]byte, 2048)
	return string(text[:runtime.Stack(text, false)])
}
