package pywire

import (
	"errors"
	"math"

	"github.com/tinylib/msgp/msgp"
)

var errNumber = errors.New("a number is out of range")

// reader reads msgpack values from the start of b, in order. After the first error, each read
// returns zero.
type reader struct {
	b   []byte
	err error
}

// next reads a value with a function of package msgp. After an error it returns zero.
func next[T any](r *reader, read func([]byte) (T, []byte, error)) (v T) {
	if r.err != nil {
		return v
	}
	value, rest, err := read(r.b)
	if err != nil {
		r.err = err
		return v
	}
	r.b = rest
	return value
}

// kind returns the type of the next value.
func (r *reader) kind() msgp.Type { return msgp.NextType(r.b) }

// null reports whether the next value is nil, and skips it in this case.
func (r *reader) null() bool {
	if r.err != nil || !msgp.IsNil(r.b) {
		return false
	}
	r.b = r.b[1:]
	return true
}

// skip skips the next value. It returns the bytes that begin with this value.
func (r *reader) skip() []byte {
	from := r.b
	next(r, func(b []byte) (struct{}, []byte, error) {
		rest, err := msgp.Skip(b)
		return struct{}{}, rest, err
	})
	return from
}

// text reads a string, or nil as an empty string. The result is a part of b.
func (r *reader) text() []byte {
	if r.null() {
		return nil
	}
	return next(r, msgp.ReadStringZC)
}

// bytes reads a binary, or nil as an empty binary. The result is a part of b.
func (r *reader) bytes() []byte {
	if r.null() {
		return nil
	}
	return next(r, msgp.ReadBytesZC)
}

func (r *reader) uint() uint64   { return next(r, msgp.ReadUint64Bytes) }
func (r *reader) int() int64     { return next(r, msgp.ReadInt64Bytes) }
func (r *reader) float() float64 { return next(r, msgp.ReadFloat64Bytes) }

// uint32 reads a number that must fit into 32 bits.
func (r *reader) uint32() uint64 {
	v := r.uint()
	if v > math.MaxUint32 && r.err == nil {
		r.err = errNumber
	}
	return v
}

// bit reads a boolean. It returns 1 for true and 0 for false.
func (r *reader) bit() uint64 {
	if next(r, msgp.ReadBoolBytes) {
		return 1
	}
	return 0
}

// array reads the head of an array and returns the number of members. It returns 0 for
// nil.
func (r *reader) array() uint32 {
	if r.null() {
		return 0
	}
	return next(r, msgp.ReadArrayHeaderBytes)
}

// mapping reads the head of a map and returns the number of its keys. It returns 0 for nil.
func (r *reader) mapping() uint32 {
	if r.null() {
		return 0
	}
	return next(r, msgp.ReadMapHeaderBytes)
}
