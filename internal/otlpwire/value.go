package otlpwire

import (
	"errors"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Value is a view of one attribute's value. The zero Value is an empty one.
type Value struct {
	r *Request
	p part // content of an AnyValue
}

// maxDepth bounds the nesting of values that are decoded: deeper ones would
// cost stack. Other decoders of protobuf stop at 100 messages too.
const maxDepth = 100

var errDepth = errors.New("value nested deeper than 100 levels")

// Type is what Attribute will give: an array whose members are all bools, all
// integers, all floats or all strings is the slice of that kind; any other
// array, the empty one too, is attribute.SLICE.
func (v Value) Type() attribute.Type {
	num, _, content := v.member()
	switch num {
	case field.AnyArray:
		return v.arrayType(content)
	default:
		return memberType(num)
	}
}

// memberType is the type of a member of AnyValue's oneof, SLICE for any array.
func memberType(num uint32) attribute.Type {
	switch num {
	case field.AnyString:
		return attribute.STRING
	case field.AnyBool:
		return attribute.BOOL
	case field.AnyInt:
		return attribute.INT64
	case field.AnyDouble:
		return attribute.FLOAT64
	case field.AnyArray:
		return attribute.SLICE
	case field.AnyKeyValues:
		return attribute.MAP
	case field.AnyBytes:
		return attribute.BYTESLICE
	default:
		return attribute.EMPTY
	}
}

// Attribute decodes the value. Text and members are copied: the result does
// not refer to the request. Values nested deeper than 100 levels are empty,
// and Request.Err then says so.
func (v Value) Attribute() attribute.Value { return v.decode(maxDepth) }

// Bytes is the text of a string or the content of a byte slice, uncopied and
// not to be changed; nil for any other type.
func (v Value) Bytes() []byte {
	num, _, content := v.member()
	if num == field.AnyString || num == field.AnyBytes {
		return content.raw
	}
	return nil
}

// member finds the member of the oneof that counts, the last. Zero: none. An
// array or a map in several pieces is one.
func (v Value) member() (num uint32, bits uint64, content part) {
	if v.r == nil {
		return 0, 0, part{}
	}
	c := v.p.fields()
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
	v.r.note(c.err())
	return num, bits, content
}

func (v Value) decode(depth int) attribute.Value {
	num, bits, content := v.member()
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
			v.r.note(errDepth)
			return attribute.Value{}
		}
		if num == field.AnyArray {
			return v.decodeArray(content, depth-1)
		}
		return v.decodeMap(content, depth-1)
	default:
		return attribute.Value{}
	}
}

// arrayType is the type of the slice that an array's members allow.
func (v Value) arrayType(content part) attribute.Type {
	same := attribute.EMPTY
	c := content.fields()
	for first := true; c.next(); {
		if !c.is(field.ListValues) {
			continue
		}
		num, _, _ := (Value{v.r, c.here()}).member()
		t := memberType(num)
		if !first && t != same {
			return attribute.SLICE
		}
		same, first = t, false
	}
	switch same {
	case attribute.BOOL:
		return attribute.BOOLSLICE
	case attribute.INT64:
		return attribute.INT64SLICE
	case attribute.FLOAT64:
		return attribute.FLOAT64SLICE
	case attribute.STRING:
		return attribute.STRINGSLICE
	default:
		return attribute.SLICE
	}
}

func (v Value) decodeArray(content part, depth int) attribute.Value {
	var members []attribute.Value
	c := content.fields()
	for c.next() {
		if c.is(field.ListValues) {
			members = append(members, Value{v.r, c.here()}.decode(depth))
		}
	}
	v.r.note(c.err())
	switch v.arrayType(content) {
	case attribute.BOOLSLICE:
		return attribute.BoolSliceValue(convert(members, attribute.Value.AsBool))
	case attribute.INT64SLICE:
		return attribute.Int64SliceValue(convert(members, attribute.Value.AsInt64))
	case attribute.FLOAT64SLICE:
		return attribute.Float64SliceValue(convert(members, attribute.Value.AsFloat64))
	case attribute.STRINGSLICE:
		return attribute.StringSliceValue(convert(members, attribute.Value.AsString))
	default:
		return attribute.SliceValue(members...)
	}
}

func (v Value) decodeMap(content part, depth int) attribute.Value {
	var members []attribute.KeyValue
	c := content.fields()
	for c.next() {
		if !c.is(field.ListValues) {
			continue
		}
		key, value := v.r.keyValue(c.here())
		members = append(members, attribute.KeyValue{
			Key:   attribute.Key(key.raw),
			Value: Value{v.r, value}.decode(depth),
		})
	}
	v.r.note(c.err())
	return attribute.MapValue(members...)
}

func convert[T any](members []attribute.Value, as func(attribute.Value) T) []T {
	converted := make([]T, len(members))
	for i, m := range members {
		converted[i] = as(m)
	}
	return converted
}
