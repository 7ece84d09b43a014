package datadogexporter

import (
	"github.com/tinylib/msgp/msgp"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// v04 writes protocol 0.4: an array of chunks, each an array of spans, each a map
// of fields with their names. The fields are those of the message Span of
// https://github.com/DataDog/datadog-agent/blob/main/pkg/proto/datadog/trace/span.proto
type v04 struct {
	buf    []byte
	chunks int
}

var _ protocol = (*v04)(nil)

func (*v04) path() string { return "/v0.4/traces" }

func (p *v04) begin(buf []byte, _ maker) { p.buf, p.chunks = appendCount(buf[:0]), 0 }

func (p *v04) beginChunk(c *chunk) {
	p.buf = msgp.AppendArrayHeader(p.buf, uint32(c.length))
	p.chunks++
}

func (p *v04) endChunk() {}

func (p *v04) size() int { return len(p.buf) }

func (p *v04) end() []byte {
	setCount(p.buf, 0, p.chunks)
	return p.buf
}

// The names of the fields, as msgpack.
const (
	v04Name     = "\xa4name"
	v04Service  = "\xa7service"
	v04Resource = "\xa8resource"
	v04Type     = "\xa4type"
	v04Start    = "\xa5start"
	v04Duration = "\xa8duration"
	v04Meta     = "\xa4meta"
	v04Metrics  = "\xa7metrics"
	v04SpanID   = "\xa7span_id"
	v04TraceID  = "\xa8trace_id"
	v04ParentID = "\xa9parent_id"
	v04Error    = "\xa5error"
	v04Links    = "\xaaspan_links"
	v04Events   = "\xabspan_events"
)

func (p *v04) span(d described, f form) {
	fields := byte(12)
	if len(d.links) > 0 {
		fields++
	}
	withEvents := len(d.events) > 0 && f.events
	if withEvents {
		fields++
	}
	b := append(p.buf, fixMap|fields)
	b = appendText(append(b, v04Name...), d.name)
	b = appendText(append(b, v04Service...), d.service)
	b = appendText(append(b, v04Resource...), d.resource)
	b = appendText(append(b, v04Type...), d.typ)
	b = msgp.AppendInt64(append(b, v04Start...), d.start)
	b = msgp.AppendInt64(append(b, v04Duration...), d.duration)
	b = msgp.AppendUint64(append(b, v04SpanID...), d.own)
	b = msgp.AppendUint64(append(b, v04TraceID...), d.trace.low)
	b = msgp.AppendUint64(append(b, v04ParentID...), d.parent)
	failed := byte(0)
	if d.failed {
		failed = 1
	}
	b = append(append(b, v04Error...), failed)
	b = msgp.AppendMapHeader(append(b, v04Meta...), uint32(len(d.tags.texts)))
	for i := range d.tags.texts {
		b = appendText(append(b, d.tags.texts[i].name.encoded...), d.tags.texts[i].value)
	}
	b = msgp.AppendMapHeader(append(b, v04Metrics...), uint32(len(d.tags.numbers)))
	for i := range d.tags.numbers {
		b = appendFloat(append(b, d.tags.numbers[i].name.encoded...), d.tags.numbers[i].value)
	}
	if len(d.links) > 0 {
		b = appendLinks(append(b, v04Links...), d.links)
	}
	if withEvents {
		b = appendEvents(append(b, v04Events...), d.events)
	}
	p.buf = b
}

func appendLinks(b []byte, links []link) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(links)))
	for i := range links {
		l := &links[i]
		b = msgp.AppendMapHeader(b, 6)
		b = msgp.AppendUint64(appendText(b, "trace_id"), l.trace.low)
		b = msgp.AppendUint64(appendText(b, "trace_id_high"), l.trace.high)
		b = msgp.AppendUint64(appendText(b, "span_id"), l.span)
		n := 0
		l.each(func(string, string) { n++ })
		b = msgp.AppendMapHeader(appendText(b, "attributes"), uint32(n))
		l.each(func(key, text string) { b = appendText(appendText(b, key), text) })
		b = appendText(appendText(b, "tracestate"), l.shownState())
		b = msgp.AppendUint32(appendText(b, "flags"), l.shownFlags())
	}
	return b
}

func appendEvents(b []byte, events []event) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for i := range events {
		e := &events[i]
		b = msgp.AppendMapHeader(b, 3)
		b = msgp.AppendUint64(appendText(b, "time_unix_nano"), e.time)
		b = appendText(appendText(b, "name"), e.name)
		n := 0
		e.each(func(string, value) { n++ })
		b = msgp.AppendMapHeader(appendText(b, "attributes"), uint32(n))
		e.each(func(key string, v value) { b = appendTyped(appendText(b, key), v) })
	}
	return b
}

// each goes through what an event says.
func (e *event) each(f func(key string, v value)) {
	said := false
	for i := range e.attributes {
		said = said || e.attributes[i].key.text == droppedAttributes
		f(e.attributes[i].key.text, e.attributes[i].value)
	}
	if e.dropped > 0 && !said {
		f(droppedAttributes, value{kind: field.AnyInt, bits: uint64(e.dropped)})
	}
}

// Types of an event's attribute in protocol 0.4.
const (
	typedText = iota
	typedBool
	typedInt
	typedFloat
	typedList
)

// appendTyped writes a value as an event's attribute has it, in one of the types
// that the protocol knows; the others are text. Members of lists have the same
// form.
func appendTyped(b []byte, v value) []byte {
	if v.kind == field.AnyArray && v.memberKind() != 0 {
		b = append(appendText(append(b, fixMap|2), "type"), typedList)
		b = appendText(append(appendText(b, "array_value"), fixMap|1), "values")
		at, n := len(b), 0
		b = appendCount(b)
		v.each(func(member value) {
			n++
			b = appendTyped(b, member)
		})
		setCount(b, at, n)
		return b
	}
	b = appendText(append(b, fixMap|2), "type")
	switch v.kind {
	case field.AnyBool:
		return msgp.AppendBool(appendText(append(b, typedBool), "bool_value"), v.bits != 0)
	case field.AnyInt:
		return msgp.AppendInt64(appendText(append(b, typedInt), "int_value"), int64(v.bits))
	case field.AnyDouble:
		return appendFloat(appendText(append(b, typedFloat), "double_value"), v.float())
	default:
		return appendText(appendText(append(b, typedText), "string_value"), v.text())
	}
}
