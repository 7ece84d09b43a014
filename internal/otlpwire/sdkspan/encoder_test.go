package sdkspan

import (
	"bytes"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/test/spancorpus"
)

func encode(e *Encoder, spans []sdktrace.ReadOnlySpan) []byte {
	for _, s := range spans {
		e.Append(s)
	}
	return e.AppendRequest(nil)
}

// FuzzEncoder compares with the output of the SDK's own exporter for the same spans.
func FuzzEncoder(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, "plain text", uint8(seed))
	}
	f.Add(uint64(1), "bad\xff\xfe\xfftext \xe2\x82 \xed\xa0\x80x \xf0\x9f\x8e", uint8(9))
	f.Fuzz(func(t *testing.T, seed uint64, text string, n uint8) {
		spans := spancorpus.New(seed, text).Spans(1 + int(n)%20)
		var e Encoder
		got := encode(&e, spans)
		if d := diff(expected(t, spans), decode(t, got)); d != "" {
			t.Errorf("request (-want +got):\n%s", d)
		}
		if e.Size() != len(got) {
			t.Errorf("Size() = %d, want %d", e.Size(), len(got))
		}
		if n, _, err := otlpwire.Check(got, len(got)); n != len(spans) || err != nil {
			t.Errorf("Check: %d of %d spans, %v", n, len(spans), err)
		}
		e.Reset()
		if again := encode(&e, spans[:1]); !bytes.Equal(again, encode(&Encoder{}, spans[:1])) {
			t.Errorf("after Reset the encoder gives something else than a new one")
		}
	})
}

// TestEncoderRealSpans takes spans as the SDK makes them.
func TestEncoderRealSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	ctx, parent := provider.Tracer("proxy", trace.WithInstrumentationVersion("1.0")).
		Start(t.Context(), "parent", trace.WithSpanKind(trace.SpanKindServer))
	_, child := provider.Tracer("app", trace.WithInstrumentationAttributes(attribute.Bool("b", true))).
		Start(ctx, "child", trace.WithLinks(trace.Link{SpanContext: parent.SpanContext()}))
	child.SetAttributes(attribute.String("k", "1"), attribute.String("k", "2"), attribute.IntSlice("is", []int{1, 2}))
	child.AddEvent("exception", trace.WithAttributes(attribute.String("exception.type", "E")))
	child.SetStatus(codes.Error, "boom")
	child.End()
	parent.SetStatus(codes.Ok, "")
	parent.End()

	spans := recorder.Ended()
	if len(spans) != 2 {
		t.Fatalf("recorded %d spans, want 2", len(spans))
	}
	if d := diff(expected(t, spans), decode(t, encode(&Encoder{}, spans))); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
}

// TestEncoderLengths takes attributes whose lengths are around the bound of one byte.
func TestEncoderLengths(t *testing.T) {
	text := strings.Repeat("x", 140)
	var spans []sdktrace.ReadOnlySpan
	for key := range 140 {
		for _, value := range []int{0, 1, 120 - key, 121 - key, 122 - key, 123 - key, 124, 125, 126, 127, 128} {
			spans = append(spans, tracetest.SpanStub{Attributes: []attribute.KeyValue{
				attribute.String(text[:key], text[:max(0, value)]),
				attribute.String("\xff"+text[:key], "\xff"),
				attribute.Int(text[:key], value<<30),
			}}.Snapshot())
		}
	}
	if d := diff(expected(t, spans), decode(t, encode(&Encoder{}, spans))); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
}

func TestEncoderGroups(t *testing.T) {
	a := resource.NewSchemaless(attribute.String("service.name", "a"))
	sameAsA := resource.NewSchemaless(attribute.String("service.name", "a"))
	aWithURL := resource.NewWithAttributes("https://example.org", attribute.String("service.name", "a"))
	scope1, scope2 := instrumentation.Scope{Name: "1"}, instrumentation.Scope{Name: "2"}
	var e Encoder
	for _, s := range []tracetest.SpanStub{
		{Name: "a1", Resource: a, InstrumentationScope: scope1},
		{Name: "a2", Resource: a, InstrumentationScope: scope2},
		{Name: "a1 too", Resource: sameAsA, InstrumentationScope: scope1},
		{Name: "other schema", Resource: aWithURL, InstrumentationScope: scope1},
	} {
		e.Append(s.Snapshot())
	}
	var got []string
	for _, rs := range decode(t, e.AppendRequest(nil)).ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			names := []string{rs.SchemaUrl, ss.Scope.Name}
			for _, s := range ss.Spans {
				names = append(names, s.Name)
			}
			got = append(got, strings.Join(names, "|"))
		}
	}
	want := "|1|a1|a1 too\n|2|a2\nhttps://example.org|1|other schema"
	if got := strings.Join(got, "\n"); got != want {
		t.Errorf("groups:\n%s\nwant:\n%s", got, want)
	}
}

func TestEncoderDropLast(t *testing.T) {
	g := spancorpus.New(7, "x")
	var e, want Encoder
	e.DropLast() // nothing to take back
	for i := range 8 {
		s := g.Stub().Snapshot()
		before := e.Size()
		n := e.Append(s)
		if grown := e.Size() - before; grown < n {
			t.Errorf("span %d: the request grew by %d bytes, less than the span's %d", i, grown, n)
		}
		if i%2 == 0 {
			want.Append(s)
			continue
		}
		e.DropLast()
		e.DropLast() // there is only one to take back
		if e.Size() != before {
			t.Errorf("span %d: Size() = %d after DropLast, want %d", i, e.Size(), before)
		}
	}
	if e.Spans() != 4 {
		t.Errorf("Spans() = %d, want 4", e.Spans())
	}
	if got, want := e.AppendRequest(nil), want.AppendRequest(nil); !bytes.Equal(got, want) {
		t.Errorf("requests differ (-want +got):\n%s", diff(decode(t, want), decode(t, got)))
	}
}

func TestEncoderEmpty(t *testing.T) {
	var e Encoder
	e.Append(tracetest.SpanStub{Name: "only"}.Snapshot())
	e.DropLast()
	if got := e.AppendRequest([]byte("x")); string(got) != "x" || e.Size() != 0 || e.Spans() != 0 {
		t.Errorf("an encoder without spans gives %q, size %d, spans %d", got, e.Size(), e.Spans())
	}
}

// TestEncoderForgets: buffers past the caps and scopes past the bound go.
func TestEncoderForgets(t *testing.T) {
	var e Encoder
	e.Append(tracetest.SpanStub{Name: strings.Repeat("x", 2*maxKeptBuffer)}.Snapshot())
	e.Reset()
	if got := cap(e.last.spans); got != 0 {
		t.Errorf("kept a buffer of %d bytes past the cap of %d", got, maxKeptBuffer)
	}
	for i := range 2 * maxIdleScopes {
		scope := instrumentation.Scope{Name: strings.Repeat("s", i+1)}
		e.Append(tracetest.SpanStub{InstrumentationScope: scope}.Snapshot())
	}
	e.Reset() // all were used
	e.Append(tracetest.SpanStub{InstrumentationScope: instrumentation.Scope{Name: "last"}}.Snapshot())
	e.Reset()
	if got := len(e.resources[0].scopes); len(e.resources) != 1 || got != 1 {
		t.Errorf("%d resources, %d scopes are remembered, want 1 and 1", len(e.resources), got)
	}
	if e.Append(tracetest.SpanStub{}.Snapshot()) == 0 {
		t.Errorf("the encoder does not work any more")
	}
}

// TestEncoderAllocates nothing for spans whose attributes are scalars.
func TestEncoderAllocates(t *testing.T) {
	spans := append(serverSpans(t, 63), tracetest.SpanStub{Name: "odd", Attributes: []attribute.KeyValue{
		attribute.String("text", "valid \xff invalid"), attribute.Bool("flag", true), attribute.Float64("number", 1.5), {Key: "none"},
	}}.Snapshot())
	var e Encoder
	dst := encode(&e, spans)
	got := testing.AllocsPerRun(20, func() {
		e.Reset()
		for _, s := range spans {
			e.Append(s)
		}
		if e.Size() == 0 {
			t.Errorf("nothing was encoded")
		}
		dst = e.AppendRequest(dst[:0])
	})
	if got != 0 {
		t.Errorf("%v allocations for 64 spans, want none", got)
	}
}

// TestEncoderBytes follows Size, however much stands around the spans.
func TestEncoderBytes(t *testing.T) {
	long := strings.Repeat("x", 5000)
	var e Encoder
	check := func(what string) {
		t.Helper()
		const around = 16 // bytes for each scope: tag and length of the scope and of its resource
		scopes := 0
		for _, r := range e.resources {
			scopes += r.active
		}
		if d := e.Size() - e.Bytes(); d < 0 || d > around*scopes {
			t.Errorf("%s: Bytes() = %d, Size() = %d, of %d scopes", what, e.Bytes(), e.Size(), scopes)
		}
	}
	for range 2 {
		for i := range 12 {
			e.Append(tracetest.SpanStub{
				Name:     "span",
				Resource: resource.NewSchemaless(attribute.String("r", long), attribute.Int("i", i%2)),
				InstrumentationScope: instrumentation.Scope{
					Name: "scope", Attributes: attribute.NewSet(attribute.String("s", long), attribute.Int("i", i%5)),
				},
			}.Snapshot())
			check("appended")
			if i%3 == 0 {
				e.DropLast()
				check("dropped")
			}
		}
		if e.Bytes() < 5*len(long) {
			t.Errorf("Bytes() = %d", e.Bytes())
		}
		e.Reset()
		check("reset")
	}
}
