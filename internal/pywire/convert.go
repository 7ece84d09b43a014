package pywire

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/tinylib/msgp/msgp"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

const (
	version  = 1
	maxList  = 1 << 16 // largest number of members of a list or a map
	maxDepth = 16      // largest number of levels of lists and maps in the value of an attribute
)

// Errors of Convert. Further errors come from package msgp.
var (
	errVersion = errors.New("the version of the batch is unknown")
	errList    = fmt.Errorf("a list has more than %d members", maxList)
	errDepth   = fmt.Errorf("a value has more than %d levels", maxDepth)
	errMembers = errors.New("a list has another number of members")
)

// ErrTooLarge is the error of Convert if the request would have more bytes than maxBytes.
var ErrTooLarge = errors.New("the request is too large")

// maxKept is the largest buffer, in bytes, that a Converter keeps between two calls.
const maxKept = 4 << 20

// Converter converts requests from the compact form to OTLP. It reuses its buffer. The
// zero value is ready for use. It is not safe for concurrent use.
type Converter struct {
	w      otlpwire.Writer
	max    int
	starts []int // starts of the members of the lists that are being read, as distances from the end of the data
	err    error // the first error; after an error, nothing is read any more
}

// Convert converts batches in the compact form to an OTLP request of at most maxBytes bytes. The
// request is valid until the next call, and does not refer to data. The error has the kind of
// the malformed message and the cause.
func (c *Converter) Convert(data []byte, maxBytes int) ([]byte, error) {
	c.w.Reset(maxKept)
	c.max, c.starts, c.err = maxBytes, c.starts[:0], nil
	var batches uint32
	for rest := data; len(rest) > 0; batches++ {
		var err error
		if rest, err = msgp.Skip(rest); err != nil {
			return nil, fmt.Errorf("batch: %w", err)
		}
	}
	c.each("batch", data, batches, 1, c.batch)
	return c.w.Bytes(), c.err
}

// fail keeps the first error, with its place. err may be nil.
func (c *Converter) fail(place string, err error) {
	if c.err == nil && err != nil {
		c.err = fmt.Errorf("%s: %w", place, err)
	}
}

// record reads the head of an array that must have the given number of members. It reports
// whether there was no error so far.
func (c *Converter) record(r *reader, place string, members uint32) bool {
	if n := r.array(); r.err == nil && n != members {
		r.err = errMembers
	}
	return c.ok(r, place)
}

// ok keeps the error of r, and ErrTooLarge if the written request is too large. It reports whether
// there was no error so far.
func (c *Converter) ok(r *reader, place string) bool {
	c.fail(place, r.err)
	if c.w.Len() > c.max {
		c.fail(place, ErrTooLarge)
	}
	return c.err == nil
}

// each calls write for each of the n members in data, from the last to the first, because a Writer
// writes from the end. Each member consists of the given number of msgpack values.
func (c *Converter) each(place string, data []byte, n uint32, values int, write func(*reader)) {
	if n > maxList {
		c.fail(place, errList)
		return
	}
	first := len(c.starts)
	for rest := data; n > 0; n-- {
		c.starts = append(c.starts, len(rest))
		for range values {
			var err error
			if rest, err = msgp.Skip(rest); err != nil {
				c.fail(place, err)
				return
			}
		}
	}
	for i := len(c.starts) - 1; i >= first && c.err == nil; i-- {
		r := reader{b: data[len(data)-c.starts[i]:]}
		write(&r)
		c.ok(&r, place)
	}
	c.starts = c.starts[:first]
}

// list reads an array, and calls write for each of its members.
func (c *Converter) list(place string, data []byte, write func(*reader)) {
	r := reader{b: data}
	n := r.array()
	if c.ok(&r, place) {
		c.each(place, r.b, n, 1, write)
	}
}

// attributes writes a map as a repeated KeyValue field.
func (c *Converter) attributes(num int, data []byte, depth int) {
	r := reader{b: data}
	n := r.mapping()
	if !c.ok(&r, "attributes") {
		return
	}
	c.each("attributes", r.b, n, 2, func(r *reader) {
		end := c.w.Len()
		key := r.text()
		if !c.ok(r, "attributes") {
			return
		}
		c.value(r, depth)
		c.w.Message(field.KeyValueValue, end)
		text(&c.w, field.KeyValueKey, key)
		c.w.Message(num, end)
	})
}

// value reads a value and writes it as the content of an AnyValue. It writes the member of the
// oneof even if the member is zero, so that its type is known.
func (c *Converter) value(r *reader, depth int) {
	if depth > maxDepth {
		c.fail("value", errDepth)
		return
	}
	end := c.w.Len()
	switch r.kind() {
	case msgp.StrType:
		wholeText(&c.w, field.AnyString, r.text())
	case msgp.BinType:
		c.w.Content(field.AnyBytes, r.bytes())
	case msgp.BoolType:
		c.w.Varint(field.AnyBool, r.bit())
	case msgp.IntType:
		c.w.Varint(field.AnyInt, uint64(r.int())) //nolint:gosec // OTLP's two's complement
	case msgp.UintType:
		if v := r.uint(); v > math.MaxInt64 {
			c.w.Text(field.AnyString, strconv.FormatUint(v, 10)) // OTLP has no integer of this size
		} else {
			c.w.Varint(field.AnyInt, v)
		}
	case msgp.Float64Type, msgp.Float32Type:
		c.w.Double(field.AnyDouble, math.Float64bits(r.float()))
	case msgp.NilType:
	case msgp.ArrayType:
		c.list("value", r.b, func(m *reader) {
			end := c.w.Len()
			c.value(m, depth+1)
			c.w.Message(field.ListValues, end)
		})
		c.w.Message(field.AnyArray, end)
	case msgp.MapType:
		c.attributes(field.ListValues, r.b, depth+1)
		c.w.Message(field.AnyKeyValues, end)
	default:
		r.err = fmt.Errorf("a value of type %s", r.kind())
	}
	c.ok(r, "value")
}
