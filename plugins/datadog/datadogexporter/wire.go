package datadogexporter

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// errMalformed is final: the same bytes would be malformed again.
var errMalformed = errors.New("malformed batch: no OTLP")

// cursor walks the fields of one message of OTLP. What it gives lies in the
// batch's own bytes, uncopied. It counts in offsets, for a slice that is moved on
// costs the collector's attention with each field.
type cursor struct {
	raw  []byte
	at   int // of what has not been read
	from int // of the content of a message, text or bytes
	bits uint64
	num  protowire.Number
	typ  protowire.Type
	bad  bool // the rest can not be read
}

func over(message []byte) cursor { return cursor{raw: message} }

// body is the content of a message, text or bytes.
func (c *cursor) body() []byte { return c.raw[c.from:c.at:c.at] }

// next moves to the next field. It is one function for the frequent fields,
// since all reading is made of it.
func (c *cursor) next() bool {
	at := c.at
	if at+1 >= len(c.raw) {
		c.bad = c.bad || at < len(c.raw)
		return false
	}
	tag, size := c.raw[at], c.raw[at+1]
	if tag >= 0x80 || tag < 8 {
		return c.seldom()
	}
	c.num, c.typ = protowire.Number(tag>>3), protowire.Type(tag&7)
	switch {
	case c.typ == protowire.BytesType && size < 0x80:
		c.from = at + 2
		c.at = c.from + int(size)
		c.bad = c.at > len(c.raw)
		return !c.bad
	case c.typ == protowire.VarintType && size < 0x80:
		c.bits, c.at = uint64(size), at+2
		return true
	case c.typ == protowire.Fixed64Type && at+9 <= len(c.raw):
		c.bits, c.at = binary.LittleEndian.Uint64(c.raw[at+1:]), at+9
		return true
	}
	return c.seldom()
}

// seldom reads a field of any form.
func (c *cursor) seldom() bool {
	left := c.raw[c.at:]
	num, typ, tag := protowire.ConsumeTag(left)
	if tag < 0 || num > protowire.MaxValidNumber { // which ConsumeTag lets through
		c.bad = true
		return false
	}
	var n int
	switch left = left[tag:]; typ {
	case protowire.VarintType:
		c.bits, n = protowire.ConsumeVarint(left)
	case protowire.Fixed64Type:
		c.bits, n = protowire.ConsumeFixed64(left)
	case protowire.Fixed32Type:
		var bits uint32
		bits, n = protowire.ConsumeFixed32(left)
		c.bits = uint64(bits)
	case protowire.BytesType:
		var body []byte
		body, n = protowire.ConsumeBytes(left)
		c.from = c.at + tag + n - len(body)
	default:
		n = protowire.ConsumeFieldValue(num, typ, left)
	}
	if n < 0 {
		c.bad = true
		return false
	}
	c.num, c.typ, c.at = num, typ, c.at+tag+n
	return true
}

// is tells whether the field is num as a message, text or bytes. A known number
// of another type is an unknown field.
func (c *cursor) is(num protowire.Number) bool {
	return c.num == num && c.typ == protowire.BytesType
}

// join is the content of a message that came in two pieces, which hardly any
// sender makes: protobuf merges by concatenation. What stands in a batch has no
// room behind it, so that the first append makes some. before must not be used any
// more.
func join(before, piece []byte) []byte {
	if len(before) == 0 {
		return piece
	}
	return append(before, piece...)
}

// view is bytes of the batch as a string. They do not change while the batch
// lives, and no text that is read from them outlives its payload, but for keys,
// which are copied.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// id reads an id of eight bytes; zero if it has another length.
func id(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// traceID is the two halves of a trace id; zero if it has not 16 bytes.
type traceID struct{ high, low uint64 }

func readTraceID(b []byte) traceID {
	if len(b) != 16 {
		return traceID{}
	}
	return traceID{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}
