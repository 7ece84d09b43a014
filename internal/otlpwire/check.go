package otlpwire

import (
	"sync"
	"unicode/utf8"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Check reads all messages of an encoded ExportTraceServiceRequest, to the innermost
// value. It returns the number of the spans, and the number of spans that are larger than
// maxSpan bytes. The error names the offset of the first fault: bytes that are no protobuf, a
// known field with a wrong type, text that is not UTF-8, an id of the wrong length, or
// messages or groups nested deeper than 100 levels. Servers that use the stock protobuf
// libraries refuse a whole request because of a single such fault. Unknown fields are
// allowed.
func Check(req []byte, maxSpan int) (spans, tooLarge int, err error) {
	c := checker{req: req, maxSpan: maxSpan}
	err = c.check(0, len(req), requestForm(), 0)
	return c.spans, c.tooLarge, err
}

// maxLevels is the default limit for the depth of messages of protobuf in C++, Java and
// Python.
const maxLevels = 100

// checker checks one request.
type checker struct {
	req             []byte
	maxSpan         int // size in bytes above which a span counts as too large
	spans, tooLarge int
}

// check checks the message from pos to end in the request. of describes its fields, and depth is
// the number of messages around it. Each byte of a request passes through check, so check reads
// known fields without a cursor, which would be slower.
func (c *checker) check(pos, end int, of *form, depth int) error {
	if of.isKeyValue && depth < maxLevels && isPlain(c.req[pos:end]) {
		return nil
	}
	raw, start := c.req[:end], pos
	for pos < end {
		start = pos
		tag, n := uint64(raw[pos]), 1
		if tag >= 0x80 {
			tag, n = protowire.ConsumeVarint(raw[pos:])
		}
		r := of.rule(tag >> 3) // the rule of an unknown field if the tag cannot be read
		if !r.known || r.typ != protowire.Type(tag&7) {
			var err error
			if pos, err = c.skip(start, end, r, depth); err != nil {
				return err
			}
			continue
		}
		pos += n
		if r.size > 0 {
			pos += int(r.size)
			continue
		}
		if pos == end {
			return faultAt(start, faultVarint)
		}
		length, n := uint64(raw[pos]), 1 // the length of the content, or the number itself
		if length >= 0x80 {
			length, n = protowire.ConsumeVarint(raw[pos:])
		}
		pos += n
		switch {
		case n < 0:
			return faultAt(start, faultVarint)
		case r.typ == protowire.VarintType:
			continue
		case length > uint64(end-pos):
			return faultAt(start, faultLength)
		}
		body := pos
		pos += int(length)
		if r.of != nil {
			if depth == maxLevels {
				return faultAt(start, faultDepth)
			}
			if err := c.check(body, pos, r.of, depth+1); err != nil {
				return err
			}
			if r.of.isSpan {
				c.count(pos - body)
			}
		} else if fault := r.fault(raw[body:pos]); fault != faultNone {
			return faultAt(start, fault)
		}
	}
	if pos > end { // at this point, only a number of fixed length can be too long
		return faultAt(start, faultFixed)
	}
	return nil
}

// fault returns the fault in the content of a text, an id or another field of bytes.
func (r *rule) fault(content []byte) fault {
	switch {
	case r.text && !utf8.Valid(content):
		return faultText
	case r.idBytes > 0 && len(content) > 0 && len(content) != int(r.idBytes): // an empty id is valid
		return faultID
	}
	return faultNone
}

// skip returns the end of the field at start, which is unknown or does not have the type of its
// rule r. It returns an error if a known field has a wrong type, or the field is malformed.
func (c *checker) skip(start, end int, r *rule, depth int) (int, error) {
	f := cursor{part: part{c.req[:end], 0}, pos: start}
	switch {
	case !f.next():
		return 0, f.err()
	case r.known:
		return 0, faultAt(start, faultType)
	case f.typ == protowire.StartGroupType && depth+nestedGroups(c.req[start:f.pos]) > maxLevels:
		return 0, faultAt(start, faultDepth)
	}
	return f.pos, nil
}

// nestedGroups returns the number of levels of groups in an encoded group, including the group
// itself. OTLP has no groups, but the stock protobuf libraries count the levels of unknown
// groups for their limit of the depth.
func nestedGroups(group []byte) (deepest int) {
	depth := 0
	for len(group) > 0 {
		num, typ, n := protowire.ConsumeTag(group)
		group = group[n:]
		switch typ {
		case protowire.StartGroupType:
			depth++
			deepest = max(deepest, depth)
		case protowire.EndGroupType:
			depth--
		default:
			group = group[protowire.ConsumeFieldValue(num, typ, group):]
		}
	}
	return deepest
}

// count counts a span of this size.
func (c *checker) count(bytes int) {
	c.spans++
	if bytes > c.maxSpan {
		c.tooLarge++
	}
}

// isPlain reports whether a KeyValue is valid and has the usual form: a key and then a value
// that is a text, a bool, an integer or a double. A KeyValue in another form may be valid, too.
// Most bytes of a request are in such KeyValues, and isPlain is faster than the method check.
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

// form describes the fields of a type of message.
type form struct {
	rules      []rule // indexed by field number
	isSpan     bool
	isKeyValue bool
	holdsSpans bool // spans are in the message, or in messages inside
}

// rule describes a field of a message. The zero rule is for an unknown field.
type rule struct {
	of      *form // form of the message in the field, nil if the field is no message
	typ     protowire.Type
	known   bool
	text    bool
	idBytes uint8 // length of the id, 0 if the field is no id
	size    uint8 // length of a number of fixed length, else 0
}

// unknown is the rule of an unknown field.
var unknown rule

// rule returns the rule of a field, which must not be changed.
func (f *form) rule(num uint64) *rule {
	if num < uint64(len(f.rules)) {
		return &f.rules[num]
	}
	return &unknown
}

// requestForm returns the form of an ExportTraceServiceRequest. It makes the form from
// TracesData, a message with the same encoding. The package of TracesData links no HTTP gateway.
var requestForm = sync.OnceValue(func() *form {
	return formOf(new(tracepb.TracesData).ProtoReflect().Descriptor(), map[protoreflect.FullName]*form{})
})

// formOf returns the form of a type of message in OTLP's generated code. known has the forms
// that are already made, because types of messages contain each other.
func formOf(message protoreflect.MessageDescriptor, known map[protoreflect.FullName]*form) *form {
	if f := known[message.FullName()]; f != nil {
		return f
	}
	f := &form{isSpan: message.Name() == "Span", isKeyValue: message.Name() == "KeyValue"}
	known[message.FullName()] = f
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		r := rule{known: true, typ: protowire.VarintType}
		switch field.Kind() {
		case protoreflect.MessageKind:
			r.typ, r.of = protowire.BytesType, formOf(field.Message(), known)
			f.holdsSpans = f.holdsSpans || r.of.isSpan || r.of.holdsSpans
		case protoreflect.StringKind:
			r.typ, r.text = protowire.BytesType, true
		case protoreflect.BytesKind:
			r.typ, r.idBytes = protowire.BytesType, idBytes[field.Name()]
		case protoreflect.Fixed64Kind, protoreflect.DoubleKind:
			r.typ, r.size = protowire.Fixed64Type, 8
		case protoreflect.Fixed32Kind:
			r.typ, r.size = protowire.Fixed32Type, 4
		}
		number := int(field.Number())
		f.rules = append(f.rules, make([]rule, max(0, number+1-len(f.rules)))...)
		f.rules[number] = r
	}
	return f
}

// idBytes has the lengths of OTLP's ids in bytes, by the name of the field.
var idBytes = map[protoreflect.Name]uint8{"trace_id": 16, "span_id": 8, "parent_span_id": 8}
