package otlpwire

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const batch = 512

var team = attribute.String("team", "search")

// batchOf returns a request of n server spans with 4 texts and 2 integers each.
func batchOf(tb testing.TB, n int) []byte {
	tb.Helper()
	ss := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: "bench"}}
	for i := range n {
		ss.Spans = append(ss.Spans, &tracepb.Span{
			TraceId: []byte("0123456789abcdef"), SpanId: []byte("01234567"), ParentSpanId: []byte("abcdefgh"),
			Flags: 0x101, Name: "proxy_http_request GET /api/{id}", Kind: tracepb.Span_SPAN_KIND_SERVER,
			StartTimeUnixNano: 1 << 60, EndTimeUnixNano: 1<<60 + 1, Status: &tracepb.Status{},
			Attributes: []*commonpb.KeyValue{
				text("http.request.method", "GET"),
				text("http.route", "/api/{id}"),
				text("serve.request_id", "1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8"),
				text("serve.deployment", "HelloWorld"),
				integer("http.response.status_code", 200),
				integer("serve.queue_wait_ms", int64(i)),
			},
		})
	}
	return marshal(tb, &request{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{ss}}}})
}

func perSpan(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/span")
}

func BenchmarkCountSpans(b *testing.B) {
	req := batchOf(b, batch)
	b.ReportAllocs()
	for b.Loop() {
		if n, err := CountSpans(req); n != batch || err != nil {
			b.Fatal(n, err)
		}
	}
	perSpan(b)
}

func BenchmarkCut(b *testing.B) {
	req := batchOf(b, batch)
	b.ReportAllocs()
	for b.Loop() {
		if pieces, err := cutAll(req, 128, 0); len(pieces) != 4 || err != nil {
			b.Fatal(len(pieces), err)
		}
	}
	perSpan(b)
}

// benchView parses a batch, calls each for each span, and writes the batch.
func benchView(b *testing.B, each func(Span)) { benchEdit(b, each, (*Request).AppendTo) }

func benchEdit(b *testing.B, each func(Span), write func(*Request, []byte) []byte) {
	req := batchOf(b, batch)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		r, err := Parse(req)
		if err != nil {
			b.Fatal(err)
		}
		for s := range r.Spans() {
			each(s)
		}
		dst = write(r, dst[:0])
		r.Release()
	}
	b.ReportMetric(float64(len(dst))/batch, "B/span")
	perSpan(b)
}

// BenchmarkPatch measures "set one" of BenchmarkView with a patch for the result.
func BenchmarkPatch(b *testing.B) {
	b.Run("make", func(b *testing.B) { benchEdit(b, func(s Span) { s.SetAttribute(team) }, (*Request).AppendPatch) })
	req := batchOf(b, batch)
	r := parse(b, req)
	for s := range r.Spans() {
		s.SetAttribute(team)
	}
	patch, result := r.AppendPatch(nil), r.AppendTo(nil)
	b.Run("apply", func(b *testing.B) {
		var dst []byte
		b.ReportAllocs()
		for b.Loop() {
			var err error
			if dst, err = ApplyPatch(dst[:0], req, patch); err != nil {
				b.Fatal(err)
			}
		}
		perSpan(b)
	})
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if n, err := CheckPatched(req, patch, result); n != batch || err != nil {
				b.Fatal(n, err)
			}
		}
		perSpan(b)
	})
}

func BenchmarkView(b *testing.B) {
	b.Run("parse", func(b *testing.B) { benchView(b, func(Span) {}) })
	b.Run("name", func(b *testing.B) {
		benchView(b, func(s Span) {
			if s.Name() == "" {
				b.Error("no name")
			}
		})
	})
	b.Run("one attribute", func(b *testing.B) {
		benchView(b, func(s Span) {
			if v, ok := s.Attribute("http.response.status_code"); !ok || v.AsInt64() != 200 {
				b.Error("no status code")
			}
		})
	})
	b.Run("all keys", func(b *testing.B) {
		benchView(b, func(s Span) {
			n := 0
			for range s.Attributes() {
				n++
			}
			if n != 6 {
				b.Errorf("%d attributes", n)
			}
		})
	})
	b.Run("set one", func(b *testing.B) {
		benchView(b, func(s Span) { s.SetAttribute(attribute.String("team", "search")) })
	})
	b.Run("replace one, delete one", func(b *testing.B) {
		benchView(b, func(s Span) {
			s.SetAttribute(attribute.String("serve.request_id", "hidden"))
			s.DeleteAttribute("http.route")
		})
	})
	b.Run("drop all", func(b *testing.B) { benchView(b, Span.Drop) })
}

// BenchmarkDecodeEditEncode measures "set one" with decoded messages.
func BenchmarkDecodeEditEncode(b *testing.B) {
	req := batchOf(b, batch)
	b.ReportAllocs()
	for b.Loop() {
		m := &request{}
		if err := proto.Unmarshal(req, m); err != nil {
			b.Fatal(err)
		}
		for _, s := range m.ResourceSpans[0].ScopeSpans[0].Spans {
			s.Attributes = append(s.Attributes, text("team", "search"))
		}
		if _, err := proto.Marshal(m); err != nil {
			b.Fatal(err)
		}
	}
	perSpan(b)
}

// TestViewAllocates checks that reads and edits allocate nothing for each span, except
// to grow slices and to copy each text that is read: four in the loop of readAndEdit and
// one after it. It sets a scalar, because the attribute package copies slices.
func TestViewAllocates(t *testing.T) {
	for name, write := range map[string]func(*Request, []byte) []byte{"request": (*Request).AppendTo, "patch": (*Request).AppendPatch} {
		t.Run(name, func(t *testing.T) { checkAllocates(t, write) })
	}
}

func checkAllocates(t *testing.T, write func(*Request, []byte) []byte) {
	t.Helper()
	allocs := func(n int) float64 {
		req := batchOf(t, n)
		dst := make([]byte, 0, 2*len(req))
		return testing.AllocsPerRun(5, func() {
			r, err := Parse(req)
			if err != nil {
				t.Fatal(err)
			}
			for s := range r.Spans() {
				readAndEdit(t, s, team)
			}
			dst = write(r, dst[:0])
			r.Release()
		})
	}
	const few, many, texts = 100, 4100, 5
	if perSpan := (allocs(many) - allocs(few)) / (many - few); perSpan > texts+0.02 {
		t.Errorf("%.2f allocations a span, want %d", perSpan, texts)
	}
}

func readAndEdit(t *testing.T, s Span, kv attribute.KeyValue) {
	t.Helper()
	keys := 0
	for range s.Attributes() {
		keys++
	}
	if _, ok := s.Attribute("http.route"); !ok || keys != 6 {
		t.Errorf("%d attributes, http.route %v", keys, ok)
	}
	s.DeleteAttribute("http.route")
	s.SetAttribute(kv)
	s.SetStatus(2, s.Name())
}
