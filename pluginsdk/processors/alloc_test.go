package processors

import (
	"strings"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
)

// servedSpans returns n spans of the runtime, without a secret.
func servedSpans(tb testing.TB, n int) []byte {
	tb.Helper()
	spans := make([]*tracepb.Span, n)
	for i := range spans {
		spans[i] = &tracepb.Span{
			TraceId: []byte("0123456789abcdef"), SpanId: []byte("01234567"), ParentSpanId: []byte("abcdefgh"), Flags: 0x101,
			Name: "replica_handle_request HelloWorld __call__", Kind: tracepb.Span_SPAN_KIND_SERVER,
			StartTimeUnixNano: 1_700_000_000_000_000_000, EndTimeUnixNano: 1_700_000_000_250_000_000,
			Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_OK},
			Attributes: []*commonpb.KeyValue{
				{Key: "request_id", Value: textValue("1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8")},
				{Key: "deployment", Value: textValue("HelloWorld")},
				{Key: "app", Value: textValue("default")},
				{Key: "http.method", Value: textValue("GET")},
				{Key: "http.route", Value: textValue("/api/v1/items/{item_id}")},
				{Key: "http.status_code", Value: intValue(200)},
				{Key: "call_method", Value: textValue("__call__")},
				{Key: "serve.request_id", Value: textValue("1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8")},
				{Key: "serve.task_id", Value: textValue("23eec2ff096fc93aea943783f1a232b9b59a8ce587b0358e")},
				{Key: "serve.replica_id", Value: textValue("default#HelloWorld#3npxyudx")},
			},
		}
	}
	data := &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{{Key: "service.name", Value: textValue("hello")}}},
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: "servetrace"}, Spans: spans}},
	}}}
	return marshal(tb, data)
}

// unbounded is for processors that decode each attribute.
const unbounded = -1

// costs are processors with the bound on their allocations for one span.
var costs = []struct {
	name  string
	build pluginsdk.NewProcessor
	most  float64
}{
	{"raycontext", RayContext(), 2},
	{"attributes/nothing matches", Attributes(AttributesConfig{Actions: []AttributeAction{
		{Key: "user.*", Action: "delete"}, {Key: "enduser.id", Action: "hash"},
		{Key: "exception.*", Action: "delete", On: "event"},
	}}), unbounded},
	{"attributes/one set, one deleted", Attributes(AttributesConfig{Actions: []AttributeAction{
		{Key: "team", Action: "upsert", Value: "search"}, {Key: "app", Action: "delete"},
	}}), unbounded},
	{"attributes/one hashed", Attributes(AttributesConfig{Actions: []AttributeAction{{Key: "request_id", Action: "hash"}}}), unbounded},
	{"redact/nothing matches", Redact(RedactConfig{}), unbounded},
	{"redact/one blocked", Redact(RedactConfig{BlockedKeys: []string{"http.route"}}), unbounded},
	{"filter/name and status", Filter(FilterConfig{Drop: []SpanMatch{{Name: "GET /health*"}, {Status: "error", Kind: "client"}}}), 0},
	{"filter/attribute", Filter(FilterConfig{Drop: []SpanMatch{{Attributes: map[string]any{"http.route": "/health*"}}}}), 1},
	{"sample/kept", Sample(SampleConfig{Ratio: 1, Keep: KeepConfig{Errors: true, SlowerThan: time.Second}}), 0},
	{"sample/dropped", Sample(SampleConfig{Ratio: 0, Keep: KeepConfig{Errors: true, SlowerThan: time.Second}}), 0},
}

// TestAllocatesForSpans bounds the allocations for a span. They are the difference of a
// long batch and a short batch, so that the allocations for a batch do not count.
func TestAllocatesForSpans(t *testing.T) {
	const few, many = 100, 700
	short, long := servedSpans(t, few), servedSpans(t, many)
	for _, c := range costs {
		if c.most == unbounded {
			continue
		}
		p := construct(t, c.build, pluginsdk.Setup{})
		allocs := func(encoded []byte) float64 {
			return testing.AllocsPerRun(3, func() {
				if err := p.Process(t.Context(), pluginsdk.NewBatch(encoded)); err != nil {
					t.Fatal(err)
				}
			})
		}
		// A growing slice allocates less than the noise, and so does the pool of regexp,
		// from which the race detector drops a quarter.
		const noise = 0.3
		if got := (allocs(long) - allocs(short)) / (many - few); got > c.most+noise {
			t.Errorf("%s: %.2f allocations a span, want %v at most", c.name, got, c.most)
		}
	}
}

// TestUntouchedIsNotCopied: a batch that needs no change keeps its buffer.
func TestUntouchedIsNotCopied(t *testing.T) {
	encoded := servedSpans(t, 10)
	for _, c := range costs {
		if !strings.Contains(c.name, "nothing") {
			continue
		}
		b := pluginsdk.NewBatch(encoded)
		if err := construct(t, c.build, pluginsdk.Setup{}).Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if out := b.Bytes(); &out[0] != &encoded[0] {
			t.Errorf("%s copies a batch that it does not change", c.name)
		}
	}
}

func BenchmarkProcess(b *testing.B) {
	const spans = 512
	encoded := servedSpans(b, spans)
	for _, c := range costs {
		b.Run(c.name, func(b *testing.B) {
			p := construct(b, c.build, pluginsdk.Setup{})
			b.ReportAllocs()
			for b.Loop() {
				batch := pluginsdk.NewBatch(encoded)
				if err := p.Process(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
				batch.Bytes()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*spans), "ns/span")
		})
	}
}
