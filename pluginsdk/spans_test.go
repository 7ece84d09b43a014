package pluginsdk_test

import (
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// named is a request with one span for each name.
func named(names ...string) *coltracepb.ExportTraceServiceRequest {
	spans := make([]*tracepb.Span, len(names))
	for i, name := range names {
		spans[i] = &tracepb.Span{
			TraceId: []byte("0123456789abcdef"), SpanId: []byte{0, 0, 0, 0, 0, 0, 0, byte(i + 1)},
			Name: name, StartTimeUnixNano: 1, EndTimeUnixNano: 2,
		}
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{text("service.name", "shop")}},
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: "scope"}, Spans: spans}},
	}}}
}

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

func encode(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	encoded, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return encoded
}
