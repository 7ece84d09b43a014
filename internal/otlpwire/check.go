package otlpwire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Check reads all messages of an encoded ExportTraceServiceRequest, to the innermost
// value, and returns the number of its spans and how many of them are larger than maxSpan
// bytes. The error names the offset of the first fault: bytes that are no protobuf, a
// known field of another type, text that is not UTF-8, an id of the wrong length, or
// messages nested deeper than 100 levels. Servers written with the stock libraries refuse
// a whole request because of a single such fault. Unknown fields are allowed.
func Check(req []byte, maxSpan int) (spans, tooLarge int, err error) {
	c := checker{req: req, maxSpan: maxSpan}
	err = c.check(0, len(req), formRequest, 0)
	return c.spans, c.tooLarge, err
}

// maxLevels is the default limit for the depth of messages of protobuf in C++, Java and
// Python.
const maxLevels = 100

type checker struct {
	req             []byte
	maxSpan         int
	spans, tooLarge int
}

// check reads the message of a form from pos to end in the request, at a depth.
func (c *checker) check(pos, end int, of formID, depth int) error {
	if of == formKeyValue && depth < maxLevels && isPlain(c.req[pos:end]) {
		return nil
	}
	f := cursor{part: part{c.req[:end], 0}, pos: pos}
	for f.next() {
		switch r := ruleFor(of, f.num); {
		case r.want == wantNothing:
		case f.typ != wireTypes[r.want]:
			return faultAt(f.start, faultType)
		case r.want == wantMessage && depth == maxLevels:
			return faultAt(f.start, faultDepth)
		case r.want == wantMessage:
			if err := c.check(f.body, f.pos, r.of, depth+1); err != nil {
				return err
			}
			if r.of == formSpan {
				c.count(uint64(f.pos - f.body))
			}
		case f.typ == protowire.BytesType:
			if fault := r.fault(f.content()); fault != faultNone {
				return faultAt(f.start, fault)
			}
		}
	}
	return f.err()
}

// ruleFor returns the rule of a field, or the zero rule for an unknown field.
func ruleFor(of formID, num uint32) rule {
	if rules := messageForms[of]; num < uint32(len(rules)) {
		return rules[num]
	}
	return rule{}
}

// isPlain reports whether a KeyValue is valid and has the usual form: a key and then a
// value, which is a text, a bool, an integer or a double. Most bytes of a request belong
// to such a KeyValue.
func isPlain(kv []byte) bool {
	if len(kv) < 2 || kv[0] != field.KeyValueKey<<3|2 || kv[1] >= 0x80 {
		return false
	}
	size := 2 + int(kv[1])
	if size > len(kv) {
		return false
	}
	key, value := kv[2:size], kv[size:]
	if len(value) < 4 || value[1] >= 0x80 || value[0] != field.KeyValueValue<<3|2 || int(value[1]) != len(value)-2 || !utf8.Valid(key) {
		return false
	}
	switch value = value[2:]; value[0] {
	case field.AnyString<<3 | 2:
		return int(value[1]) == len(value)-2 && utf8.Valid(value[2:])
	case field.AnyBool << 3, field.AnyInt << 3:
		_, n := protowire.ConsumeVarint(value[1:])
		return n == len(value)-1
	case field.AnyDouble<<3 | 1:
		return len(value) == 9
	}
	return false
}

// fault returns the fault of a text, bytes or an id, if the content breaks the rule. An id
// may be empty.
func (r rule) fault(content []byte) fault {
	switch {
	case r.want == wantText && !utf8.Valid(content):
		return faultText
	case len(content) == 0:
		return faultNone
	case r.want == wantTraceID && len(content) != 16, r.want == wantSpanID && len(content) != 8:
		return faultID
	}
	return faultNone
}

// count counts a span with its size.
func (c *checker) count(bytes uint64) {
	c.spans++
	if bytes > uint64(c.maxSpan) {
		c.tooLarge++
	}
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

// rule is the type of a field. If the field is a message, it also has the form of the
// message.
type rule struct {
	want want
	of   formID
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
