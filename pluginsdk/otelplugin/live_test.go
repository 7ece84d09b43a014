package otelplugin_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// inService returns the span that a service ends in which processors start spans. body is
// the work of the service with them.
func inService(t *testing.T, body func(trace.Span), processors ...sdktrace.SpanProcessor) tracetest.SpanStub {
	t.Helper()
	var live tracetest.InMemoryExporter
	var options []sdktrace.TracerProviderOption
	for _, p := range append(processors, sdktrace.NewSimpleSpanProcessor(&live)) {
		options = append(options, sdktrace.WithSpanProcessor(p))
	}
	provider := sdktrace.NewTracerProvider(options...)
	at := time.Unix(100, 0).UTC()
	_, span := provider.Tracer("test").Start(t.Context(), "started as", trace.WithTimestamp(at))
	body(span)
	span.End(trace.WithTimestamp(at.Add(time.Second)))
	spans := live.GetSpans()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	return spans[0]
}

// sameWritten compares the values that a processor can write, in any order.
var sameWritten = cmp.Options{sameSpan, cmp.Transformer("written", func(s tracetest.SpanStub) map[string]any {
	attributes := map[attribute.Key]attribute.Value{}
	for _, kv := range s.Attributes {
		attributes[kv.Key] = kv.Value
	}
	events := map[string][]attribute.KeyValue{}
	for _, e := range s.Events {
		events[e.Name] = e.Attributes
	}
	links := map[trace.SpanID][]attribute.KeyValue{}
	for _, l := range s.Links {
		links[l.SpanContext.SpanID()] = l.Attributes
	}
	return map[string]any{"name": s.Name, "status": s.Status, "attributes": attributes, "events": events, "links": links}
})}

// TestReplayIsAsInTheService compares a processor in the service with the same
// one in a plugin: the exporter sees the same span.
func TestReplayIsAsInTheService(t *testing.T) {
	link := func(id byte) trace.Link {
		return trace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{id}, SpanID: trace.SpanID{id}}),
			Attributes:  []attribute.KeyValue{attribute.Int("a", 1), attribute.Int("a", 2)},
		}
	}
	starts := map[string]func(sdktrace.ReadWriteSpan){
		"nothing": func(sdktrace.ReadWriteSpan) {},
		"attributes": func(s sdktrace.ReadWriteSpan) {
			s.SetAttributes(attribute.String("tenant", "p"), attribute.String("twice", "1"), attribute.String("twice", "2"))
			s.SetAttributes(attribute.String("again", "1"))
			s.SetAttributes(attribute.String("again", "2"), attribute.KeyValue{})
			s.SetAttributes()
		},
		"events": func(s sdktrace.ReadWriteSpan) {
			s.AddEvent("mark", trace.WithAttributes(attribute.Int("a", 1), attribute.Int("a", 2), attribute.KeyValue{}))
			s.RecordError(errors.New("boom"), trace.WithAttributes(attribute.Int("a", 1)))
			s.RecordError(nil)
		},
		"links": func(s sdktrace.ReadWriteSpan) {
			s.AddLink(link(7))
			s.AddLink(trace.Link{})
		},
		"unset": func(s sdktrace.ReadWriteSpan) { s.SetStatus(codes.Unset, "text") },
		"error": func(s sdktrace.ReadWriteSpan) { s.SetStatus(codes.Error, "by processor") },
		"ok":    func(s sdktrace.ReadWriteSpan) { s.SetStatus(codes.Ok, "text") },
		"two errors": func(s sdktrace.ReadWriteSpan) {
			s.SetStatus(codes.Error, "first")
			s.SetStatus(codes.Error, "second")
			s.SetStatus(codes.Unset, "")
		},
		"ok, then error": func(s sdktrace.ReadWriteSpan) {
			s.SetStatus(codes.Ok, "")
			s.SetStatus(codes.Error, "late")
		},
	}
	bodies := map[string]func(trace.Span){
		"nothing":    func(trace.Span) {},
		"attributes": func(s trace.Span) { s.SetAttributes(attribute.String("tenant", "service"), attribute.Int("own", 1)) },
		"events": func(s trace.Span) {
			s.AddEvent("own", trace.WithAttributes(attribute.Int("b", 1)))
			s.AddLink(link(8))
		},
		"error": func(s trace.Span) { s.SetStatus(codes.Error, "by service") },
		"ok":    func(s trace.Span) { s.SetStatus(codes.Ok, "") },
	}
	for startName, start := range starts {
		for bodyName, body := range bodies {
			t.Run(startName+"/"+bodyName, func(t *testing.T) {
				processor := hooks{start: func(_ context.Context, s sdktrace.ReadWriteSpan) { start(s) }}
				want := inService(t, body, processor)
				recorded := inService(t, body)

				batch := batchOf(recorded.Snapshot())
				var atEnd tracetest.SpanStub
				watcher := hooks{end: func(s sdktrace.ReadOnlySpan) { atEnd = tracetest.SpanStubFromReadOnlySpan(s) }}
				if err := enriched(t, batch, processor, watcher); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, atEnd, sameWritten); diff != "" {
					t.Errorf("in OnEnd (-service +plugin):\n%s", diff)
				}
				if diff := cmp.Diff(want, decoded(t, batch)[0], sameWritten); diff != "" {
					t.Errorf("in the batch (-service +plugin):\n%s", diff)
				}
			})
		}
	}
}

// TestSetName: a new name counts, regardless of the former one.
func TestSetName(t *testing.T) {
	batch := numbered(1)
	rename := hooks{start: func(_ context.Context, s sdktrace.ReadWriteSpan) { s.SetName(s.Name() + "!") }}
	if err := enriched(t, batch, rename, rename); err != nil {
		t.Fatal(err)
	}
	if got := decoded(t, batch)[0].Name; got != "span!!" {
		t.Errorf("name is %q, want %q", got, "span!!")
	}
}

// TestOnStartSees: the values that a processor reads in OnStart, and later from the span
// that it has kept.
func TestOnStartSees(t *testing.T) {
	full := fullStub(t)
	var kept sdktrace.ReadWriteSpan
	var before []attribute.KeyValue
	watcher := hooks{
		start: func(ctx context.Context, s sdktrace.ReadWriteSpan) {
			kept = s
			if got := trace.SpanContextFromContext(ctx); !got.Equal(full.Parent) || !got.IsRemote() {
				t.Errorf("OnStart's context has %v, want the parent %v", got, full.Parent)
			}
			if members := baggage.FromContext(ctx).Members(); len(members) != 0 {
				t.Errorf("OnStart's context has baggage %v", members)
			}
			if !s.IsRecording() || !s.EndTime().IsZero() {
				t.Errorf("in OnStart the span is recording: %v, and ended at %v", s.IsRecording(), s.EndTime())
			}
			s.End()
			if _, child := s.TracerProvider().Tracer("x").Start(ctx, "child"); child.IsRecording() {
				t.Error("the span's provider makes spans that record")
			}
			got := tracetest.SpanStubFromReadOnlySpan(s)
			got.EndTime = full.EndTime
			if diff := cmp.Diff(full, got, sameSpan); diff != "" {
				t.Errorf("in OnStart (-want +got):\n%s", diff)
			}
			before = s.Attributes()
			s.SetAttributes(attribute.Int("added", 1))
			s.SetAttributes(attribute.Int("added", 2))
		},
		end: func(s sdktrace.ReadOnlySpan) {
			kept.SetAttributes(attribute.Int("too late", 1))
			kept.SetName("too late")
			kept.SetStatus(codes.Ok, "")
			kept.AddEvent("too late")
			kept.RecordError(errors.New("too late"))
			kept.AddLink(trace.Link{Attributes: []attribute.KeyValue{attribute.Int("too late", 1)}})
			want := full
			want.Attributes = append(everyValue(), attribute.Int("added", 2))
			for _, seen := range []sdktrace.ReadOnlySpan{s, kept} {
				if diff := cmp.Diff(want, tracetest.SpanStubFromReadOnlySpan(seen), sameSpan); diff != "" {
					t.Errorf("in OnEnd (-want +got):\n%s", diff)
				}
			}
			if kept.IsRecording() {
				t.Error("in OnEnd the span is recording")
			}
		},
	}
	batch := batchOf(full.Snapshot())
	if err := enriched(t, batch, watcher); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(everyValue(), before, sameSpan); diff != "" {
		t.Errorf("attributes read before a write have changed (-want +got):\n%s", diff)
	}
}

// TestEventTimes: an event without a time is as old as the start that OnStart
// stands for.
func TestEventTimes(t *testing.T) {
	batch := numbered(1)
	own := time.Unix(1, 500).UTC()
	if err := enriched(t, batch, hooks{start: func(_ context.Context, s sdktrace.ReadWriteSpan) {
		s.AddEvent("at start")
		s.AddEvent("later", trace.WithTimestamp(own))
		s.RecordError(errors.New("x"), trace.WithStackTrace(true))
	}}); err != nil {
		t.Fatal(err)
	}
	got := decoded(t, batch)[0]
	if e := got.Events[0]; !e.Time.Equal(got.StartTime) {
		t.Errorf("event without a time is at %v, want %v", e.Time, got.StartTime)
	}
	if e := got.Events[1]; !e.Time.Equal(own) {
		t.Errorf("event with a time is at %v, want %v", e.Time, own)
	}
	exception := got.Events[2]
	stack := exception.Attributes[len(exception.Attributes)-1]
	if stack.Key != "exception.stacktrace" || !strings.Contains(stack.Value.AsString(), "TestEventTimes") {
		t.Errorf("last attribute of the exception is %v, want its stack", stack)
	}
}

// TestRootHasNoParent: the context in a root's OnStart.
func TestRootHasNoParent(t *testing.T) {
	err := enriched(t, numbered(1), hooks{start: func(ctx context.Context, _ sdktrace.ReadWriteSpan) {
		if got := trace.SpanContextFromContext(ctx); got.IsValid() {
			t.Errorf("OnStart's context has %v, want none", got)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLiveSpanIsConcurrentSafe: a processor may keep the span and use it from
// goroutines of its own, beyond its end.
func TestLiveSpanIsConcurrentSafe(t *testing.T) {
	var working sync.WaitGroup
	defer working.Wait()
	busy := hooks{start: func(_ context.Context, s sdktrace.ReadWriteSpan) {
		for range 2 {
			working.Go(func() {
				for range 20 {
					s.SetAttributes(attribute.Int("a", len(s.Attributes())))
					s.AddEvent("e", trace.WithTimestamp(s.EndTime()))
					s.AddLink(trace.Link{Attributes: s.Attributes()})
					s.SetStatus(s.Status().Code+1, "")
					s.SetName(s.Name() + "x")
					_, _ = s.Events(), s.Links()
				}
			})
		}
	}}
	if err := enriched(t, numbered(50), busy); err != nil {
		t.Fatal(err)
	}
}

// TestEditsOfEarlierProcessors reach OpenTelemetry's.
func TestEditsOfEarlierProcessors(t *testing.T) {
	batch := numbered(2)
	for span := range batch.Spans() {
		if span.SpanID() == (trace.SpanID{1}) {
			span.Drop()
		}
		span.SetAttributes(attribute.Bool("early", true))
		span.Resource().SetAttributes(attribute.Bool("early", true))
	}
	seen := 0
	if err := enriched(t, batch, hooks{end: func(s sdktrace.ReadOnlySpan) {
		seen++
		if len(s.Attributes()) != 1 || s.Resource().Len() != 1 {
			t.Errorf("span has %v and resource %v, want early in both", s.Attributes(), s.Resource())
		}
	}}); err != nil {
		t.Fatal(err)
	}
	if seen != 1 || batch.Len() != 1 {
		t.Errorf("%d spans seen, %d in the batch, want one", seen, batch.Len())
	}
}

// TestUntouchedBatchKeepsItsBytes: processors that only watch cost no encoding.
func TestUntouchedBatchKeepsItsBytes(t *testing.T) {
	encoded := numbered(3).Bytes()
	batch := pluginsdk.NewBatch(encoded)
	keep := hooks{start: func(_ context.Context, s sdktrace.ReadWriteSpan) {
		s.SetName(s.Name())
		s.SetStatus(codes.Unset, "")
	}}
	if err := enriched(t, batch, keep); err != nil {
		t.Fatal(err)
	}
	if got := batch.Bytes(); &got[0] != &encoded[0] {
		t.Error("the batch was encoded anew")
	}
}
