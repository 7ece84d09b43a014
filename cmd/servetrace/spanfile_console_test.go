package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// TestConsoleSpans reads a document with every member, as Python writes them.
func TestConsoleSpans(t *testing.T) {
	list, err := parseJSON([]byte(`{
    "name": "call",
    "context": {"trace_id": "0x5b8efff798038103d269b633813fc60c", "span_id": "0xeee19b7ec3c1b174", "trace_state": "[]"},
    "kind": "SpanKind.CLIENT",
    "parent_id": "0xeee19b7ec3c1b173",
    "start_time": "2026-01-02T03:04:05.000006Z",
    "end_time": null,
    "status": {"status_code": "ERROR", "description": "no"},
    "attributes": {"b": true, "f": 1.5, "i": 9007199254740993, "l": ["x", 2], "m": {"k": null}},
    "events": [{"name": "e", "timestamp": "2026-01-02T03:04:05Z", "attributes": {}}],
    "links": [{"context": {"trace_id": "0x00000000000000000000000000000001", "span_id": "0x0000000000000002", "trace_state": "[]"}, "attributes": {"k": "v"}}],
    "resource": {"attributes": {"service.name": "shop"}, "schema_url": "s"}
}`))
	if err != nil || len(list) != 1 {
		t.Fatalf("%d requests, error %v", len(list), err)
	}
	text := func(s string) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
	}
	integer := func(n int64) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}
	}
	want := &tracepb.Span{
		TraceId: []byte{0x5b, 0x8e, 0xff, 0xf7, 0x98, 0x03, 0x81, 0x03, 0xd2, 0x69, 0xb6, 0x33, 0x81, 0x3f, 0xc6, 0x0c},
		SpanId:  []byte{0xee, 0xe1, 0x9b, 0x7e, 0xc3, 0xc1, 0xb1, 0x74}, ParentSpanId: []byte{0xee, 0xe1, 0x9b, 0x7e, 0xc3, 0xc1, 0xb1, 0x73},
		Name: "call", Kind: tracepb.Span_SPAN_KIND_CLIENT, StartTimeUnixNano: 1767323045000006000,
		Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "no"},
		Attributes: []*commonpb.KeyValue{
			{Key: "b", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}},
			{Key: "f", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: 1.5}}},
			{Key: "i", Value: integer(9007199254740993)},
			{Key: "l", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: []*commonpb.AnyValue{text("x"), integer(2)}}}}},
			{Key: "m", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: []*commonpb.KeyValue{{Key: "k", Value: &commonpb.AnyValue{}}}}}}},
		},
		Events: []*tracepb.Span_Event{{Name: "e", TimeUnixNano: 1767323045000000000}},
		Links: []*tracepb.Span_Link{{
			TraceId: []byte{15: 1}, SpanId: []byte{7: 2}, Attributes: []*commonpb.KeyValue{{Key: "k", Value: text("v")}},
		}},
	}
	var got tracepb.TracesData
	if err := proto.Unmarshal(list[0].data, &got); err != nil {
		t.Fatal(err)
	}
	resource := got.GetResourceSpans()[0]
	if diff := cmp.Diff(want, resource.GetScopeSpans()[0].GetSpans()[0], protocmp.Transform()); diff != "" {
		t.Errorf("span (-want +got):\n%s", diff)
	}
	if name := resource.GetResource().GetAttributes()[0].GetValue().GetStringValue(); name != "shop" || resource.GetSchemaUrl() != "s" {
		t.Errorf("resource %v", resource)
	}
}

// TestConsoleSpansOfPython reads a recording of Ray's own files: documents one after
// another are few requests.
func TestConsoleSpansOfPython(t *testing.T) {
	file, err := os.ReadFile("../../plugins/console/consoleexporter/testdata/guide.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for range 300 {
		all = append(all, file...)
	}
	list, err := parseJSON(all)
	if err != nil {
		t.Fatal(err)
	}
	spans := 0
	for _, r := range list {
		spans += r.spans
	}
	if spans != 600 || len(list) != 2 {
		t.Errorf("%d spans in %d requests, want 600 in 2", spans, len(list))
	}
}
