package otlpwire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Check reads all messages of an encoded ExportTraceServiceRequest, to the innermost
// value, and returns the number of its spans and how many of them are larger than
// maxSpan bytes. The error names the offset of the first fault: bytes that are no
// protobuf, a known field of another type, text that is not UTF-8, an id of the wrong
// length, or messages nested deeper than 100 levels. Servers written with the stock
// libraries refuse a whole request for each of them. Unknown fields are allowed.
func Check(req []byte, maxSpan int) (spans, tooLarge int, err error) {
	c := checker{maxSpan: maxSpan}
	err = c.check(part{req, 0}, formRequest, 0)
	return c.spans, c.tooLarge, err
}

// maxLevels is the default limit of nested messages in protobuf for C++, Java and Python.
const maxLevels = 100

type checker struct {
	maxSpan         int
	spans, tooLarge int
}

// check reads the message p of the given form, at a depth below the request.
func (c *checker) check(p part, of formID, depth int) error {
	if of == formSpan {
		c.spans++
		if len(p.raw) > c.maxSpan {
			c.tooLarge++
		}
	}
	rules := messageForms[of]
	f := p.fields()
	for f.next() {
		if int(f.num) >= len(rules) || rules[f.num].want == wantNothing {
			continue
		}
		r := rules[f.num]
		if fault := r.fault(&f); fault != faultNone {
			f.fail(fault)
			break
		}
		if r.want != wantMessage {
			continue
		}
		if depth == maxLevels {
			f.fail(faultDepth)
			break
		}
		if err := c.check(f.here(), r.of, depth+1); err != nil {
			return err
		}
	}
	return f.err()
}

// A want is the type of a known field.
type want uint8

const (
	wantNothing want = iota // the field is unknown
	wantMessage
	wantText
	wantBytes
	wantTraceID
	wantSpanID
	wantVarint
	wantFixed32
	wantFixed64
)

var wireTypes = [...]protowire.Type{
	wantMessage: protowire.BytesType,
	wantText:    protowire.BytesType,
	wantBytes:   protowire.BytesType,
	wantTraceID: protowire.BytesType,
	wantSpanID:  protowire.BytesType,
	wantVarint:  protowire.VarintType,
	wantFixed32: protowire.Fixed32Type,
	wantFixed64: protowire.Fixed64Type,
}

// rule is the type of a field, and of a message its form.
type rule struct {
	want want
	of   formID
}

// fault returns the reason that the current field breaks the rule. It does not read
// inside a message.
func (r rule) fault(f *cursor) fault {
	if f.typ != wireTypes[r.want] {
		return faultType
	}
	switch r.want {
	case wantText:
		if !utf8.Valid(f.content()) {
			return faultText
		}
	case wantTraceID:
		return faultOfID(f.content(), 16)
	case wantSpanID:
		return faultOfID(f.content(), 8)
	}
	return faultNone
}

// faultOfID checks an id, which may be empty.
func faultOfID(id []byte, length int) fault {
	if len(id) != 0 && len(id) != length {
		return faultID
	}
	return faultNone
}

// A formID names a form of message.
type formID uint8

const (
	formRequest formID = iota
	formResourceSpans
	formResource
	formEntity
	formScopeSpans
	formScope
	formSpan
	formEvent
	formLink
	formStatus
	formKeyValue
	formAny
	formArray
	formKeyValues
)

// messageForms lists the fields of each form of message, by field number.
var messageForms = [...][]rule{
	formRequest: {field.RequestResourceSpans: {want: wantMessage, of: formResourceSpans}},
	formResourceSpans: {
		field.ResourceSpansResource:   {want: wantMessage, of: formResource},
		field.ResourceSpansScopeSpans: {want: wantMessage, of: formScopeSpans},
		field.ResourceSpansSchemaURL:  {want: wantText},
	},
	formResource: {
		field.ResourceAttributes:        {want: wantMessage, of: formKeyValue},
		field.ResourceDroppedAttributes: {want: wantVarint},
		field.ResourceEntityRefs:        {want: wantMessage, of: formEntity},
	},
	formEntity: {
		field.EntitySchemaURL:       {want: wantText},
		field.EntityType:            {want: wantText},
		field.EntityIDKeys:          {want: wantText},
		field.EntityDescriptionKeys: {want: wantText},
	},
	formScopeSpans: {
		field.ScopeSpansScope:     {want: wantMessage, of: formScope},
		field.ScopeSpansSpans:     {want: wantMessage, of: formSpan},
		field.ScopeSpansSchemaURL: {want: wantText},
	},
	formScope: {
		field.ScopeName:              {want: wantText},
		field.ScopeVersion:           {want: wantText},
		field.ScopeAttributes:        {want: wantMessage, of: formKeyValue},
		field.ScopeDroppedAttributes: {want: wantVarint},
	},
	formSpan: {
		field.SpanTraceID:           {want: wantTraceID},
		field.SpanSpanID:            {want: wantSpanID},
		field.SpanTraceState:        {want: wantText},
		field.SpanParentID:          {want: wantSpanID},
		field.SpanName:              {want: wantText},
		field.SpanKind:              {want: wantVarint},
		field.SpanStart:             {want: wantFixed64},
		field.SpanEnd:               {want: wantFixed64},
		field.SpanAttributes:        {want: wantMessage, of: formKeyValue},
		field.SpanDroppedAttributes: {want: wantVarint},
		field.SpanEvents:            {want: wantMessage, of: formEvent},
		field.SpanDroppedEvents:     {want: wantVarint},
		field.SpanLinks:             {want: wantMessage, of: formLink},
		field.SpanDroppedLinks:      {want: wantVarint},
		field.SpanStatus:            {want: wantMessage, of: formStatus},
		field.SpanFlags:             {want: wantFixed32},
	},
	formEvent: {
		field.EventTime:              {want: wantFixed64},
		field.EventName:              {want: wantText},
		field.EventAttributes:        {want: wantMessage, of: formKeyValue},
		field.EventDroppedAttributes: {want: wantVarint},
	},
	formLink: {
		field.LinkTraceID:           {want: wantTraceID},
		field.LinkSpanID:            {want: wantSpanID},
		field.LinkTraceState:        {want: wantText},
		field.LinkAttributes:        {want: wantMessage, of: formKeyValue},
		field.LinkDroppedAttributes: {want: wantVarint},
		field.LinkFlags:             {want: wantFixed32},
	},
	formStatus: {
		field.StatusMessage: {want: wantText},
		field.StatusCode:    {want: wantVarint},
	},
	formKeyValue: {
		field.KeyValueKey:   {want: wantText},
		field.KeyValueValue: {want: wantMessage, of: formAny},
	},
	formAny: {
		field.AnyString:    {want: wantText},
		field.AnyBool:      {want: wantVarint},
		field.AnyInt:       {want: wantVarint},
		field.AnyDouble:    {want: wantFixed64},
		field.AnyArray:     {want: wantMessage, of: formArray},
		field.AnyKeyValues: {want: wantMessage, of: formKeyValues},
		field.AnyBytes:     {want: wantBytes},
	},
	formArray:     {field.ListValues: {want: wantMessage, of: formAny}},
	formKeyValues: {field.ListValues: {want: wantMessage, of: formKeyValue}},
}
