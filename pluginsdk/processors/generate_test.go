package processors

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/servetrace/servetrace/pluginsdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fuzzedSpans is the number of spans with which a processor is compared with its naive
// counterpart.
const fuzzedSpans = 4_000

// someTexts are the texts of generated spans: harmless, secret, odd.
var someTexts = []string{
	"", "GET /api/{id}", "ok", "héllo, 世界", "200", "true", "/health", "/healthz",
	"mail bob@example.com now", "bob%40example.com", "postgres://u:hunter2@db.example.com/x",
	"Authorization: Bearer abcdef0123456789", "password=hunter2&x=1", `{"api_key": "s3cr3t", "n": 1}`,
	"AKIAIOSFODNN7EXAMPLE", "ghp_0123456789abcdefABCDEF", "card 4111 1111 1111 1111.", "4111111111111112",
	"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", Redacted, "x " + Redacted + " y", "4bf92f3577b34da6a3ce929d0e0e4736",
	"Basic dXNlcjpwYXNz", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
	strings.Repeat("long ", 60),
}

var someKeys = []string{
	"a", "b", "a.b", "a.c", "team", "http.route", "http.status_code", "user.password", "db.Password", "access_token",
	"gen_ai.usage.input_tokens", "kept.secret", "http.request.header.authorization", "bob@example.com", "", "ключ",
	"serve.task_id", "serve.request_id", "ray.job_id", "ray.task_id",
}

// generator makes random spans, the same for the same seed.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 1))} }

// text is harmless more often than not.
func (g generator) text() string {
	const harmless = 8
	if g.IntN(3) > 0 {
		return someTexts[g.IntN(harmless)]
	}
	return someTexts[g.IntN(len(someTexts))]
}

// batch is some resources with some scopes with n spans in all.
func (g generator) batch(n int) *tracepb.TracesData {
	data := &tracepb.TracesData{}
	for n > 0 {
		rs := &tracepb.ResourceSpans{SchemaUrl: "https://opentelemetry.io/schemas/1.26.0"}
		if g.IntN(5) > 0 {
			rs.Resource = &resourcepb.Resource{Attributes: g.attributes(3), DroppedAttributesCount: uint32(g.IntN(2))}
		}
		for range 1 + g.IntN(3) {
			ss := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: "scope", Version: "1.2.3", Attributes: g.attributes(2)}}
			for range 1 + g.IntN(8) {
				if n--; n >= 0 {
					ss.Spans = append(ss.Spans, g.span())
				}
			}
			if len(ss.Spans) > 0 {
				rs.ScopeSpans = append(rs.ScopeSpans, ss)
			}
		}
		data.ResourceSpans = append(data.ResourceSpans, rs)
	}
	return data
}

func (g generator) id(n int) []byte {
	id := make([]byte, n)
	for i := range id {
		id[i] = byte(g.Uint32())
	}
	return id
}

func (g generator) span() *tracepb.Span {
	start := uint64(1_700_000_000_000_000_000 + g.Int64N(1e15))
	s := &tracepb.Span{
		TraceId: g.id(16), SpanId: g.id(8), ParentSpanId: g.id(8), Flags: 0x101, Name: g.text(),
		Kind: tracepb.Span_SpanKind(g.IntN(6)), StartTimeUnixNano: start, EndTimeUnixNano: start + uint64(g.Int64N(3e9)),
		Attributes: g.attributes(8), DroppedAttributesCount: uint32(g.IntN(2)), DroppedEventsCount: uint32(g.IntN(2)),
	}
	switch g.IntN(6) {
	case 0:
		s.TraceId = nil
	case 1:
		s.TraceState = "ot=th:c;rv:" + hex.EncodeToString(g.id(7)) + ",x=y"
	}
	if g.IntN(3) > 0 {
		s.Status = &tracepb.Status{Code: tracepb.Status_StatusCode(g.IntN(3)), Message: g.text()}
	}
	for range g.IntN(3) {
		s.Events = append(s.Events, &tracepb.Span_Event{Name: g.text(), TimeUnixNano: start, Attributes: g.attributes(3)})
	}
	for range g.IntN(2) {
		s.Links = append(s.Links, &tracepb.Span_Link{TraceId: g.id(16), SpanId: g.id(8), Attributes: g.attributes(3)})
	}
	return s
}

func (g generator) attributes(most int) []*commonpb.KeyValue {
	var kvs []*commonpb.KeyValue
	for range g.IntN(most + 1) {
		kvs = append(kvs, &commonpb.KeyValue{Key: someKeys[g.IntN(len(someKeys))], Value: g.value(3)})
	}
	for _, kv := range kvs {
		if kv.Key == "serve.task_id" && g.IntN(3) > 0 {
			kv.Value = textValue(hex.EncodeToString(g.id(24)))
		}
	}
	return kvs
}

func textValue(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
}

func intValue(n int64) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}
}

func (g generator) value(depth int) *commonpb.AnyValue {
	switch g.IntN(12 + 2*min(depth, 1)) {
	case 0:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: g.IntN(2) == 0}}
	case 1:
		return intValue([]int64{0, 200, -1, 4111111111111111, 4111111111111112, math.MaxInt64}[g.IntN(6)])
	case 2:
		n := []float64{0, 200, 1.5, 4111111111111111, math.Inf(1), -1e300}[g.IntN(6)]
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: n}}
	case 3:
		b := [][]byte{nil, []byte("plain"), []byte("bob@example.com"), {0xff, 0x00}}[g.IntN(4)]
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: b}}
	case 4:
		return nil
	case 5:
		return &commonpb.AnyValue{}
	case 12:
		list := &commonpb.ArrayValue{}
		for range g.IntN(4) {
			if v := g.value(depth - 1); v != nil {
				list.Values = append(list.Values, v)
			}
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}
	case 13:
		list := &commonpb.KeyValueList{}
		for range g.IntN(4) {
			list.Values = append(list.Values, &commonpb.KeyValue{Key: someKeys[g.IntN(len(someKeys))], Value: g.value(depth - 1)})
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: list}}
	default:
		return textValue(g.text())
	}
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	encoded, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return encoded
}

func unmarshal(tb testing.TB, encoded []byte) *tracepb.TracesData {
	tb.Helper()
	data := &tracepb.TracesData{}
	if err := proto.Unmarshal(encoded, data); err != nil {
		tb.Fatal(err)
	}
	return data
}

// construct builds a processor.
func construct(tb testing.TB, build pluginsdk.NewProcessor, setup pluginsdk.Setup) pluginsdk.Processor {
	tb.Helper()
	p, err := build(tb.Context(), setup)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// process runs a processor as the SDK does, which sees to malformed bytes.
func process(tb testing.TB, p pluginsdk.Processor, encoded []byte) ([]byte, error) {
	tb.Helper()
	b := pluginsdk.NewBatch(encoded)
	if err := (pluginsdk.Chain{p}).Process(tb.Context(), b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// spansOf are all spans of decoded data.
func spansOf(data *tracepb.TracesData) []*tracepb.Span {
	var all []*tracepb.Span
	for _, rs := range data.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			all = append(all, ss.Spans...)
		}
	}
	return all
}

// eachSpan decodes, edits and encodes, the naive way. f reports whether the span stays.
// Scopes and resources without remaining spans are left out.
func eachSpan(data *tracepb.TracesData, f func(*tracepb.ResourceSpans, *tracepb.Span) bool) {
	data.ResourceSpans = slices.DeleteFunc(data.ResourceSpans, func(rs *tracepb.ResourceSpans) bool {
		had := len(rs.ScopeSpans) > 0
		rs.ScopeSpans = slices.DeleteFunc(rs.ScopeSpans, func(ss *tracepb.ScopeSpans) bool {
			had := len(ss.Spans) > 0
			ss.Spans = slices.DeleteFunc(ss.Spans, func(s *tracepb.Span) bool { return !f(rs, s) })
			return had && len(ss.Spans) == 0
		})
		return had && len(rs.ScopeSpans) == 0
	})
}

// find is the last attribute of a key.
func find(kvs []*commonpb.KeyValue, key string) (*commonpb.AnyValue, bool) {
	for _, kv := range slices.Backward(kvs) {
		if kv.Key == key {
			return kv.Value, true
		}
	}
	return nil, false
}

func without(kvs []*commonpb.KeyValue, key string) []*commonpb.KeyValue {
	return slices.DeleteFunc(slices.Clone(kvs), func(kv *commonpb.KeyValue) bool { return kv.Key == key })
}

func with(kvs []*commonpb.KeyValue, key string, value *commonpb.AnyValue) []*commonpb.KeyValue {
	return append(without(kvs, key), &commonpb.KeyValue{Key: key, Value: value})
}

// normal sorts attributes, and writes an absent value in one way.
func normal(data *tracepb.TracesData) *tracepb.TracesData {
	for _, rs := range data.ResourceSpans {
		if rs.Resource != nil {
			normalAttributes(rs.Resource.Attributes)
		}
		for _, ss := range rs.ScopeSpans {
			if ss.Scope != nil {
				normalAttributes(ss.Scope.Attributes)
			}
			for _, s := range ss.Spans {
				normalAttributes(s.Attributes)
				for _, e := range s.Events {
					normalAttributes(e.Attributes)
				}
				for _, l := range s.Links {
					normalAttributes(l.Attributes)
				}
			}
		}
	}
	return data
}

func normalAttributes(kvs []*commonpb.KeyValue) {
	for _, kv := range kvs {
		kv.Value = normalValue(kv.Value)
	}
	options := proto.MarshalOptions{Deterministic: true}
	slices.SortStableFunc(kvs, func(a, b *commonpb.KeyValue) int {
		if a.Key != b.Key {
			return cmp.Compare(a.Key, b.Key)
		}
		x, _ := options.Marshal(a)
		y, _ := options.Marshal(b)
		return bytes.Compare(x, y)
	})
}

func normalValue(v *commonpb.AnyValue) *commonpb.AnyValue {
	if v == nil {
		return &commonpb.AnyValue{}
	}
	for i, member := range v.GetArrayValue().GetValues() {
		v.GetArrayValue().Values[i] = normalValue(member)
	}
	normalAttributes(v.GetKvlistValue().GetValues())
	return v
}

// compare runs a processor over n fuzzed spans and a naive edit over the same,
// decoded.
func compare(t *testing.T, n int, build pluginsdk.NewProcessor, setup pluginsdk.Setup, naive func(*tracepb.TracesData)) {
	t.Helper()
	p := construct(t, build, setup)
	const perBatch = 100
	for seed := range uint64(n / perBatch) {
		data := newGenerator(seed).batch(perBatch)
		out, err := process(t, p, marshal(t, data))
		if err != nil {
			t.Fatalf("batch %d: %v", seed, err)
		}
		naive(data)
		want, got := normal(data), normal(unmarshal(t, out))
		if !proto.Equal(want, got) {
			const most = 4 << 10
			diff := gocmp.Diff(want, got, protocmp.Transform())
			t.Fatalf("batch %d (-want +got):\n%.*s", seed, most, diff)
		}
	}
}
