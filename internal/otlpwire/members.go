package otlpwire

import (
	"math"
	"reflect"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// invalidValue is what the SDK's exporter writes for a value whose kind it does
// not know.
const invalidValue = "INVALID"

// A value's members (of a slice, a map or bytes) are private to the attribute
// package, whose accessors copy them: one allocation for each value, and one
// for each level of a nested one. Reading them by reflection does not allocate
// and can not corrupt anything. Where the private fields are not those that
// this file knows (layoutKnown says so, once, at start), the accessors are used.
const (
	valueType = iota
	valueNumeric
	valueText
	valueSlice
	valueFields
)

// scalar is an attribute.Value as it lies in memory, of which a scalar and text are
// read where they are: each accessor copies all of its 48 bytes, of each attribute
// of each span some three times.
type scalar struct {
	kind    attribute.Type
	number  uint64 // of a truth, an integer, a float
	text    string // also bytes
	members any    // nil for a scalar and for bytes
}

// look gives v as a scalar: v itself or, while the layout is unknown, room, with
// what the accessors say of a scalar, and some members for all else.
func look(v *attribute.Value, room *scalar) *scalar {
	if layoutKnown {
		return (*scalar)(unsafe.Pointer(v))
	}
	room.ask(v)
	return room
}

func (s *scalar) ask(v *attribute.Value) {
	s.kind = v.Type()
	switch s.kind {
	case attribute.STRING:
		s.text = v.AsString()
	case attribute.BOOL:
		s.number = boolBit(v.AsBool())
	case attribute.INT64:
		s.number = uint64(v.AsInt64())
	case attribute.FLOAT64:
		s.number = math.Float64bits(v.AsFloat64())
	case attribute.EMPTY:
	default:
		s.members = struct{}{}
	}
}

// layoutKnown tells whether attribute.Value has the fields in that order. A
// variable for the tests' sake, which try both ways.
var layoutKnown = knownLayout(reflect.TypeFor[attribute.Value]())

func knownLayout(t reflect.Type) bool {
	if t.Kind() != reflect.Struct || t.NumField() != valueFields {
		return false
	}
	for i, want := range [valueFields]struct {
		name string
		kind reflect.Kind
	}{
		{"vtype", reflect.Int},
		{"numeric", reflect.Uint64},
		{"stringly", reflect.String},
		{"slice", reflect.Interface},
	} {
		if f := t.Field(i); f.Name != want.name || f.Type.Kind() != want.kind {
			return false
		}
	}
	return true
}

// value writes the content of an AnyValue. A member of its oneof is written
// even if it is zero. A kind of a later API than this one's is written as the
// SDK does, as the text "INVALID".
func (w *Writer) value(v *attribute.Value) {
	var room scalar
	switch s := look(v, &room); s.kind {
	case attribute.STRING:
		w.text(field.AnyString, s.text)
	case attribute.BOOL:
		w.uint(field.AnyBool, s.number)
	case attribute.INT64:
		w.uint(field.AnyInt, s.number)
	case attribute.FLOAT64:
		w.fixed64(field.AnyDouble, s.number)
	case attribute.EMPTY:
	default:
		if layoutKnown {
			w.reflected(reflect.ValueOf(v).Elem())
		} else {
			w.copied(*v)
		}
	}
}

// reflected writes an AnyValue from a reflect.Value of an attribute.Value.
func (w *Writer) reflected(v reflect.Value) {
	switch attribute.Type(v.Field(valueType).Int()) {
	case attribute.STRING:
		w.text(field.AnyString, v.Field(valueText).String())
	case attribute.BYTESLICE:
		w.raw(field.AnyBytes, v.Field(valueText).String())
	case attribute.BOOL:
		w.uint(field.AnyBool, v.Field(valueNumeric).Uint())
	case attribute.INT64:
		w.uint(field.AnyInt, v.Field(valueNumeric).Uint())
	case attribute.FLOAT64:
		w.fixed64(field.AnyDouble, v.Field(valueNumeric).Uint())
	case attribute.EMPTY:
	case attribute.BOOLSLICE, attribute.INT64SLICE, attribute.FLOAT64SLICE, attribute.STRINGSLICE, attribute.SLICE:
		w.reflectedArray(v.Field(valueSlice).Elem())
	case attribute.MAP:
		w.reflectedMap(v.Field(valueSlice).Elem())
	default:
		w.text(field.AnyString, invalidValue)
	}
}

func (w *Writer) reflectedArray(members reflect.Value) {
	all := w.Len()
	for i := members.Len() - 1; i >= 0; i-- {
		end := w.Len()
		switch m := members.Index(i); m.Kind() {
		case reflect.Bool:
			w.uint(field.AnyBool, boolBit(m.Bool()))
		case reflect.Int64:
			w.uint(field.AnyInt, uint64(m.Int()))
		case reflect.Float64:
			w.fixed64(field.AnyDouble, math.Float64bits(m.Float()))
		case reflect.String:
			w.text(field.AnyString, m.String())
		default:
			w.reflected(m)
		}
		w.Message(field.ListValues, end)
	}
	w.Message(field.AnyArray, all)
}

func (w *Writer) reflectedMap(members reflect.Value) {
	all := w.Len()
	for i := members.Len() - 1; i >= 0; i-- {
		end := w.Len()
		kv := members.Index(i) // attribute.KeyValue{Key, Value}
		w.reflected(kv.Field(1))
		w.Message(field.KeyValueValue, end)
		w.Text(field.KeyValueKey, kv.Field(0).String())
		w.Message(field.ListValues, end)
	}
	w.Message(field.AnyKeyValues, all)
}

// copied writes an AnyValue through the accessors that copy.
func (w *Writer) copied(v attribute.Value) {
	all := w.Len()
	switch v.Type() {
	case attribute.BYTESLICE:
		w.Content(field.AnyBytes, v.AsByteSlice())
		return
	case attribute.MAP:
		w.KeyValues(field.ListValues, v.AsMap())
		w.Message(field.AnyKeyValues, all)
		return
	case attribute.BOOLSLICE:
		copiedArray(w, v.AsBoolSlice(), attribute.BoolValue)
	case attribute.INT64SLICE:
		copiedArray(w, v.AsInt64Slice(), attribute.Int64Value)
	case attribute.FLOAT64SLICE:
		copiedArray(w, v.AsFloat64Slice(), attribute.Float64Value)
	case attribute.STRINGSLICE:
		copiedArray(w, v.AsStringSlice(), attribute.StringValue)
	case attribute.SLICE:
		copiedArray(w, v.AsSlice(), func(m attribute.Value) attribute.Value { return m })
	default:
		w.text(field.AnyString, invalidValue)
		return
	}
	w.Message(field.AnyArray, all)
}

func copiedArray[T any](w *Writer, members []T, toValue func(T) attribute.Value) {
	for i := len(members) - 1; i >= 0; i-- {
		end := w.Len()
		v := toValue(members[i])
		w.value(&v)
		w.Message(field.ListValues, end)
	}
}

// raw writes a bytes field from text that is not to be taken for UTF-8.
func (w *Writer) raw(num int, s string) {
	copy(w.take(len(s)), s)
	w.head(num, len(s))
}

// ValueHeap is the heap, in bytes, that v refers to beyond itself: its text and
// its members with theirs. It does not allocate; while the layout is unknown it
// does, and estimates from the value's text.
func ValueHeap(v *attribute.Value) int {
	var room scalar
	switch s := look(v, &room); {
	case s.members == nil:
		return len(s.text)
	case layoutKnown:
		return reflectedHeap(reflect.ValueOf(v).Elem())
	}
	return int(reflect.TypeFor[attribute.Value]().Size()) + len(v.String())
}

func reflectedHeap(v reflect.Value) int {
	n := v.Field(valueText).Len()
	members := v.Field(valueSlice)
	if members.IsNil() {
		return n
	}
	members = members.Elem()
	n += int(members.Type().Size())
	elem := members.Type().Elem().Kind()
	for i := range members.Len() {
		m := members.Index(i)
		switch {
		case elem == reflect.String:
			n += m.Len()
		case elem == reflect.Struct && m.NumField() == valueFields:
			n += reflectedHeap(m)
		case elem == reflect.Struct: // attribute.KeyValue{Key, Value}
			n += m.Field(0).Len() + reflectedHeap(m.Field(1))
		}
	}
	return n
}

func boolBit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
