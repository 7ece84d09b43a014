package pywire_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/servetrace/servetrace/internal/pywire"
)

const most = 1 << 20

// pack returns a value in msgpack. A []any is an array, and pairs a map in order.
func pack(t testing.TB, v any) []byte {
	t.Helper()
	var b []byte
	switch v := v.(type) {
	case []any:
		b = msgp.AppendArrayHeader(nil, uint32(len(v))) //nolint:gosec // a length
		for _, m := range v {
			b = append(b, pack(t, m)...)
		}
	case pairs:
		b = msgp.AppendMapHeader(nil, uint32(len(v)/2)) //nolint:gosec // a length
		for _, m := range v {
			b = append(b, pack(t, m)...)
		}
	default:
		var err error
		if b, err = msgp.AppendIntf(nil, v); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

type pairs []any

func id(n int) []byte { return bytes.Repeat([]byte{1}, n) }

// span returns a span with the attributes.
func span(attributes any) []any {
	return []any{
		id(16), id(8), id(7), uint64(0x301), "a=1", "name", 2, uint64(1e18), uint64(1e18 + 5), attributes, 2, "broken",
		[]any{[]any{uint64(1e18 + 1), "event", pairs{"i", 1}, 3}}, []any{[]any{id(16), id(8), "b=2", 0x101, pairs{"l", 1}, 4}}, 5, 6, 7,
	}
}

// batch returns a batch with one resource, one scope and the spans.
func batch(spans ...any) []any {
	return []any{1, []any{[]any{pairs{"service.name", "x"}, "https://r", []any{[]any{"scope", "1.2", "https://s", pairs{"s", true}, spans}}}}}
}

func text(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
}

func number(i int64) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: i}}
}

func pair(k string, v *commonpb.AnyValue) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: k, Value: v}
}

func wantSpan(attributes ...*commonpb.KeyValue) *tracepb.Span {
	return &tracepb.Span{
		TraceId: id(16), SpanId: id(8), ParentSpanId: id(7), Flags: 0x301, TraceState: "a=1", Name: "name", Kind: 2,
		StartTimeUnixNano: 1e18, EndTimeUnixNano: 1e18 + 5, Attributes: attributes,
		Status: &tracepb.Status{Code: 2, Message: "broken"},
		Events: []*tracepb.Span_Event{{TimeUnixNano: 1e18 + 1, Name: "event", Attributes: []*commonpb.KeyValue{pair("i", number(1))}, DroppedAttributesCount: 3}},
		Links: []*tracepb.Span_Link{{
			TraceId: id(16), SpanId: id(8), TraceState: "b=2", Flags: 0x101, Attributes: []*commonpb.KeyValue{pair("l", number(1))}, DroppedAttributesCount: 4,
		}},
		DroppedAttributesCount: 5, DroppedEventsCount: 6, DroppedLinksCount: 7,
	}
}

func wantGroup(spans ...*tracepb.Span) *tracepb.ResourceSpans {
	yes := &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}
	return &tracepb.ResourceSpans{
		Resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{pair("service.name", text("x"))}}, SchemaUrl: "https://r",
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: "scope", Version: "1.2", Attributes: []*commonpb.KeyValue{pair("s", yes)}},
			Spans: spans, SchemaUrl: "https://s",
		}},
	}
}

// convert converts data with a used Converter, and parses the result.
func convert(t *testing.T, data []byte) (*coltracepb.ExportTraceServiceRequest, error) {
	t.Helper()
	var c pywire.Converter
	if _, err := c.Convert([]byte{0xc1}, most); err == nil {
		t.Fatal("no error for a byte that msgpack never uses")
	}
	request, err := c.Convert(data, most)
	if err != nil {
		return nil, err
	}
	got := &coltracepb.ExportTraceServiceRequest{}
	if err := proto.Unmarshal(request, got); err != nil {
		t.Fatal(err)
	}
	return got, nil
}

func TestConvert(t *testing.T) {
	data := append(pack(t, batch(span(pairs{"a", 1, "b", "x"}), span(nil))), pack(t, batch(span(nil)))...)
	got, err := convert(t, data)
	if err != nil {
		t.Fatal(err)
	}
	want := &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{
		wantGroup(wantSpan(pair("a", number(1)), pair("b", text("x"))), wantSpan()), wantGroup(wantSpan()),
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConvertOfNothing(t *testing.T) {
	for _, data := range [][]byte{nil, pack(t, []any{1, nil}), pack(t, []any{1, []any{}})} {
		if got, err := convert(t, data); err != nil || len(got.ResourceSpans) != 0 {
			t.Errorf("%x: %v, %v", data, got, err)
		}
	}
}

func TestConvertValues(t *testing.T) {
	list := func(members ...*commonpb.AnyValue) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: members}}}
	}
	tests := []struct {
		value any
		want  *commonpb.AnyValue
	}{
		{"", text("")},
		{"\xff", text("\uFFFD")},
		{0, number(0)},
		{-1, number(-1)},
		{int64(math.MinInt64), number(math.MinInt64)},
		{int64(math.MaxInt64), number(math.MaxInt64)},
		{uint64(math.MaxUint64), text("18446744073709551615")},
		{false, &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{}}},
		{0.0, &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{}}},
		{-0.5, &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: -0.5}}},
		{[]byte{}, &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: []byte{}}}},
		{nil, &commonpb.AnyValue{}},
		{[]any{}, list()},
		{[]any{1, nil, "x", []any{2}}, list(number(1), &commonpb.AnyValue{}, text("x"), list(number(2)))},
		{pairs{"k", pairs{"l", 1}}, &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{
			Values: []*commonpb.KeyValue{pair("k", &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{
				Values: []*commonpb.KeyValue{pair("l", number(1))},
			}}})},
		}}}},
	}
	for _, test := range tests {
		got, err := convert(t, pack(t, batch(span(pairs{"k", test.value}))))
		if err != nil {
			t.Errorf("%v: %v", test.value, err)
			continue
		}
		value := got.ResourceSpans[0].ScopeSpans[0].Spans[0].Attributes[0].Value
		if diff := cmp.Diff(test.want, value, protocmp.Transform()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.value, diff)
		}
	}
}

func TestConvertFaults(t *testing.T) {
	deep := func(levels int) any {
		var v any = 1
		for range levels {
			v = []any{v}
		}
		return v
	}
	with := func(member int, v any) []byte {
		s := span(nil)
		s[member] = v
		return pack(t, batch(s))
	}
	tests := []struct {
		name, want string
		data       []byte
	}{
		{"version", "batch: the version of the batch is unknown", pack(t, []any{2, nil})},
		{"no array", "batch: msgp: attempted to decode type", pack(t, 1)},
		{"cut", "batch: msgp: too few bytes left", pack(t, batch(span(nil)))[:40]},
		{"members of a span", "span: a list has another number of members", pack(t, batch([]any{id(16)}))},
		{"members of a batch", "batch: a list has another number of members", pack(t, []any{1})},
		{"id", "span: msgp: attempted to decode type", with(0, "text")},
		{"time", "span: msgp: attempted to decode type", with(7, "now")},
		{"flags", "span: a number is out of range", with(3, uint64(1<<32))},
		{"attributes", "attributes: msgp: attempted to decode type", with(9, "text")},
		{"key", "attributes: msgp: attempted to decode type", with(9, pairs{1, 1})},
		{"events", "events: msgp: attempted to decode type", with(12, "text")},
		{"event", "event: msgp: attempted to decode type", with(12, []any{[]any{"now", "x", nil, 0}})},
		{"type", "value: a value of type", with(9, pairs{"k", msgpTime(t)})},
		{"deepest", "", with(9, pairs{"k", deep(15)})},
		{"too deep", "value: a value has more than 16 levels", with(9, pairs{"k", deep(16)})},
		{"longest", "", with(9, pairs{"k", make([]any, 1<<16)})},
		{"too long", "value: a list has more than 65536 members", with(9, pairs{"k", make([]any, 1<<16+1)})},
		{"too large", "the request is too large", with(5, strings.Repeat("x", most))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			switch _, err := convert(t, test.data); {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// msgpTime returns a value of msgpack's extension for times.
func msgpTime(t *testing.T) any {
	t.Helper()
	return &msgp.RawExtension{Type: msgp.TimeExtension, Data: make([]byte, 12)}
}

// FuzzConvert checks that a result is a request that the host takes, and within the bound.
func FuzzConvert(f *testing.F) {
	f.Add(pack(f, batch(span(pairs{"k", []any{1, "x", pairs{"l", nil}}}))))
	f.Add(append(pack(f, batch(span(nil))), pack(f, []any{1, nil})...))
	f.Fuzz(func(t *testing.T, data []byte) {
		const bound = 1 << 16
		var c pywire.Converter
		request, err := c.Convert(data, bound)
		if err != nil {
			return
		}
		if len(request) > bound+len(data) {
			t.Errorf("%d bytes", len(request))
		}
		if err := proto.Unmarshal(request, &coltracepb.ExportTraceServiceRequest{}); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkConvert(b *testing.B) {
	spans := make([]any, 512)
	for i := range spans {
		spans[i] = span(pairs{"resource.name", "replica_handle_request Upper __call__", "request_id", "005a8871-4a26-4610-b2c5-b9e7cfc34224", "deployment", "Upper", "is_streaming", false})
	}
	data := pack(b, batch(spans...))
	var c pywire.Converter
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Convert(data, 16<<20); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(spans)), "ns/span")
}
