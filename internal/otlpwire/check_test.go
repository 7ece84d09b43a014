package otlpwire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// TestFormsOfOTLP finds the messages and fields that have rules of their own, so that a
// later version of OTLP's library does not lose them by another name.
func TestFormsOfOTLP(t *testing.T) {
	resourceSpans := requestForm().rule(field.RequestResourceSpans).of
	scopeSpans := resourceSpans.rule(field.ResourceSpansScopeSpans).of
	span := scopeSpans.rule(field.ScopeSpansSpans).of
	link := span.rule(field.SpanLinks).of
	if !span.isSpan || !scopeSpans.holdsSpans || !resourceSpans.holdsSpans || span.holdsSpans || scopeSpans.isSpan {
		t.Errorf("the spans are not found: %+v", span)
	}
	for _, is := range []struct{ got, want uint8 }{
		{span.rule(field.SpanTraceID).idBytes, 16}, {span.rule(field.SpanSpanID).idBytes, 8}, {span.rule(field.SpanParentID).idBytes, 8},
		{link.rule(field.LinkTraceID).idBytes, 16}, {link.rule(field.LinkSpanID).idBytes, 8},
	} {
		if is.got != is.want {
			t.Errorf("an id of %d bytes, want %d", is.got, is.want)
		}
	}
	if keyValue := span.rule(field.SpanAttributes).of; !keyValue.isKeyValue || !keyValue.rule(field.KeyValueKey).text {
		t.Errorf("the attributes are not found: %+v", keyValue)
	}
}

// inSpan returns a request with one span, which has this content.
func inSpan(content []byte) []byte {
	var w Writer
	w.Content(field.ScopeSpansSpans, content)
	w.Message(field.ResourceSpansScopeSpans, 0)
	w.Message(field.RequestResourceSpans, 0)
	return w.Bytes()
}

// groups returns an unknown field of nested groups.
func groups(depth int) (b []byte) {
	for range depth {
		b = protowire.AppendTag(b, 900, protowire.StartGroupType)
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), 7)
	}
	for range depth {
		b = protowire.AppendTag(b, 900, protowire.EndGroupType)
	}
	return b
}

// TestCheckTakesGroups: a span with as many groups as the stock libraries in C++ take.
func TestCheckTakesGroups(t *testing.T) {
	if _, _, err := Check(append(inSpan(groups(97)), groups(100)...), 1<<20); err != nil {
		t.Error(err)
	}
	if _, _, err := Check(groups(101), 1<<20); err == nil {
		t.Error("101 groups are accepted")
	}
}

func TestCheckFaults(t *testing.T) {
	nested := textValue("x")
	for range 60 {
		nested = array(nested)
	}
	deep, err := proto.Marshal(&commonpb.KeyValue{Key: "k", Value: nested})
	if err != nil {
		t.Fatal(err)
	}
	bytesField := func(num protowire.Number, content string) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), []byte(content))
	}
	for _, c := range []struct {
		name, fault string
		span        []byte
	}{
		{"trace id", "wrong length", bytesField(field.SpanTraceID, "short")},
		{"span id", "wrong length", bytesField(field.SpanSpanID, "0123456789abcdef")},
		{"id of a link", "wrong length", bytesField(field.SpanLinks, string(bytesField(field.LinkSpanID, "1")))},
		{"name", "not UTF-8", bytesField(field.SpanName, "a\xff")},
		{"key", "not UTF-8", bytesField(field.SpanAttributes, string(bytesField(field.KeyValueKey, "\xc0")))},
		{"time", "type of another", bytesField(field.SpanStart, "")},
		{"name as a number", "type of another", protowire.AppendVarint(protowire.AppendTag(nil, field.SpanName, protowire.VarintType), 1)},
		{"attribute that ends early", "past the end", bytesField(field.SpanAttributes, "\x0a\x05ab")},
		{"event that ends early", "past the end", bytesField(field.SpanEvents, "\x09ab")},
		{"deep value", "too deep", bytesField(field.SpanAttributes, string(deep))},
		{"deep groups", "too deep", groups(98)},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Check(inSpan(c.span), 1<<20)
			if err == nil || !strings.Contains(err.Error(), c.fault) || !strings.Contains(err.Error(), "at byte ") {
				t.Errorf("error %v, want the offset and %q", err, c.fault)
			}
		})
	}
}

func TestCheckCountsSpans(t *testing.T) {
	data, err := proto.Marshal(sample(3))
	if err != nil {
		t.Fatal(err)
	}
	large := inSpan(protowire.AppendBytes(protowire.AppendTag(nil, field.SpanName, protowire.BytesType), bytes.Repeat([]byte("x"), 5000)))
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 7)
	want, err := CountSpans(data)
	if err != nil {
		t.Fatal(err)
	}
	spans, tooLarge, err := Check(append(append(data, large...), unknown...), 4000)
	if spans != want+1 || tooLarge != 1 || err != nil {
		t.Errorf("%d spans, %d too large, error %v; want %d, 1 and none", spans, tooLarge, err, want+1)
	}
	if spans, _, err := Check(nil, 1); spans != 0 || err != nil {
		t.Errorf("empty request: %d spans, error %v", spans, err)
	}
}

// FuzzCheck compares Check with the stock decoder: bytes that Check accepts, the decoder
// accepts, with as many spans.
func FuzzCheck(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 20 {
		span := shuffled(f, random, randomSpan(f, random))
		f.Add(inSpan(span))
		span[random.IntN(len(span))] ^= 1 << (n % 8)
		f.Add(inSpan(span))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		spans, _, err := Check(data, 1<<20)
		if err != nil {
			return
		}
		var r request
		if err := proto.Unmarshal(data, &r); err != nil {
			t.Fatalf("Check accepts bytes that proto refuses: %v", err)
		}
		got := 0
		for _, rs := range r.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				got += len(ss.GetSpans())
			}
		}
		if got != spans {
			t.Fatalf("%d spans, the decoder has %d", spans, got)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	const n = 512
	data := batchOf(b, n)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, _, err := Check(data, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/span")
}

func ExampleCheck() {
	_, _, err := Check([]byte("\x0a\x04\x12\x02\x12\x05"), 1<<20)
	fmt.Println(err)
	// Output: malformed OTLP at byte 4: length past the end
}
