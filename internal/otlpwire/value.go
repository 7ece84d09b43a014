package otlpwire

import (
	"errors"
	"math"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// maxDepth bounds the number of levels of arrays and maps in a decoded value, because each
// level uses stack. Other protobuf decoders stop at a depth of 100 messages, too.
const maxDepth = 100

var errDepth = errors.New("value nested deeper than 100 levels")

// value decodes the AnyValue p. The result does not refer to the request. An array of only
// bools, only integers, only floats or only strings becomes a slice of that type. Any other
// array, and an empty array, becomes a value of type attribute.SLICE. If arrays and maps are
// nested deeper than depth levels, the inner values are empty, and a fault is recorded.
func (r *Request) value(p part, depth int) attribute.Value {
	num, bits, content := r.member(p)
	switch num {
	case field.AnyString:
		return attribute.StringValue(string(content.raw))
	case field.AnyBool:
		return attribute.BoolValue(bits != 0)
	case field.AnyInt:
		return attribute.Int64Value(int64(bits))
	case field.AnyDouble:
		return attribute.Float64Value(math.Float64frombits(bits))
	case field.AnyBytes:
		return attribute.ByteSliceValue(content.raw)
	case field.AnyArray, field.AnyKeyValues:
		if depth <= 0 {
			r.note(errDepth)
			return attribute.Value{}
		}
		if num == field.AnyArray {
			return r.array(content, depth-1)
		}
		return r.mapValue(content, depth-1)
	}
	return attribute.Value{}
}

// member returns the member of the oneof of the AnyValue p: its field number, and either bits or
// content. If p has several members, the last member counts, but consecutive pieces of an array
// or a map merge. num is zero if p has no member.
func (r *Request) member(p part) (num uint32, bits uint64, content part) {
	c := p.fields()
	for c.next() {
		switch {
		case c.is(field.AnyString) || c.is(field.AnyBytes):
			num, content = c.num, c.here()
		case c.isVarint(field.AnyBool) || c.isVarint(field.AnyInt) || c.isVarint(field.AnyStringIndex),
			c.num == field.AnyDouble && c.typ == protowire.Fixed64Type:
			num, bits = c.num, c.bits
		case c.is(field.AnyArray) || c.is(field.AnyKeyValues):
			if num != c.num {
				content = part{}
			}
			num, content = c.num, content.join(c.here())
		}
	}
	r.note(c.err())
	return num, bits, content
}

func (r *Request) array(p part, depth int) attribute.Value {
	var members []attribute.Value
	c := p.fields()
	for c.next() {
		if c.is(field.ListValues) {
			members = append(members, r.value(c.here(), depth))
		}
	}
	r.note(c.err())
	switch commonType(members) {
	case attribute.BOOL:
		return attribute.BoolSliceValue(convert(members, attribute.Value.AsBool))
	case attribute.INT64:
		return attribute.Int64SliceValue(convert(members, attribute.Value.AsInt64))
	case attribute.FLOAT64:
		return attribute.Float64SliceValue(convert(members, attribute.Value.AsFloat64))
	case attribute.STRING:
		return attribute.StringSliceValue(convert(members, attribute.Value.AsString))
	}
	return attribute.SliceValue(members...)
}

// commonType returns the type of all members, or EMPTY if their types differ or there are none.
func commonType(members []attribute.Value) attribute.Type {
	differs := func(m attribute.Value) bool { return m.Type() != members[0].Type() }
	if len(members) == 0 || slices.ContainsFunc(members, differs) {
		return attribute.EMPTY
	}
	return members[0].Type()
}

func convert[T any](members []attribute.Value, as func(attribute.Value) T) []T {
	converted := make([]T, len(members))
	for i, m := range members {
		converted[i] = as(m)
	}
	return converted
}

func (r *Request) mapValue(p part, depth int) attribute.Value {
	var members []attribute.KeyValue
	c := p.fields()
	for c.next() {
		if c.is(field.ListValues) {
			key, value := r.keyValue(c.here())
			members = append(members, attribute.KeyValue{Key: attribute.Key(key.raw), Value: r.value(value, depth)})
		}
	}
	r.note(c.err())
	return attribute.MapValue(members...)
}

func (r *Request) decodeKeyValue(p part) attribute.KeyValue {
	key, value := r.keyValue(p)
	return attribute.KeyValue{Key: attribute.Key(key.raw), Value: r.value(value, maxDepth)}
}
