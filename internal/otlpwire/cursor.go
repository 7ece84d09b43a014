package otlpwire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// part is a piece of a request: a message's content, and where in the request
// it starts, for the offset in an error. Content that an edit made is
// well-formed, so its base is never read.
type part struct {
	raw  []byte
	base int
}

// join gives the content of a message that came in two pieces: protobuf merges
// messages by concatenation. It copies only where a sender did so strange a
// thing: what stands in a request has no room behind it, so the first append
// makes some. p must not be used any more.
func (p part) join(next part) part {
	if len(p.raw) == 0 {
		return next
	}
	return part{append(p.raw, next.raw...), p.base}
}

// cursor walks the fields of one message. After next, start is the offset of
// the field's tag within the part and pos that of its end. It is small and next
// is one function for the frequent fields, since all reading is made of it.
type cursor struct {
	part
	pos   int
	start int
	body  int    // offset of the content of a BytesType field
	bits  uint64 // value of a VarintType, Fixed32Type or Fixed64Type field
	num   uint32
	typ   protowire.Type
	fault fault
}

// A fault is why a field cannot be read.
type fault uint8

const (
	faultNone fault = iota
	faultNumber
	faultLength
	faultVarint
	faultFixed
	faultGroup
)

func (f fault) String() string {
	return [...]string{
		faultNone:   "no fault",
		faultNumber: "field number out of range",
		faultLength: "length past the end",
		faultVarint: "bad varint",
		faultFixed:  "number past the end",
		faultGroup:  "bad group or wire type",
	}[f]
}

func (p part) fields() cursor { return cursor{part: p} }

// next moves to the next field. At a fault it gives false and leaves pos at the
// tag of the field that cannot be read.
func (c *cursor) next() bool {
	raw, pos := c.raw, c.pos
	if pos >= len(raw) {
		return false
	}
	c.start = pos
	tag := uint64(raw[pos])
	pos++
	if tag >= 0x80 {
		var n int
		if tag, n = protowire.ConsumeVarint(raw[c.start:]); n < 0 {
			return c.fail(faultVarint)
		}
		pos = c.start + n
	}
	c.num, c.typ = uint32(tag>>3), protowire.Type(tag&7)
	if num := tag >> 3; num == 0 || num > uint64(protowire.MaxValidNumber) {
		return c.fail(faultNumber)
	}
	if c.typ != protowire.BytesType {
		return c.other(pos)
	}
	if pos >= len(raw) {
		return c.fail(faultVarint)
	}
	length := uint64(raw[pos])
	pos++
	if length >= 0x80 {
		var n int
		if length, n = protowire.ConsumeVarint(raw[pos-1:]); n < 0 {
			return c.fail(faultVarint)
		}
		pos += n - 1
	}
	if length > uint64(len(raw)-pos) {
		return c.fail(faultLength)
	}
	c.body, c.pos = pos, pos+int(length)
	return true
}

// other reads a field that is not of BytesType. A group, which OTLP has none of
// but an unknown field may be, is stepped over.
func (c *cursor) other(pos int) bool {
	var n int
	wrong := faultFixed
	switch left := c.raw[pos:]; c.typ {
	case protowire.VarintType:
		c.bits, n = protowire.ConsumeVarint(left)
		wrong = faultVarint
	case protowire.Fixed64Type:
		c.bits, n = protowire.ConsumeFixed64(left)
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(left)
		c.bits = uint64(v)
	default:
		n = protowire.ConsumeFieldValue(protowire.Number(c.num), c.typ, left)
		wrong = faultGroup
	}
	if n < 0 {
		return c.fail(wrong)
	}
	c.pos = pos + n
	return true
}

// is tells whether the current field is field num as a message, text or bytes.
// A known number with another type is an unknown field, as protobuf has it.
func (c *cursor) is(num uint32) bool { return c.num == num && c.typ == protowire.BytesType }

// isVarint does for varints what is does for content.
func (c *cursor) isVarint(num uint32) bool { return c.num == num && c.typ == protowire.VarintType }

// content is that of the current field, which is of BytesType.
func (c *cursor) content() []byte { return c.raw[c.body:c.pos:c.pos] }

// here is the same with its place in the request.
func (c *cursor) here() part { return part{c.content(), c.base + c.body} }

// at is the offset of the current field in the request.
func (c *cursor) at() int { return c.base + c.start }

func (c *cursor) fail(f fault) bool {
	c.fault = f
	c.pos = c.start
	return false
}

// err says what stopped next: nil at the end of the message.
func (c *cursor) err() error {
	if c.fault == faultNone {
		return nil
	}
	return c.faultError()
}

func (c *cursor) faultError() error {
	return fmt.Errorf("malformed OTLP at byte %d: %v", c.at(), c.fault)
}
