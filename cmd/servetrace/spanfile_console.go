package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// consoleSpan is a span in the JSON of OpenTelemetry's console exporter for Python. The
// console plugin and Ray Serve write this JSON, one document for each span.
// https://github.com/open-telemetry/opentelemetry-python/blob/main/opentelemetry-sdk/src/opentelemetry/sdk/trace/__init__.py
type consoleSpan struct {
	Name       string         `json:"name"`
	Context    *consoleIDs    `json:"context"`
	Kind       string         `json:"kind"`
	ParentID   string         `json:"parent_id"`
	StartTime  string         `json:"start_time"`
	EndTime    string         `json:"end_time"`
	Status     consoleStatus  `json:"status"`
	Attributes map[string]any `json:"attributes"`
	Events     []struct {
		Name       string         `json:"name"`
		Timestamp  string         `json:"timestamp"`
		Attributes map[string]any `json:"attributes"`
	} `json:"events"`
	Links []struct {
		Context    consoleIDs     `json:"context"`
		Attributes map[string]any `json:"attributes"`
	} `json:"links"`
	Resource struct {
		Attributes map[string]any `json:"attributes"`
		SchemaURL  string         `json:"schema_url"`
	} `json:"resource"`
}

type consoleIDs struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
}

type consoleStatus struct {
	Code        string `json:"status_code"`
	Description string `json:"description"`
}

// mostConsoleSpans is the largest number of documents, of one span each, that become one
// request.
const mostConsoleSpans = 512

// parseConsole returns the request of a document that is a span of a console exporter. is
// is false if the document has another form.
func parseConsole(document []byte) (one request, is bool, err error) {
	if !bytes.Contains(document, []byte(`"context"`)) {
		return request{}, false, nil
	}
	var from consoleSpan
	numbers := json.NewDecoder(bytes.NewReader(document))
	numbers.UseNumber()
	if err := numbers.Decode(&from); err != nil || from.Context == nil {
		return request{}, false, nil //nolint:nilerr // the document has another form, and the parser of OTLP/JSON reports errors
	}
	span, err := from.otlp()
	if err != nil {
		return request{}, true, fmt.Errorf("span %q of a console exporter: %w", from.Name, err)
	}
	data, err := proto.Marshal(&coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: keyValues(from.Resource.Attributes)},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{span}}},
		SchemaUrl:  from.Resource.SchemaURL,
	}}})
	return request{data: data, spans: 1, console: true}, true, err
}

// otlp returns the span as a message of OTLP, without the trace state.
func (s *consoleSpan) otlp() (*tracepb.Span, error) {
	var faults spanFault
	span := &tracepb.Span{
		Name: s.Name, Kind: tracepb.Span_SpanKind(tracepb.Span_SpanKind_value["SPAN_KIND_"+strings.TrimPrefix(s.Kind, "SpanKind.")]),
		TraceId: faults.id("trace_id", s.Context.TraceID, 16), SpanId: faults.id("span_id", s.Context.SpanID, 8),
		StartTimeUnixNano: faults.time("start_time", s.StartTime), EndTimeUnixNano: faults.time("end_time", s.EndTime),
		Attributes: keyValues(s.Attributes),
		Status: &tracepb.Status{
			Code: tracepb.Status_StatusCode(tracepb.Status_StatusCode_value["STATUS_CODE_"+s.Status.Code]), Message: s.Status.Description,
		},
	}
	if s.ParentID != "" {
		span.ParentSpanId = faults.id("parent_id", s.ParentID, 8)
	}
	for _, e := range s.Events {
		span.Events = append(span.Events, &tracepb.Span_Event{
			Name: e.Name, TimeUnixNano: faults.time("timestamp", e.Timestamp), Attributes: keyValues(e.Attributes),
		})
	}
	for _, l := range s.Links {
		span.Links = append(span.Links, &tracepb.Span_Link{
			TraceId: faults.id("trace_id", l.Context.TraceID, 16), SpanId: faults.id("span_id", l.Context.SpanID, 8),
			Attributes: keyValues(l.Attributes),
		})
	}
	return span, faults.first
}

// spanFault keeps the first error of the conversions of a span's fields.
type spanFault struct{ first error }

// note keeps an error, unless there is one already.
func (f *spanFault) note(format string, args ...any) {
	if f.first == nil {
		f.first = fmt.Errorf(format, args...)
	}
}

// id converts an id from hexadecimal digits, with or without 0x before them.
func (f *spanFault) id(name, text string, size int) []byte {
	id, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
	if err != nil || len(id) != size {
		f.note("%s is %q: want 0x and %d hexadecimal digits", name, text, 2*size)
	}
	return id
}

// time converts a time to nanoseconds since 1970. It returns 0 for an empty text, because
// Python writes null as the end of a span that has not ended.
func (f *spanFault) time(name, text string) uint64 {
	if text == "" {
		return 0
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.UnixNano() < 0 {
		f.note("%s is %q: want a time such as 2026-01-02T03:04:05.000006Z", name, text)
	}
	return uint64(max(t.UnixNano(), 0))
}

// keyValues converts attributes to messages of OTLP, sorted by key.
func keyValues(attributes map[string]any) (list []*commonpb.KeyValue) {
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		list = append(list, &commonpb.KeyValue{Key: key, Value: anyValue(attributes[key])})
	}
	return list
}

// anyValue converts the value of an attribute to a message of OTLP. Numbers must have been
// decoded with json.Decoder.UseNumber.
func anyValue(value any) *commonpb.AnyValue {
	switch v := value.(type) {
	case string:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v}}
	case bool:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}
		}
		f, _ := v.Float64() // no error, except for a number that is too large, which becomes infinite
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: f}}
	case []any:
		list := &commonpb.ArrayValue{}
		for _, member := range v {
			list.Values = append(list.Values, anyValue(member))
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}
	case map[string]any:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: keyValues(v)}}}
	}
	return &commonpb.AnyValue{} // the value null
}
