package otlpwire

import (
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Decoded holds the fields of a span, as the methods of Span return them.
type Decoded struct {
	TraceID           [16]byte
	SpanID, ParentID  [8]byte
	TraceState, Name  string
	Flags             uint32
	Kind              int32
	Start, End        uint64
	Code              int32 // code of the status
	Message           string
	Attributes        []attribute.KeyValue
	Events, Links     int // numbers of events and links
	DroppedAttributes uint32
	DroppedEvents     uint32
	DroppedLinks      uint32
}

// Decode reads all fields of the span into d, faster than the methods of Span. It ignores the
// edits. It reuses the memory of d.Attributes. The texts in d refer to one copy of the span, and
// not to the request.
func (s Span) Decode(d *Decoded) {
	p := s.part()
	texts := spanText{string(p.raw), p.base}
	*d = Decoded{Attributes: d.Attributes[:0]}
	c := p.fields()
	for c.next() {
		switch c.typ {
		case protowire.BytesType:
			switch c.num {
			case field.SpanTraceID:
				d.TraceID = traceID(c.content())
			case field.SpanSpanID:
				d.SpanID = spanID(c.content())
			case field.SpanParentID:
				d.ParentID = spanID(c.content())
			case field.SpanTraceState:
				d.TraceState = texts.of(c.here())
			case field.SpanName:
				d.Name = texts.of(c.here())
			case field.SpanAttributes:
				d.Attributes = append(d.Attributes, s.r.decodeAttribute(c.here(), texts))
			case field.SpanEvents:
				d.Events++
			case field.SpanLinks:
				d.Links++
			}
		case protowire.VarintType:
			switch c.num {
			case field.SpanKind:
				d.Kind = int32(c.bits)
			case field.SpanDroppedAttributes:
				d.DroppedAttributes = uint32(c.bits)
			case field.SpanDroppedEvents:
				d.DroppedEvents = uint32(c.bits)
			case field.SpanDroppedLinks:
				d.DroppedLinks = uint32(c.bits)
			}
		case protowire.Fixed64Type:
			switch c.num {
			case field.SpanStart:
				d.Start = c.bits
			case field.SpanEnd:
				d.End = c.bits
			}
		case protowire.Fixed32Type:
			if c.num == field.SpanFlags {
				d.Flags = uint32(c.bits)
			}
		}
	}
	s.r.note(c.err())
	d.Code, d.Message = s.r.status(p)
}

// spanText is a copy of the bytes of a span as a string, and the offset of the span in the
// request.
type spanText struct {
	all  string
	base int
}

// of returns a part of the span as a string that refers to t.all. The part must lie in the
// request, so it must not be the result of part.join.
func (t spanText) of(p part) string {
	start := p.base - t.base
	return t.all[start : start+len(p.raw)]
}

// decodeAttribute decodes the KeyValue p of a span. If p has the usual form (plainKeyValue), the
// texts in the result refer to the argument texts.
func (r *Request) decodeAttribute(p part, texts spanText) attribute.KeyValue {
	keyEnd, at, ok := plainKeyValue(p.raw)
	if !ok {
		return r.decodeKeyValue(p)
	}
	kv := attribute.KeyValue{Key: attribute.Key(texts.of(part{p.raw[plainHead:keyEnd], p.base + plainHead}))}
	value := part{p.raw[at:], p.base + at}
	if c := value.fields(); c.next() && c.pos == len(value.raw) && c.is(field.AnyString) {
		kv.Value = attribute.StringValue(texts.of(c.here()))
	} else {
		kv.Value = r.value(value, maxDepth)
	}
	return kv
}
