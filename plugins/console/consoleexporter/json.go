package consoleexporter

import (
	"encoding/base64"
	"encoding/hex"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// printer renders spans like Python's json.dumps(span, indent=4), for programs that
// read Ray's span files:
// https://github.com/open-telemetry/opentelemetry-python/blob/main/opentelemetry-sdk/src/opentelemetry/sdk/trace/__init__.py
// (ReadableSpan.to_json). It differs if Python's output is not JSON: NaN and infinities
// are strings. Bytes, which Python cannot render, are base64.
//
// The zero value is ready to use, for a single batch.
type printer struct {
	buf   []byte
	depth int
	// first is set if the next member needs no comma before it.
	first bool
	// resource is the last resource, and resourceText its JSON: the spans of a batch
	// share it.
	resource     pluginsdk.Resource
	resourceText []byte
}

// span renders a span and a final newline. The slice is valid until the next call.
func (p *printer) span(s pluginsdk.Span) []byte {
	resource := p.renderedResource(s.Resource())
	p.buf = p.buf[:0]
	p.begin('{')
	p.key("name").str(s.Name())
	p.key("context").spanContext(s.TraceID(), s.SpanID(), s.TraceState())
	p.key("kind").str("SpanKind." + kindName(s.Kind()))
	p.key("parent_id")
	if parent := s.ParentID(); parent.IsValid() {
		p.id(parent[:])
	} else {
		p.raw("null")
	}
	p.key("start_time").time(s.StartTime())
	p.key("end_time").time(s.EndTime())
	p.key("status").status(s.Status())
	p.key("attributes").attributes(s.Attributes())
	p.key("events").events(s.Events())
	p.key("links").links(s.Links())
	p.key("resource").raw(string(resource))
	p.end('}')
	p.raw("\n")
	return p.buf
}

// renderedResource returns r as JSON, indented as a member of a span.
func (p *printer) renderedResource(r pluginsdk.Resource) []byte {
	if p.resourceText != nil && p.resource == r {
		return p.resourceText
	}
	p.buf, p.depth = p.buf[:0], 1
	p.begin('{')
	p.key("attributes").attributes(r.Attributes())
	p.key("schema_url").str(r.SchemaURL())
	p.end('}')
	p.depth = 0
	p.resource, p.resourceText = r, append(p.resourceText[:0], p.buf...)
	return p.resourceText
}

func (p *printer) spanContext(traceID trace.TraceID, spanID trace.SpanID, state trace.TraceState) {
	p.begin('{')
	p.key("trace_id").id(traceID[:])
	p.key("span_id").id(spanID[:])
	p.key("trace_state").str(traceStateRepr(state))
	p.end('}')
}

func (p *printer) status(code codes.Code, description string) {
	p.begin('{')
	p.key("status_code").str(statusName(code))
	if description != "" {
		p.key("description").str(description)
	}
	p.end('}')
}

func (p *printer) attributes(all iter.Seq[attribute.KeyValue]) {
	p.begin('{')
	for kv := range all {
		p.key(string(kv.Key)).value(kv.Value)
	}
	p.end('}')
}

func (p *printer) events(all iter.Seq[pluginsdk.Event]) {
	p.begin('[')
	for event := range all {
		p.next()
		p.begin('{')
		p.key("name").str(event.Name())
		p.key("timestamp").time(event.Time())
		p.key("attributes").attributes(event.Attributes())
		p.end('}')
	}
	p.end(']')
}

func (p *printer) links(all iter.Seq[pluginsdk.Link]) {
	p.begin('[')
	for link := range all {
		p.next()
		p.begin('{')
		p.key("context").spanContext(link.TraceID(), link.SpanID(), link.TraceState())
		p.key("attributes").attributes(link.Attributes())
		p.end('}')
	}
	p.end(']')
}

func (p *printer) value(v attribute.Value) {
	switch v.Type() {
	case attribute.BOOL:
		p.raw(strconv.FormatBool(v.AsBool()))
	case attribute.INT64:
		p.buf = strconv.AppendInt(p.buf, v.AsInt64(), 10)
	case attribute.FLOAT64:
		p.float(v.AsFloat64())
	case attribute.STRING:
		p.str(v.AsString())
	case attribute.BYTESLICE:
		p.str(base64.StdEncoding.EncodeToString(v.AsByteSlice()))
	case attribute.BOOLSLICE:
		array(p, v.AsBoolSlice(), func(b bool) { p.raw(strconv.FormatBool(b)) })
	case attribute.INT64SLICE:
		array(p, v.AsInt64Slice(), func(i int64) { p.buf = strconv.AppendInt(p.buf, i, 10) })
	case attribute.FLOAT64SLICE:
		array(p, v.AsFloat64Slice(), p.float)
	case attribute.STRINGSLICE:
		array(p, v.AsStringSlice(), p.str)
	case attribute.SLICE:
		array(p, v.AsSlice(), p.value)
	case attribute.MAP:
		p.begin('{')
		for _, kv := range v.AsMap() {
			p.key(string(kv.Key)).value(kv.Value)
		}
		p.end('}')
	default: // attribute.EMPTY, and types of later OpenTelemetry versions
		p.raw("null")
	}
}

func array[T any](p *printer, all []T, render func(T)) {
	p.begin('[')
	for _, one := range all {
		p.next()
		render(one)
	}
	p.end(']')
}

// begin opens an object or an array. If it is empty, it stays on its line.
func (p *printer) begin(bracket byte) {
	p.buf = append(p.buf, bracket)
	p.depth++
	p.first = true
}

func (p *printer) end(bracket byte) {
	p.depth--
	if !p.first {
		p.newline()
	}
	p.first = false
	p.buf = append(p.buf, bracket)
}

// next starts a member on a new line.
func (p *printer) next() {
	if !p.first {
		p.buf = append(p.buf, ',')
	}
	p.first = false
	p.newline()
}

// key starts a member of an object. The caller must write the value next.
func (p *printer) key(name string) *printer {
	p.next()
	p.str(name)
	p.raw(": ")
	return p
}

const indent = "    "

func (p *printer) newline() {
	p.buf = append(p.buf, '\n')
	for range p.depth {
		p.buf = append(p.buf, indent...)
	}
}

func (p *printer) raw(s string) { p.buf = append(p.buf, s...) }

// id writes an id like Python's hexadecimal numbers.
func (p *printer) id(id []byte) {
	p.raw(`"0x`)
	p.buf = hex.AppendEncode(p.buf, id)
	p.raw(`"`)
}

func (p *printer) time(t time.Time) {
	p.buf = append(p.buf, '"')
	p.buf = t.AppendFormat(p.buf, "2006-01-02T15:04:05.000000Z")
	p.buf = append(p.buf, '"')
}

// float writes the shortest text that parses to the same number, like Python's repr.
func (p *printer) float(f float64) {
	magnitude := math.Abs(f)
	switch {
	case math.IsNaN(f):
		p.raw(`"NaN"`)
	case math.IsInf(f, 0):
		p.str(strings.TrimPrefix(strconv.FormatFloat(f, 'f', -1, 64), "+") + "inity")
	case magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16):
		p.buf = strconv.AppendFloat(p.buf, f, 'e', -1, 64)
	default:
		start := len(p.buf)
		p.buf = strconv.AppendFloat(p.buf, f, 'f', -1, 64)
		if !strings.Contains(string(p.buf[start:]), ".") {
			p.raw(".0")
		}
	}
}

// str writes a string in ASCII with all other characters escaped, like Python's
// ensure_ascii.
func (p *printer) str(s string) {
	p.buf = append(p.buf, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			p.buf = append(p.buf, '\\', byte(r))
		case ' ' <= r && r <= '~':
			p.buf = append(p.buf, byte(r))
		case r == '\n':
			p.raw(`\n`)
		case r == '\r':
			p.raw(`\r`)
		case r == '\t':
			p.raw(`\t`)
		case r == '\b':
			p.raw(`\b`)
		case r == '\f':
			p.raw(`\f`)
		default: // invalid UTF-8 is decoded as utf8.RuneError
			p.escape(r)
		}
	}
	p.buf = append(p.buf, '"')
}

// escape writes r as UTF-16 code units.
func (p *printer) escape(r rune) {
	const surrogates, high, low = 0x10000, 0xd800, 0xdc00
	if r >= surrogates && r <= utf8.MaxRune {
		r -= surrogates
		p.escape(high + r>>10)
		r = low + r&0x3ff
	}
	p.raw(`\u`)
	p.buf = hex.AppendEncode(p.buf, []byte{byte(r >> 8), byte(r)})
}

// kindName returns Python's name of the kind. An unspecified kind counts as internal,
// as OTLP allows.
func kindName(kind trace.SpanKind) string {
	switch kind {
	case trace.SpanKindServer:
		return "SERVER"
	case trace.SpanKindClient:
		return "CLIENT"
	case trace.SpanKindProducer:
		return "PRODUCER"
	case trace.SpanKindConsumer:
		return "CONSUMER"
	}
	return "INTERNAL"
}

func statusName(code codes.Code) string {
	switch code {
	case codes.Ok:
		return "OK"
	case codes.Error:
		return "ERROR"
	}
	return "UNSET"
}

// traceStateRepr returns Python's repr of a list with a text for each entry: "[]", or
// "['{key=a, value=1}', '{key=b, value=2}']".
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

// pythonRepr quotes printable ASCII; a tracestate has no other characters.
func pythonRepr(s string) string {
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	return quote + strings.NewReplacer(`\`, `\\`, quote, `\`+quote).Replace(s) + quote
}
