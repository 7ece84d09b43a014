package otlpwire

import (
	"math"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Decoded is a span's fields, as Span's methods of the same names give them.
type Decoded struct {
	TraceID           [16]byte
	SpanID, ParentID  [8]byte
	TraceState, Name  string
	Flags             uint32
	Kind              int32
	Start, End        uint64
	Code              int32 // of the status
	Message           string
	Attributes        []attribute.KeyValue
	Events, Links     int // how many there are
	DroppedAttributes uint32
	DroppedEvents     uint32
	DroppedLinks      uint32
}

// Decode reads the span into d in one walk: whoever wants all of it does not
// pay for one walk a field. Edits are not seen. d.Attributes is used again. The
// texts are pieces of one copy of the span, and so refer to nothing of the
// request.
func (s Span) Decode(d *Decoded) {
	p := s.part()
	texts := spanText{string(p.raw), p.base}
	*d = Decoded{Attributes: d.Attributes[:0]}
	var status part
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
				d.Attributes = append(d.Attributes, s.r.decodeKeyValue(c.here(), texts))
			case field.SpanEvents:
				d.Events++
			case field.SpanLinks:
				d.Links++
			case field.SpanStatus:
				status = status.join(c.here())
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
	d.Code = int32(s.r.number(status, field.StatusCode, protowire.VarintType))
	d.Message = string(s.r.content(status, field.StatusMessage))
}

// spanText is a span's bytes as text, and where they begin in the request.
type spanText struct {
	all  string
	base int
}

// of is a part of the span as text. It must be one that stands in it, and not
// one that was merged.
func (t spanText) of(p part) string {
	start := p.base - t.base
	return t.all[start : start+len(p.raw)]
}

// decodeKeyValue reads an attribute as everybody writes it; any other goes the
// long way.
func (r *Request) decodeKeyValue(p part, texts spanText) attribute.KeyValue {
	keyEnd, at, ok := plainKeyValue(p.raw)
	if !ok {
		key, value := r.keyValue(p)
		return attribute.KeyValue{Key: attribute.Key(key.raw), Value: Value{r, value}.Attribute()}
	}
	key := part{p.raw[plainHead:keyEnd], p.base + plainHead}
	value := part{p.raw[at:], p.base + at}
	return attribute.KeyValue{Key: attribute.Key(texts.of(key)), Value: r.decodeValue(value, texts)}
}

// decodeValue reads a value that is a text, a number or a bool, and nothing
// besides; any other goes the long way.
func (r *Request) decodeValue(p part, texts spanText) attribute.Value {
	c := p.fields()
	if !c.next() || c.pos != len(p.raw) {
		return Value{r, p}.Attribute()
	}
	switch {
	case c.is(field.AnyString):
		return attribute.StringValue(texts.of(c.here()))
	case c.isVarint(field.AnyInt):
		return attribute.Int64Value(int64(c.bits))
	case c.isVarint(field.AnyBool):
		return attribute.BoolValue(c.bits != 0)
	case c.num == field.AnyDouble && c.typ == protowire.Fixed64Type:
		return attribute.Float64Value(math.Float64frombits(c.bits))
	}
	return Value{r, p}.Attribute()
}
