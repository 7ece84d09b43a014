package datadogexporter

import (
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// v1 writes protocol 1.0: maps whose keys are numbers, and each text once in a
// payload: where it comes again stands its number, counted from 1 in the order
// in which they come; 0 is the empty one. The numbers are those of the messages in
// https://github.com/DataDog/datadog-agent/tree/main/pkg/proto/datadog/trace/idx
type v1 struct {
	buf    []byte
	texts  map[string]uint32
	chunks int
	at     int // of the number of chunks in buf
	trace  traceID
}

var _ protocol = (*v1)(nil)

func (*v1) path() string { return tracesPathV1 }

// begin writes what holds for all spans of the payload. What it does not say is
// the spans' own: which program made them, say.
func (p *v1) begin(buf []byte, by maker) {
	if p.texts == nil {
		p.texts = map[string]uint32{}
	}
	clear(p.texts)
	p.chunks = 0
	p.buf = append(buf[:0], fixMap|5)
	p.text(v1Language, by.language)
	p.text(v1Env, by.env)
	p.text(v1Hostname, by.host)
	p.text(v1Version, by.version)
	p.buf = append(p.buf, v1Chunks)
	p.at = len(p.buf)
	p.buf = appendCount(p.buf)
}

// Fields of a payload, a chunk, a span, an event and a link.
const (
	v1Language = 3
	v1Env      = 7
	v1Hostname = 8
	v1Version  = 9
	v1Chunks   = 11

	v1ChunkPriority = 1
	v1ChunkSpans    = 4
	v1ChunkTraceID  = 6

	v1Service       = 1
	v1Name          = 2
	v1Resource      = 3
	v1SpanID        = 4
	v1ParentID      = 5
	v1Start         = 6
	v1Duration      = 7
	v1Error         = 8
	v1Attributes    = 9
	v1Type          = 10
	v1Links         = 11
	v1Events        = 12
	v1SpanEnv       = 13
	v1SpanVersion   = 14
	v1SpanComponent = 15
	v1SpanKind      = 16

	v1EventTime       = 1
	v1EventName       = 2
	v1EventAttributes = 3

	v1LinkTraceID    = 1
	v1LinkSpanID     = 2
	v1LinkAttributes = 3
	v1LinkState      = 4
	v1LinkFlags      = 5
)

// Types of an attribute.
const (
	v1Text = 1 + iota
	v1Bool
	v1Float
	v1Int
	_ // bytes
	v1List
)

func (p *v1) size() int { return len(p.buf) }

func (p *v1) end() []byte {
	setCount(p.buf, p.at, p.chunks)
	return p.buf
}

func (p *v1) beginChunk(c *chunk) {
	p.chunks++
	p.trace = c.trace
	p.buf = append(p.buf, fixMap|3, v1ChunkPriority, 1, v1ChunkSpans)
	p.buf = msgp.AppendArrayHeader(p.buf, uint32(c.length))
}

func (p *v1) endChunk() {
	p.buf = msgp.AppendBytesHeader(append(p.buf, v1ChunkTraceID), 16)
	p.buf = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(p.buf, p.trace.high), p.trace.low)
}

// text writes a field that is a text.
func (p *v1) text(num byte, value string) {
	p.buf = append(p.buf, num)
	p.intern(value)
}

// intern writes a text, or its number.
func (p *v1) intern(value string) {
	if value == "" {
		p.buf = append(p.buf, 0)
		return
	}
	if n, known := p.texts[value]; known {
		p.buf = msgp.AppendUint32(p.buf, n)
		return
	}
	p.texts[value] = uint32(len(p.texts) + 1)
	p.buf = appendText(p.buf, value)
}

func (p *v1) span(d described, _ form) {
	env, version, component, others := promoted(d.tags)
	fields := byte(14)
	if component != "" {
		fields++
	}
	known := d.kind >= kindInternal && d.kind <= kindConsumer
	if known {
		fields++
	}
	p.buf = msgp.AppendMapHeader(p.buf, uint32(fields))
	p.text(v1Service, d.service)
	p.text(v1Name, d.name)
	p.text(v1Resource, d.resource)
	p.buf = msgp.AppendUint64(append(p.buf, v1SpanID), d.own)
	p.buf = msgp.AppendUint64(append(p.buf, v1ParentID), d.parent)
	p.buf = msgp.AppendUint64(append(p.buf, v1Start), uint64(d.start))
	p.buf = msgp.AppendUint64(append(p.buf, v1Duration), uint64(d.duration))
	p.buf = msgp.AppendBool(append(p.buf, v1Error), d.failed)
	p.buf = msgp.AppendArrayHeader(append(p.buf, v1Attributes), 3*uint32(others+len(d.tags.numbers)))
	for i := range d.tags.texts {
		if t := &d.tags.texts[i]; !isPromoted(t.name) {
			p.intern(t.name.text)
			p.buf = append(p.buf, v1Text)
			p.intern(t.value)
		}
	}
	for i := range d.tags.numbers {
		p.intern(d.tags.numbers[i].name.text)
		p.buf = appendFloat(append(p.buf, v1Float), d.tags.numbers[i].value)
	}
	p.text(v1Type, d.typ)
	p.links(d.links)
	p.events(d.events)
	p.text(v1SpanEnv, env)
	p.text(v1SpanVersion, version)
	if component != "" {
		p.text(v1SpanComponent, component)
	}
	if known {
		p.buf = append(p.buf, v1SpanKind, byte(d.kind))
	}
}

// isPromoted tells which tags have a field of their own.
func isPromoted(n *tagName) bool {
	return n == tagEnv || n == tagVersion || n == tagComponent || n == tagKind
}

// promoted gives the values of those, and the number of the others.
func promoted(t *tags) (env, version, component string, others int) {
	for i := range t.texts {
		switch text := &t.texts[i]; text.name {
		case tagEnv:
			env = text.value
		case tagVersion:
			version = text.value
		case tagComponent:
			component = text.value
		case tagKind:
		default:
			others++
		}
	}
	return env, version, component, others
}

func (p *v1) links(links []link) {
	p.buf = msgp.AppendArrayHeader(append(p.buf, v1Links), uint32(len(links)))
	for i := range links {
		l := &links[i]
		p.buf = msgp.AppendBytesHeader(append(p.buf, fixMap|5, v1LinkTraceID), 16)
		p.buf = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(p.buf, l.trace.high), l.trace.low)
		p.buf = msgp.AppendUint64(append(p.buf, v1LinkSpanID), l.span)
		n := 0
		l.each(func(string, string) { n++ })
		p.buf = msgp.AppendArrayHeader(append(p.buf, v1LinkAttributes), 3*uint32(n))
		l.each(func(key, text string) {
			p.intern(key)
			p.buf = append(p.buf, v1Text)
			p.intern(text)
		})
		p.text(v1LinkState, l.shownState())
		p.buf = msgp.AppendUint32(append(p.buf, v1LinkFlags), l.shownFlags())
	}
}

func (p *v1) events(events []event) {
	p.buf = msgp.AppendArrayHeader(append(p.buf, v1Events), uint32(len(events)))
	for i := range events {
		e := &events[i]
		p.buf = msgp.AppendUint64(append(p.buf, fixMap|3, v1EventTime), e.time)
		p.text(v1EventName, e.name)
		n := 0
		e.each(func(string, value) { n++ })
		p.buf = msgp.AppendArrayHeader(append(p.buf, v1EventAttributes), 3*uint32(n))
		e.each(func(key string, v value) {
			p.intern(key)
			p.typed(v)
		})
	}
}

// typed writes an event's attribute, or a member of one that is a list: its type
// and its value.
func (p *v1) typed(v value) {
	switch {
	case v.kind == field.AnyArray && v.memberKind() != 0:
		n := 0
		v.each(func(value) { n++ })
		p.buf = msgp.AppendArrayHeader(append(p.buf, v1List), 2*uint32(n))
		v.each(p.typed)
	case v.kind == field.AnyBool:
		p.buf = msgp.AppendBool(append(p.buf, v1Bool), v.bits != 0)
	case v.kind == field.AnyInt:
		p.buf = msgp.AppendInt64(append(p.buf, v1Int), int64(v.bits))
	case v.kind == field.AnyDouble:
		p.buf = appendFloat(append(p.buf, v1Float), v.float())
	default:
		p.buf = append(p.buf, v1Text)
		p.intern(v.text())
	}
}
