package otlpwire

import (
	"fmt"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

type request = coltracepb.ExportTraceServiceRequest

func text(key, s string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: textValue(s)}
}

func textValue(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
}

func integer(key string, i int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: i}}}
}

func array(values ...*commonpb.AnyValue) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: values}}}
}

// sample is a request of two resources, three scopes and n spans in each scope,
// with a field set wherever there is one.
func sample(n int) *request {
	span := func(name string) *tracepb.Span {
		return &tracepb.Span{
			TraceId: []byte("0123456789abcdef"), SpanId: []byte("01234567"), ParentSpanId: []byte("abcdefgh"),
			TraceState: "a=1", Flags: 0x301, Name: name, Kind: tracepb.Span_SPAN_KIND_SERVER,
			StartTimeUnixNano: 1, EndTimeUnixNano: 1 << 60,
			Attributes: []*commonpb.KeyValue{
				text("http.route", "/a"), integer("twice", 1), text("", "no key"), integer("twice", 2), integer("last", -1),
			},
			DroppedAttributesCount: 3,
			Events: []*tracepb.Span_Event{
				{TimeUnixNano: 7, Name: "exception", Attributes: []*commonpb.KeyValue{text("exception.type", "E")}, DroppedAttributesCount: 1},
				{Name: "second"},
			},
			DroppedEventsCount: 4,
			Links: []*tracepb.Span_Link{{
				TraceId: []byte("fedcba9876543210"), SpanId: []byte("hgfedcba"), TraceState: "b=2",
				Attributes: []*commonpb.KeyValue{integer("l", 1)}, DroppedAttributesCount: 2, Flags: 0x100,
			}},
			DroppedLinksCount: 5,
			Status:            &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "boom"},
		}
	}
	scope := func(name string) *tracepb.ScopeSpans {
		ss := &tracepb.ScopeSpans{
			Scope: &commonpb.InstrumentationScope{
				Name: name, Version: "v1", Attributes: []*commonpb.KeyValue{text("scoped", name)}, DroppedAttributesCount: 6,
			},
			SchemaUrl: "https://example.org/scope",
		}
		for i := range n {
			ss.Spans = append(ss.Spans, span(fmt.Sprintf("%s %d", name, i)))
		}
		return ss
	}
	return &request{ResourceSpans: []*tracepb.ResourceSpans{
		{
			Resource: &resourcepb.Resource{
				Attributes: []*commonpb.KeyValue{text("service.name", "hello"), text("host.name", "h")}, DroppedAttributesCount: 8,
			},
			ScopeSpans: []*tracepb.ScopeSpans{scope("a"), scope("b")},
			SchemaUrl:  "https://example.org/resource",
		},
		{ScopeSpans: []*tracepb.ScopeSpans{scope("c")}},
	}}
}

// withUnknown adds an unknown field to every message in m.
func withUnknown(m protoreflect.Message) {
	unknown := protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), string(m.Descriptor().Name()))
	m.SetUnknown(unknown)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				withUnknown(v.List().Get(i).Message())
			}
		case fd.Message() != nil:
			withUnknown(v.Message())
		}
		return true
	})
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func unmarshal(tb testing.TB, b []byte) *request {
	tb.Helper()
	m := &request{}
	if err := proto.Unmarshal(b, m); err != nil {
		tb.Fatalf("decode: %v", err)
	}
	return m
}

func parse(tb testing.TB, b []byte) *Request {
	tb.Helper()
	r, err := Parse(b)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}
