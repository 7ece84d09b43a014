package otlpwire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// part is the content of a message, and its offset in the request. Errors and edits need the
// offset. Content that an edit has made is not in the request and has the offset 0.
type part struct {
	raw  []byte
	base int
}

// join returns the content of a message that is encoded in two pieces, p and next. Protobuf
// merges such pieces by concatenation. join allocates only if both pieces have content. It does
// not overwrite the request, because p.raw has no spare capacity. The caller must not use p
// afterwards.
func (p part) join(next part) part {
	if len(p.raw) == 0 {
		return next
	}
	return part{append(p.raw, next.raw...), p.base}
}

// cursor walks through the fields of a message. The method next moves it to the next field.
type cursor struct {
	part
	pos   int            // offset in the part of the end of the field
	start int            // offset in the part of the tag of the field
	body  int            // offset of the content of a BytesType field
	bits  uint64         // value of a VarintType, Fixed32Type or Fixed64Type field
	num   uint32         // number of the field
	typ   protowire.Type // type of the field
	fault fault          // fault that has ended the walk
}

// A fault is the reason for which a field cannot be read. It is a number and not an error, so
// that a cursor stays small.
type fault uint8

const (
	faultNone fault = iota
	faultNumber
	faultLength
	faultVarint
	faultFixed
	faultGroup

	// Only Check and CheckPatched look for the following faults.
	faultType
	faultText
	faultID
	faultDepth
)

var faultTexts = [...]string{
	faultNumber: "field number out of range",
	faultLength: "length past the end",
	faultVarint: "bad varint",
	faultFixed:  "number past the end",
	faultGroup:  "bad group or wire type",
	faultType:   "known field with the type of another",
	faultText:   "text that is not UTF-8",
	faultID:     "id of the wrong length",
	faultDepth:  "messages nested too deep",
}

// fields returns a cursor before the first field.
func (p part) fields() cursor { return cursor{part: p} }

// next moves to the next field, and reports whether there is one. If the next field is
// malformed, pos stays at its tag. next decodes fields of BytesType without calling another
// function, because all reads use it.
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

// other reads a field that is not of BytesType, from pos on, after its tag. It skips a group:
// OTLP has no groups, but an unknown field may be a group.
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

// is reports whether the current field has this number and is of BytesType, which is the type
// of messages, texts and bytes. In protobuf, a field with a known number and another type is an
// unknown field.
func (c *cursor) is(num uint32) bool { return c.num == num && c.typ == protowire.BytesType }

// isVarint reports whether the current field has this number and is of VarintType.
func (c *cursor) isVarint(num uint32) bool { return c.num == num && c.typ == protowire.VarintType }

// content returns the content of the current field, of BytesType.
func (c *cursor) content() []byte { return c.raw[c.body:c.pos:c.pos] }

// here returns the content of the current field, which is of BytesType, with its offset.
func (c *cursor) here() part { return part{c.content(), c.base + c.body} }

// at returns the offset of the current field in the request.
func (c *cursor) at() int { return c.base + c.start }

// fail records a fault of the field at start. It returns false, for the method next.
func (c *cursor) fail(f fault) bool {
	c.fault = f
	c.pos = c.start
	return false
}

// err returns an error for the fault that has ended the walk. It returns nil if there was no
// fault.
func (c *cursor) err() error {
	if c.fault == faultNone {
		return nil
	}
	return faultAt(c.at(), c.fault)
}

// faultAt returns the error for a fault of the field at an offset of the request.
func faultAt(offset int, f fault) error {
	return fmt.Errorf("malformed OTLP at byte %d: %s", offset, faultTexts[f])
}
