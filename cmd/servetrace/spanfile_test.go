package main

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// TestJSONOfTheSpecification reads the forms that OTLP/JSON allows: ids in hexadecimal
// digits of either case, numbers as text, enums as numbers, members of a later version.
func TestJSONOfTheSpecification(t *testing.T) {
	list, err := parseJSON([]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{
		"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"eee19b7ec3c1b174","parentSpanId":"",
		"name":"x","kind":2,"startTimeUnixNano":"1544712660000000000","endTimeUnixNano":1544712661000000000,
		"attributes":[
			{"key":"traceId","value":{"stringValue":"5B8EFFF798038103D269B633813FC60C"}},
			{"key":"bytes","value":{"bytesValue":"5B8E"}},
			{"key":"int","value":{"intValue":"7"}},
			{"key":"map","value":{"kvlistValue":{"values":[{"key":"spanId","value":{"boolValue":true}}]}}}],
		"status":{"code":2,"message":"no"},"later":{"a":[1]},
		"links":[{"traceId":"00000000000000000000000000000001","spanId":"00000000000000ff"}]}]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	span := &tracepb.Span{
		TraceId: []byte{0x5b, 0x8e, 0xff, 0xf7, 0x98, 0x03, 0x81, 0x03, 0xd2, 0x69, 0xb6, 0x33, 0x81, 0x3f, 0xc6, 0x0c},
		SpanId:  []byte{0xee, 0xe1, 0x9b, 0x7e, 0xc3, 0xc1, 0xb1, 0x74},
		Name:    "x", Kind: tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: 1544712660000000000, EndTimeUnixNano: 1544712661000000000,
		Attributes: []*commonpb.KeyValue{
			{Key: "traceId", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: "5B8EFFF798038103D269B633813FC60C"}}},
			{Key: "bytes", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: []byte{0xe4, 0x1f, 0x04}}}},
			{Key: "int", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: 7}}},
			{Key: "map", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{
				Values: []*commonpb.KeyValue{{Key: "spanId", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}}},
			}}}},
		},
		Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "no"},
		Links: []*tracepb.Span_Link{{
			TraceId: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, SpanId: []byte{0, 0, 0, 0, 0, 0, 0, 0xff},
		}},
	}
	want := &coltracepb.ExportTraceServiceRequest{
		ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{span}}}}},
	}
	var got coltracepb.ExportTraceServiceRequest
	if len(list) != 1 || list[0].spans != 1 {
		t.Fatalf("%d requests, want one with one span", len(list))
	}
	if err := proto.Unmarshal(list[0].data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// TestDocuments counts requests and spans however they are laid out.
func TestDocuments(t *testing.T) {
	const one = `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a"},{"name":"b"}]}]}]}`
	for _, c := range []struct {
		name, text string
		want       []int
	}{
		{"empty", "", nil},
		{"blank", " \n\n", nil},
		{"one", one, []int{2}},
		{"lines", one + "\n" + one + "\n", []int{2, 2}},
		{"windows lines", one + "\r\n" + one, []int{2, 2}},
		{"byte order mark", "\ufeff" + one, []int{2}},
		{"no separator", one + one, []int{2, 2}},
		{"indented", strings.ReplaceAll(one, "[", "\n  ["), []int{2}},
		{"nothing in it", "{}\n" + one + "\n{\"resourceSpans\":[]}", []int{2}},
		{"of another signal", `{"resourceMetrics":[]}`, nil},
	} {
		list, err := parseSpans(formatJSON, []byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var got []int
		for _, r := range list {
			got = append(got, r.spans)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: spans (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestWrongFiles(t *testing.T) {
	id := base64.StdEncoding.EncodeToString(make([]byte, 16))
	span := func(member string) string {
		return `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x",` + member + `}]}]}]}`
	}
	for _, c := range []struct{ text, format, want string }{
		{"{\n\n x", formatJSON, "line 3: not JSON (invalid character 'x' looking for beginning of object key string); for the log of a service, redirect its standard error; for protobuf, set --format proto"},
		{"{}\n{", formatJSON, "line 2: not JSON (unexpected EOF); for the log of a service, redirect its standard error; for protobuf, set --format proto"},
		{span(`"traceId":"` + id + `"`), formatJSON, `the document that begins in line 1: span "x": traceId: must be 32 hexadecimal digits`},
		{span(`"spanId":"00"`), formatJSON, `the document that begins in line 1: span "x": spanId: must be 16 hexadecimal digits`},
		{span(`"parentSpanId":"zzzzzzzzzzzzzzzz"`), formatJSON, `the document that begins in line 1: span "x": parentSpanId: must be 16 hexadecimal digits`},
		{span(`"links":[{"spanId":"abcd"}]`), formatJSON, `the document that begins in line 1: a link of span "x": spanId: must be 16 hexadecimal digits`},
		{"\x0a\x05abc", formatProto, "not OTLP: "},
		{"\x00\x00", formatProto, "byte 0: 2 bytes are left, no length of 4; is it protobuf?"},
		{"\x00\x00\x00\x09abc", formatProto, "byte 0: the length field is 9, but only 3 bytes follow; is the file protobuf, and uncompressed?"},
		{"\x00\x00\x00\x00\x00\x00\x00\x01a", formatProto, "not OTLP: "},
		{"", formatProto, "there are none in it"},
	} {
		name := filepath.Join(t.TempDir(), "spans")
		if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := readSpans(t.Context(), "--spans", name, c.format, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "read spans of "+name+": "+c.want) {
			t.Errorf("%q: %d requests, error %v, want %s", c.text, len(list), err, c.want)
		}
	}
}

// TestReadingIsCalledOff: nothing may ever come from a terminal.
func TestReadingIsCalledOff(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt"))
	terminal, end := io.Pipe()
	defer end.Close()
	_, err := readSpans(ctx, "--spans", "-", formatJSON, terminal)
	if err == nil || err.Error() != "read --spans -: interrupt" || exitCode(ctx, err) != exitInterrupted {
		t.Errorf("error %v with code %d", err, exitCode(ctx, err))
	}
}

func FuzzReadSpans(f *testing.F) {
	f.Add([]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C"}]}]}]}`))
	f.Add([]byte("\x0a\x02\x12\x00"))
	f.Add([]byte("\x00\x00\x00\x04\x0a\x02\x12\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, parse := range []func([]byte) ([]request, error){parseJSON, parseProto} {
			list, err := parse(text)
			if err != nil {
				continue
			}
			for _, r := range list {
				if r.spans == 0 {
					t.Errorf("a request without spans is kept")
				}
			}
		}
	})
}
