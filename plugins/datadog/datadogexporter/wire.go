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
// batch's own bytes, uncopied.
type cursor struct {
	left []byte
	num  protowire.Number
	typ  protowire.Type
	bits uint64 // of a number
	body []byte // of a message, text or bytes
	bad  bool   // the rest can not be read
}

// next moves to the next field. It is one function for the frequent fields,
// since all reading is made of it.
func (c *cursor) next() bool {
	left := c.left
	if len(left) < 2 {
		c.bad = c.bad || len(left) != 0
		return false
	}
	if tag, size := left[0], left[1]; tag < 0x80 && size < 0x80 && protowire.Type(tag&7) == protowire.BytesType && tag >= 8 {
		c.num, c.typ = protowire.Number(tag>>3), protowire.BytesType
		end := 2 + int(size)
		if end > len(left) {
			c.bad = true
			return false
		}
		c.body, c.left = left[2:end:end], left[end:]
		return true
	}
	return c.seldom()
}

// seldom reads a field of any form.
func (c *cursor) seldom() bool {
	num, typ, n := protowire.ConsumeTag(c.left)
	if n < 0 {
		c.bad = true
		return false
	}
	left := c.left[n:]
	switch typ {
	case protowire.VarintType:
		c.bits, n = protowire.ConsumeVarint(left)
	case protowire.Fixed64Type:
		c.bits, n = protowire.ConsumeFixed64(left)
	case protowire.Fixed32Type:
		var bits uint32
		bits, n = protowire.ConsumeFixed32(left)
		c.bits = uint64(bits)
	case protowire.BytesType:
		c.body, n = protowire.ConsumeBytes(left)
	default:
		n = protowire.ConsumeFieldValue(num, typ, left)
	}
	if n < 0 {
		c.bad = true
		return false
	}
	c.num, c.typ, c.left = num, typ, left[n:]
	return true
}

// is tells whether the field is num as a message, text or bytes. A known number
// of another type is an unknown field.
func (c *cursor) is(num protowire.Number) bool {
	return c.num == num && c.typ == protowire.BytesType
}

// join is the content of a message that came in two pieces, which hardly any
// sender makes: protobuf merges by concatenation.
func join(before, piece []byte) []byte {
	if len(before) == 0 {
		return piece
	}
	return append(before[:len(before):len(before)], piece...)
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
