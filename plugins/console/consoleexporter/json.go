package consoleexporter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// object is a JSON object that keeps the order of its members.
type object []member

type member struct {
	key   string
	value any
}

// renderJSON renders a span and a final newline like Python's json.dumps(span, indent=4),
// for programs that read Ray's span files:
// https://github.com/open-telemetry/opentelemetry-python/blob/main/opentelemetry-sdk/src/opentelemetry/sdk/trace/__init__.py
// (ReadableSpan.to_json). NaN and infinities are strings, because Python's output for
// them is not JSON. Bytes, which Python cannot render, are base64.
func renderJSON(s pluginsdk.Span) []byte {
	var compact, indented bytes.Buffer
	leaves := json.NewEncoder(&compact)
	leaves.SetEscapeHTML(false)
	writeJSON(&compact, leaves, spanObject(s))
	_ = json.Indent(&indented, compact.Bytes(), "", "    ") // cannot fail for valid JSON
	return append(inASCII(indented.Bytes()), '\n')
}

// writeJSON writes v to out: an object, a list of type []any, or another value, which
// leaves encodes.
func writeJSON(out *bytes.Buffer, leaves *json.Encoder, v any) {
	switch v := v.(type) {
	case object:
		for i, m := range v {
			out.WriteByte("{,"[min(i, 1)])
			_ = leaves.Encode(m.key)
			out.WriteByte(':')
			writeJSON(out, leaves, m.value)
		}
		out.WriteString("{}"[min(len(v), 1):])
	case []any:
		for i, one := range v {
			out.WriteByte("[,"[min(i, 1)])
			writeJSON(out, leaves, one)
		}
		out.WriteString("[]"[min(len(v), 1):])
	default:
		_ = leaves.Encode(v) // cannot fail for texts, bools and numbers
	}
}

func spanObject(s pluginsdk.Span) object {
	var parent any // becomes null for a root span
	if id := s.ParentID(); id.IsValid() {
		parent = "0x" + id.String()
	}
	code, description := s.Status()
	status := object{{"status_code", statusName(code)}}
	if description != "" {
		status = append(status, member{"description", description})
	}
	events, links := []any{}, []any{}
	for e := range s.Events() {
		events = append(events, object{
			{"name", e.Name()}, {"timestamp", timeText(e.Time())}, {"attributes", attributesObject(e.Attributes())},
		})
	}
	for l := range s.Links() {
		links = append(links, object{
			{"context", contextObject(l.TraceID(), l.SpanID(), l.TraceState())}, {"attributes", attributesObject(l.Attributes())},
		})
	}
	resource := s.Resource()
	return object{
		{"name", s.Name()},
		{"context", contextObject(s.TraceID(), s.SpanID(), s.TraceState())},
		{"kind", "SpanKind." + kindName(s.Kind())},
		{"parent_id", parent},
		{"start_time", timeText(s.StartTime())},
		{"end_time", timeText(s.EndTime())},
		{"status", status},
		{"attributes", attributesObject(s.Attributes())},
		{"events", events},
		{"links", links},
		{"resource", object{{"attributes", attributesObject(resource.Attributes())}, {"schema_url", resource.SchemaURL()}}},
	}
}

func contextObject(traceID trace.TraceID, spanID trace.SpanID, state trace.TraceState) object {
	return object{{"trace_id", "0x" + traceID.String()}, {"span_id", "0x" + spanID.String()}, {"trace_state", traceStateRepr(state)}}
}

func attributesObject(all iter.Seq[attribute.KeyValue]) object {
	o := object{}
	for kv := range all {
		o = append(o, member{string(kv.Key), jsonValue(kv.Value)})
	}
	return o
}

// jsonValue converts an attribute's value to a value that encoding/json renders as Python
// would.
func jsonValue(v attribute.Value) any {
	switch v.Type() {
	case attribute.BOOL, attribute.INT64, attribute.STRING, attribute.BOOLSLICE, attribute.INT64SLICE, attribute.STRINGSLICE:
		return v.AsInterface()
	case attribute.FLOAT64:
		return pythonFloat(v.AsFloat64())
	case attribute.FLOAT64SLICE:
		return renderAll(v.AsFloat64Slice(), pythonFloat)
	case attribute.BYTESLICE:
		return base64.StdEncoding.EncodeToString(v.AsByteSlice())
	case attribute.SLICE:
		return renderAll(v.AsSlice(), jsonValue)
	case attribute.MAP:
		return attributesObject(slices.Values(v.AsMap()))
	default: // attribute.EMPTY, and types that later versions of OpenTelemetry add
		return nil
	}
}

func renderAll[T any](members []T, render func(T) any) []any {
	all := make([]any, len(members))
	for i, m := range members {
		all[i] = render(m)
	}
	return all
}

// pythonFloat returns f as a JSON number with the digits of Python's repr, or as a string
// if f is not finite. These are the fewest digits that parse to the same number.
func pythonFloat(f float64) any {
	magnitude := math.Abs(f)
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strconv.FormatFloat(f, 'f', -1, 64), "+") + "inity"
	case magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16):
		return json.Number(strconv.FormatFloat(f, 'e', -1, 64))
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return json.Number(text)
}

func timeText(t time.Time) string { return t.Format("2006-01-02T15:04:05.000000Z") }

// inASCII escapes all characters of a JSON text that are not ASCII, as Python's json does
// by default.
func inASCII(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r <= '~' {
			out = append(out, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

// kindName returns Python's name of a span kind. An unspecified kind counts as internal,
// as OTLP allows.
func kindName(kind trace.SpanKind) string {
	return strings.ToUpper(trace.ValidateSpanKind(kind).String())
}

func statusName(code codes.Code) string { return strings.ToUpper(code.String()) }

// traceStateRepr returns a tracestate as Python's exporter shows it, the repr of a list
// with a text for each entry: "[]", or "['{key=a, value=1}', '{key=b, value=2}']".
func traceStateRepr(state trace.TraceState) string {
	var b strings.Builder
	b.WriteByte('[')
	state.Walk(func(key, value string) bool {
		if b.Len() > 1 {
			b.WriteString(", ")
		}
		b.WriteString(pythonRepr("{key=" + key + ", value=" + value + "}"))
		return true
	})
	b.WriteByte(']')
	return b.String()
}

// pythonRepr returns Python's repr of a text. s must be printable ASCII, as the entries
// of a tracestate are.
func pythonRepr(s string) string {
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	s = strings.ReplaceAll(s, `\`, `\\`)
	return quote + strings.ReplaceAll(s, quote, `\`+quote) + quote
}
