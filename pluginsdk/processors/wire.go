package processors

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Field numbers of OTLP's messages, those that are looked at here.
//
// Source: https://github.com/open-telemetry/opentelemetry-proto, version 1.
const (
	fieldResourceSpans = 1 // of the request

	fieldResource   = 1 // of ResourceSpans
	fieldScopeSpans = 2
	fieldScope      = 1 // of ScopeSpans
	fieldSpan       = 2
	fieldSchemaURL  = 3 // of both

	fieldResourceAttributes        = 1
	fieldResourceDroppedAttributes = 2
	fieldResourceEntities          = 3

	fieldScopeName              = 1
	fieldScopeVersion           = 2
	fieldScopeAttributes        = 3
	fieldScopeDroppedAttributes = 4

	fieldSpanTraceID           = 1
	fieldSpanSpanID            = 2
	fieldSpanTraceState        = 3
	fieldSpanParentID          = 4
	fieldSpanName              = 5
	fieldSpanKind              = 6
	fieldSpanStart             = 7
	fieldSpanEnd               = 8
	fieldSpanAttributes        = 9
	fieldSpanDroppedAttributes = 10
	fieldSpanEvents            = 11
	fieldSpanDroppedEvents     = 12
	fieldSpanLinks             = 13
	fieldSpanDroppedLinks      = 14
	fieldSpanStatus            = 15
	fieldSpanFlags             = 16

	fieldStatusMessage = 2
	fieldStatusCode    = 3

	fieldEventTime              = 1
	fieldEventName              = 2
	fieldEventAttributes        = 3
	fieldEventDroppedAttributes = 4

	fieldLinkTraceID           = 1
	fieldLinkSpanID            = 2
	fieldLinkTraceState        = 3
	fieldLinkAttributes        = 4
	fieldLinkDroppedAttributes = 5
	fieldLinkFlags             = 6

	fieldKey   = 1 // of KeyValue
	fieldValue = 2

	fieldString      = 1 // of AnyValue
	fieldBool        = 2
	fieldInt         = 3
	fieldDouble      = 4
	fieldArray       = 5
	fieldKeyValues   = 6
	fieldBytes       = 7
	fieldStringIndex = 8

	fieldMember = 1 // of ArrayValue and KeyValueList
)

// fields walks the fields of one message. After next, num and typ tell which
// field it is, content holds that of a BytesType field, bits the number of any
// other.
type fields struct {
	left    []byte
	num     protowire.Number
	typ     protowire.Type
	content []byte
	bits    uint64
	err     error
}

func fieldsOf(message []byte) fields { return fields{left: message} }

// next moves to the next field. It gives false at the end and at bytes that are
// no protobuf, and then err says so.
func (f *fields) next() bool {
	if len(f.left) == 0 {
		return false
	}
	if f.short() {
		return true
	}
	num, typ, n := protowire.ConsumeTag(f.left)
	if n < 0 {
		return f.fail(n)
	}
	if num > protowire.MaxValidNumber { // which ConsumeTag lets pass, and no decoder
		f.err = errFieldNumber
		return false
	}
	value := f.left[n:]
	f.num, f.typ, f.content, f.bits = num, typ, nil, 0
	switch typ {
	case protowire.BytesType:
		f.content, n = protowire.ConsumeBytes(value)
	case protowire.VarintType:
		f.bits, n = protowire.ConsumeVarint(value)
	case protowire.Fixed64Type:
		f.bits, n = protowire.ConsumeFixed64(value)
	case protowire.Fixed32Type:
		var bits uint32
		bits, n = protowire.ConsumeFixed32(value)
		f.bits = uint64(bits)
	default: // groups, which OTLP has none of
		n = protowire.ConsumeFieldValue(num, typ, value)
	}
	if n < 0 {
		return f.fail(n)
	}
	f.left = value[n:]
	return true
}

// short reads a BytesType field whose tag and length have one byte each, which
// most have.
func (f *fields) short() bool {
	const one, head = 0x80, 2
	if len(f.left) < head {
		return false
	}
	tag, length := f.left[0], int(f.left[1])
	if tag >= one || tag < 1<<3 || protowire.Type(tag&7) != protowire.BytesType || length >= one || length > len(f.left)-head {
		return false
	}
	f.num, f.typ, f.bits = protowire.Number(tag>>3), protowire.BytesType, 0
	f.content, f.left = f.left[head:head+length:head+length], f.left[head+length:]
	return true
}

var errFieldNumber = errors.New("field number out of range")

func (f *fields) fail(n int) bool {
	f.err = protowire.ParseError(n)
	return false
}

// is tells whether the current field is field num as text, bytes or a message.
func (f *fields) is(num protowire.Number) bool {
	return f.num == num && f.typ == protowire.BytesType
}

// isNumber tells whether it is field num, as a number of that type.
func (f *fields) isNumber(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

// malformed is the final error for bytes that are no OTLP; nil for nil.
func malformed(what string, err error) error {
	if err == nil {
		return nil
	}
	return pluginsdk.Permanent(fmt.Errorf("malformed %s: %w", what, err))
}

// outerLevels checks the levels of a batch that are above its spans, and that
// there are as many spans as the SDK has views of: so the views can be told by
// number.
func outerLevels(b *pluginsdk.Batch, raw []byte) error {
	spans := 0
	resources := fieldsOf(raw)
	for resources.next() {
		if !resources.is(fieldResourceSpans) {
			continue
		}
		scopes := fieldsOf(resources.content)
		for scopes.next() {
			if !scopes.is(fieldScopeSpans) {
				continue
			}
			inScope := fieldsOf(scopes.content)
			for inScope.next() {
				if inScope.is(fieldSpan) {
					spans++
				}
			}
			if inScope.err != nil {
				return malformed("scope", inScope.err)
			}
		}
		if scopes.err != nil {
			return malformed("resource", scopes.err)
		}
	}
	if resources.err != nil {
		return malformed("batch", resources.err)
	}
	if n := b.Len(); n != spans {
		return malformed("batch", fmt.Errorf("it has %d spans and shows %d", spans, n))
	}
	return nil
}

// views are those of a batch by their numbers, which is how a walk over the
// bytes that outerLevels has checked finds what it can edit: both are in the
// same order.
type views struct {
	batch  *pluginsdk.Batch
	spans  []pluginsdk.Span // filled when first asked for
	events []pluginsdk.Event
	links  []pluginsdk.Link
	filled bool
	owner  int // 1 + index of the span whose events and links are filled
}

// reset readies v for another batch and keeps its memory.
func (v *views) reset(b *pluginsdk.Batch) {
	clear(v.spans)
	clear(v.events)
	clear(v.links)
	v.batch, v.spans, v.events, v.links = b, v.spans[:0], v.events[:0], v.links[:0]
	v.filled, v.owner = false, 0
}

// span is the i-th span of the batch's bytes as they were before this processor
// edited anything.
func (v *views) span(i int) pluginsdk.Span {
	if !v.filled {
		v.filled = true
		for span := range v.batch.Spans() {
			v.spans = append(v.spans, span)
		}
	}
	return v.spans[i]
}

func (v *views) own(span int) {
	if v.owner == span+1 {
		return
	}
	v.owner = span + 1
	clear(v.events) // what refers to a batch must not outlive it in a spare walk
	clear(v.links)
	v.events, v.links = v.events[:0], v.links[:0]
	for event := range v.span(span).Events() {
		v.events = append(v.events, event)
	}
	for link := range v.span(span).Links() {
		v.links = append(v.links, link)
	}
}

// event is the i-th event of a span.
func (v *views) event(span, i int) pluginsdk.Event {
	v.own(span)
	return v.events[i]
}

// link is the i-th link of a span.
func (v *views) link(span, i int) pluginsdk.Link {
	v.own(span)
	return v.links[i]
}
