package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/otlpjson"
	"github.com/servetrace/servetrace/internal/otlpwire"
)

// Values of --format, the form of a file of spans.
const (
	formatJSON  = "json"
	formatProto = "proto"
)

// request is an encoded ExportTraceServiceRequest of OTLP. A TracesData message has the same
// encoding.
type request struct {
	data  []byte
	spans int    // number of spans in data
	trace string // id of the trace of a built-in span, in hexadecimal digits; otherwise empty
	// console is true if the request was converted from the JSON of a console exporter.
	console bool
}

// builtInSpan returns a request with one span, which takes a millisecond and ends at end.
// The span has random ids, and its resource has only the attribute service.name.
func builtInSpan(name, service string, end time.Time) request {
	ids := make([]byte, 24)
	_, _ = rand.Read(ids) // never fails, by its documentation
	data, _ := proto.Marshal(&coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: keyValues(map[string]any{"service.name": service})},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{
			TraceId: ids[:16], SpanId: ids[16:], Name: name, Kind: tracepb.Span_SPAN_KIND_INTERNAL,
			StartTimeUnixNano: uint64(end.Add(-time.Millisecond).UnixNano()),
			EndTimeUnixNano:   uint64(end.UnixNano()),
		}}}},
	}}}) // fails only for texts that are not UTF-8
	return request{data: data, spans: 1, trace: hex.EncodeToString(ids[:16])}
}

// readSpans returns the requests in a file, except requests without spans. The name "-"
// means stdin. what is the name of the flag or the argument, for errors. A file without any
// span is an error. readSpans also returns when ctx ends.
func readSpans(ctx context.Context, what, name, format string, stdin io.Reader) ([]request, error) {
	text, err := readFile(ctx, what, name, stdin, math.MaxInt64-1)
	if err != nil {
		return nil, err
	}
	list, err := parseSpans(format, text)
	if err != nil {
		return nil, usagef("read spans of %s: %w", name, err)
	}
	if len(list) == 0 {
		return nil, usagef("read spans of %s: there are none in it; want OTLP requests, as the Collector's file exporter writes them, or span files of the console plugin", name)
	}
	return list, nil
}

func parseSpans(format string, text []byte) ([]request, error) {
	if format == formatProto {
		return parseProto(text)
	}
	return parseJSON(bytes.TrimPrefix(text, []byte("\ufeff"))) // some editors begin a file with this byte order mark
}

// parseJSON converts JSON documents, one after another, to requests. Each document is a
// request in OTLP/JSON, or a span in the JSON of a console exporter, in one line or more:
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
func parseJSON(text []byte) ([]request, error) {
	var list []request
	documents := json.NewDecoder(bytes.NewReader(text))
	for {
		var document json.RawMessage
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			at := len(text) // for an error other than a SyntaxError, the text ends too early
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				at = int(syntax.Offset)
			}
			return nil, fmt.Errorf("line %d: not JSON (%w); for the log of a service, redirect its standard error; for protobuf, set --format %s", lineAt(text, at), err, formatProto)
		}
		end := int(documents.InputOffset())
		one, err := parseDocument(document)
		if err != nil {
			return nil, fmt.Errorf("the document that begins in line %d: %w", lineAt(text, end-len(document)), err)
		}
		last := len(list) - 1
		switch {
		case one.spans == 0:
		case one.console && last >= 0 && list[last].console && list[last].spans < mostConsoleSpans:
			// Encoded requests can be concatenated: the result is one request with all spans.
			list[last].data = append(list[last].data, one.data...)
			list[last].spans++
		default:
			list = append(list, one)
		}
	}
}

// lineAt returns the number of the line in which an offset is. The first line has number 1.
func lineAt(text []byte, offset int) int {
	return 1 + bytes.Count(text[:min(offset, len(text))], []byte("\n"))
}

// parseDocument returns the request of a JSON document, which is a request in OTLP/JSON or
// a span of a console exporter.
func parseDocument(document []byte) (request, error) {
	if one, is, err := parseConsole(document); is {
		return one, err
	}
	data, spans, err := otlpjson.ToProto(document)
	return request{data: data, spans: spans}, err
}

// parseProto reads one encoded request, or several requests with a length of 4 bytes before
// each, as the Collector's file exporter writes. The first byte tells the forms apart: a
// request begins with 0x0a, and no length does, because it would be 160 MiB or more.
func parseProto(data []byte) ([]request, error) {
	if len(data) == 0 || data[0] == 0x0a {
		return appendProto(nil, data)
	}
	var list []request
	for rest := data; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, fmt.Errorf("byte %d: %d bytes are left, no length of 4; is it protobuf?", len(data)-len(rest), len(rest))
		}
		size := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		if uint64(size) > uint64(len(rest)) {
			return nil, fmt.Errorf("byte %d: the length field is %d, but only %d bytes follow; is the file protobuf, and uncompressed?",
				len(data)-len(rest)-4, size, len(rest))
		}
		var err error
		if list, err = appendProto(list, rest[:size]); err != nil {
			return nil, err
		}
		rest = rest[size:]
	}
	return list, nil
}

// appendProto appends an encoded request to the list, unless it has no spans.
func appendProto(list []request, data []byte) ([]request, error) {
	spans, err := otlpwire.CountSpans(data)
	if err != nil {
		return nil, fmt.Errorf("not OTLP: %w", err)
	}
	if spans == 0 {
		return list, nil
	}
	return append(list, request{data: data, spans: spans}), nil
}
