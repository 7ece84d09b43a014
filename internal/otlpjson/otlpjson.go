// Package otlpjson converts requests of OTLP from JSON to protobuf, and back.
//
// OTLP/JSON is the JSON mapping of protobuf with ids in hexadecimal digits:
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
package otlpjson

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// ToProto converts an ExportTraceServiceRequest from JSON to protobuf, and returns the number of
// its spans. It ignores unknown members, as OTLP demands. It decodes the whole request, so it
// needs several times as much memory as the document has bytes.
func ToProto(document []byte) (data []byte, spans int, err error) {
	var message coltracepb.ExportTraceServiceRequest
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(document, &message); err != nil {
		return nil, 0, fmt.Errorf("not OTLP/JSON: %w", err)
	}
	for _, resource := range message.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				spans++
				if err := fixIDs(ids{
					{"traceId", 16, &span.TraceId}, {"spanId", 8, &span.SpanId}, {"parentSpanId", 8, &span.ParentSpanId},
				}); err != nil {
					return nil, 0, fmt.Errorf("span %q: %w", span.GetName(), err)
				}
				for _, link := range span.GetLinks() {
					if err := fixIDs(ids{{"traceId", 16, &link.TraceId}, {"spanId", 8, &link.SpanId}}); err != nil {
						return nil, 0, fmt.Errorf("a link of span %q: %w", span.GetName(), err)
					}
				}
			}
		}
	}
	data, err = proto.Marshal(&message)
	return data, spans, err
}

// ids lists the ids of a span or a link, which OTLP/JSON writes in hexadecimal digits. bytes is the
// length of the id, and value points to its field in the decoded message.
type ids []struct {
	name  string
	bytes int
	value *[]byte
}

// fixIDs corrects the ids in a message that protojson has decoded. OTLP/JSON writes ids in
// hexadecimal digits, but protojson reads every bytes field as base64. The digits are valid
// base64, so fixIDs encodes the bytes as base64 again and gets the digits. An absent or empty id
// is unchanged.
func fixIDs(list ids) error {
	for _, id := range list {
		if len(*id.value) == 0 {
			continue
		}
		text := base64.RawStdEncoding.EncodeToString(*id.value)
		value, err := hex.DecodeString(text)
		if err != nil || len(value) != id.bytes {
			// The error does not quote text, which may differ from the text in the document.
			return fmt.Errorf("%s: must be %d hexadecimal digits", id.name, 2*id.bytes)
		}
		*id.value = value
	}
	return nil
}

// FromProto converts an ExportTraceServiceRequest from protobuf to JSON, in one line.
func FromProto(data []byte) ([]byte, error) {
	var message coltracepb.ExportTraceServiceRequest
	if err := proto.Unmarshal(data, &message); err != nil {
		return nil, fmt.Errorf("not OTLP: %w", err)
	}
	for _, resource := range message.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				writeIDs(&span.TraceId, &span.SpanId, &span.ParentSpanId)
				for _, link := range span.GetLinks() {
					writeIDs(&link.TraceId, &link.SpanId)
				}
			}
		}
	}
	document, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&message)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	err = json.Compact(&line, document) // protojson adds spaces at random
	return line.Bytes(), err
}

// writeIDs replaces each id by bytes whose base64 encoding is the hexadecimal digits of the id,
// because protojson writes every bytes field as base64.
func writeIDs(list ...*[]byte) {
	for _, id := range list {
		if value, err := base64.StdEncoding.DecodeString(hex.EncodeToString(*id)); err == nil { // fails only if the length is wrong, and then nothing can be corrected
			*id = value
		}
	}
}
