package otlpwire

import (
	"math"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// value writes v as the content of an AnyValue. It writes the member of the oneof even if the
// member is zero, so that its type is known. It allocates only for slices, maps and bytes,
// because the methods of attribute.Value copy them.
func (w *Writer) value(v *attribute.Value) {
	switch v.Type() {
	case attribute.STRING:
		w.text(field.AnyString, v.AsString())
	case attribute.BOOL:
		w.Varint(field.AnyBool, boolBit(v.AsBool()))
	case attribute.INT64:
		w.Varint(field.AnyInt, uint64(v.AsInt64()))
	case attribute.FLOAT64:
		w.Double(field.AnyDouble, math.Float64bits(v.AsFloat64()))
	case attribute.EMPTY:
	case attribute.BYTESLICE:
		w.Content(field.AnyBytes, v.AsByteSlice())
	case attribute.MAP:
		all := w.Len()
		w.KeyValues(field.ListValues, v.AsMap())
		w.Message(field.AnyKeyValues, all)
	case attribute.BOOLSLICE:
		writeArray(w, v.AsBoolSlice(), attribute.BoolValue)
	case attribute.INT64SLICE:
		writeArray(w, v.AsInt64Slice(), attribute.Int64Value)
	case attribute.FLOAT64SLICE:
		writeArray(w, v.AsFloat64Slice(), attribute.Float64Value)
	case attribute.STRINGSLICE:
		writeArray(w, v.AsStringSlice(), attribute.StringValue)
	case attribute.SLICE:
		writeArray(w, v.AsSlice(), func(m attribute.Value) attribute.Value { return m })
	default:
		w.text(field.AnyString, "INVALID") // as the SDK's exporter does
	}
}

func writeArray[T any](w *Writer, members []T, toValue func(T) attribute.Value) {
	all := w.Len()
	for i := len(members) - 1; i >= 0; i-- {
		end := w.Len()
		v := toValue(members[i])
		w.value(&v)
		w.Message(field.ListValues, end)
	}
	w.Message(field.AnyArray, all)
}

// ValueHeap estimates the bytes of heap memory to which v refers: its text, or its members
// with their texts. It allocates only for slices, maps and bytes.
func ValueHeap(v *attribute.Value) int {
	const valueBytes, keyValueBytes, textBytes, wordBytes = 48, 64, 16, 8
	n := 0
	switch v.Type() {
	case attribute.STRING:
		n = len(v.AsString())
	case attribute.BYTESLICE:
		n = len(v.AsByteSlice())
	case attribute.BOOLSLICE:
		n = len(v.AsBoolSlice())
	case attribute.INT64SLICE:
		n = wordBytes * len(v.AsInt64Slice())
	case attribute.FLOAT64SLICE:
		n = wordBytes * len(v.AsFloat64Slice())
	case attribute.STRINGSLICE:
		for _, s := range v.AsStringSlice() {
			n += textBytes + len(s)
		}
	case attribute.SLICE:
		for _, m := range v.AsSlice() {
			n += valueBytes + ValueHeap(&m)
		}
	case attribute.MAP:
		for _, kv := range v.AsMap() {
			n += keyValueBytes + len(kv.Key) + ValueHeap(&kv.Value)
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
