package datadogexporter

import (
	"strings"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// FuzzEncode: whatever protobuf takes becomes payloads that an agent can read,
// with each span once, and nothing makes the plugin panic.
func FuzzEncode(f *testing.F) {
	full := batch(map[string]any{"service.name": "s", "host.name": "h", "list": []any{1, 2}},
		span(1, 1, 0, kind(tracepb.Span_SPAN_KIND_CLIENT), with(map[string]any{
			"db.system": "mysql", "texts": []any{"a", "b"}, "map": map[string]any{"k": 0.5}, "mixed": []any{"a", 1, []byte{1}},
		}), func(s *tracepb.Span) {
			s.TraceState = "ot=th:8"
			s.Status = &tracepb.Status{Code: 2, Message: "m"}
			s.Events = []*tracepb.Span_Event{{Name: "exception", Attributes: keyValues(map[string]any{"exception.type": "T", "l": []any{1}})}}
			s.Links = []*tracepb.Span_Link{{TraceId: make([]byte, 16), SpanId: make([]byte, 8), Attributes: keyValues(map[string]any{"k": 1})}}
		}), span(2, 2, 1), span(1, 3, 1)).Bytes()
	f.Add(full)
	f.Add(full[:len(full)/2])
	f.Add([]byte{0x0b, 0x0a, 0x00, 0x0c})
	f.Add([]byte{0xd8, 0xb1, 0xd2, 0xe6, 0x2b, 0x00}) // no field has that number
	c := newCoder(&mapping{peerDefaults: true, unified: unified{env: "e", version: "v", tags: []tag{{"a", "b"}}}})
	f.Fuzz(func(t *testing.T, request []byte) {
		err := c.sort(request)
		valid := proto.Unmarshal(request, &tracepb.TracesData{}) == nil
		if err != nil {
			if valid {
				t.Errorf("a request that protobuf takes: %v", err)
			}
			return
		}
		n, err := otlpwire.CountSpans(request)
		if err != nil || n != len(c.batch.spans)+c.batch.unfit {
			t.Fatalf("%d spans and %d unfit ones, want %d, %v", len(c.batch.spans), c.batch.unfit, n, err)
		}
		for _, form := range []form{{}, {events: true}, {v1: true, events: true}} {
			total := 0
			for left := c.batch.chunks; len(left) > 0; {
				p, err := c.encode(left, len(left), 1<<10, form)
				if err != nil {
					if valid {
						t.Errorf("a request that protobuf takes: %v", err)
					}
					return
				}
				spans, chunks, err := decodePayload(p.path, p.body)
				if err != nil || chunks != p.chunks {
					t.Fatalf("%+v: %d chunks of %d, %v", form, chunks, p.chunks, err)
				}
				total += len(spans)
				left = left[p.chunks:]
			}
			if total != len(c.batch.spans) {
				t.Errorf("%+v: %d spans of %d", form, total, len(c.batch.spans))
			}
		}
	})
}

// TestLongKeysAreForgotten: what is remembered of keys is bounded, however long
// they are.
func TestLongKeysAreForgotten(t *testing.T) {
	c := newCoder(&mapping{})
	long := strings.Repeat("x", maxKeyBytes/8)
	for i := range 40 {
		key := string(rune('a'+i)) + long
		request := batch(nil, span(1, 1, 0, with(map[string]any{key: "v", "k": i}))).Bytes()
		if err := c.sort(request); err != nil {
			t.Fatal(err)
		}
		p, err := c.encode(c.batch.chunks, 1, fullPayload, form{})
		if err != nil {
			t.Fatal(err)
		}
		spans, _, err := decodePayload(p.path, p.body)
		if err != nil || spans[0].meta[key] != "v" || spans[0].metrics["k"] != float64(i) {
			t.Fatalf("%d: %v", i, err)
		}
		if held := len(c.known.keys); held > 12 {
			t.Fatalf("%d long keys are remembered", held)
		}
	}
}

// TestManyPieces: a message in very many pieces is read in a time that grows with
// its length.
func TestManyPieces(t *testing.T) {
	piece, err := proto.Marshal(&commonpb.KeyValue{Value: anyValue(7)})
	if err != nil {
		t.Fatal(err)
	}
	_, v, ok := readKeyValue([]byte(strings.Repeat(string(piece), 1<<17)))
	if !ok || v.bits != 7 {
		t.Errorf("read %v, %v", v, ok)
	}
}

// TestLengthOfTwoBytes: the first byte of a length is not a length, though as many
// bytes follow.
func TestLengthOfTwoBytes(t *testing.T) {
	const size = 0x80
	b := append([]byte{headKey, 1, 'k', headValue, size, headText, size - 2}, make([]byte, size-2)...)
	if key, v, ok := readKeyValue(b); ok {
		t.Errorf("%q is read as %q: %q", b, key, v.body)
	}
}
