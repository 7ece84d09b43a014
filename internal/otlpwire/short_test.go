package otlpwire

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
)

// TestShortIsTheSame: what is written in one piece is what would be written
// field by field.
func TestShortIsTheSame(t *testing.T) {
	var values []attribute.Value
	for _, i := range []int64{0, 1, 0x7f, 0x80, 0x3fff, 0x4000, math.MaxInt64, -1, math.MinInt64} {
		values = append(values, attribute.Int64Value(i))
	}
	values = append(values, attribute.BoolValue(true), attribute.BoolValue(false),
		attribute.Float64Value(0), attribute.Float64Value(math.Inf(-1)), attribute.Value{},
		attribute.StringValue("é"), attribute.StringValue("bad \xff"), attribute.StringSliceValue([]string{"a"}))
	for n := range 140 { // across the longest that is short
		values = append(values, attribute.StringValue(strings.Repeat("x", n)))
	}
	for _, key := range []attribute.Key{"", "k", "a.key.of.some.length", "ключ", "bad \xfe", attribute.Key(strings.Repeat("k", 110))} {
		for _, value := range values {
			kv := attribute.KeyValue{Key: key, Value: value}
			var got, want Writer
			got.KeyValue(9, &kv)
			want.keyValue(&kv)
			want.Message(9, 0)
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("%q = %v %q: %x, want %x", key, value.Type(), value.String(), got.Bytes(), want.Bytes())
			}
		}
	}
}

func TestASCII(t *testing.T) {
	for n := range 40 {
		plain := strings.Repeat("~", n)
		if !ascii(plain) {
			t.Errorf("%d bytes of ASCII are taken for something else", n)
		}
		for at := range n {
			other := plain[:at] + string([]byte{utf8.RuneSelf}) + plain[at+1:]
			if ascii(other) {
				t.Errorf("the byte at %d of %d is overlooked", at, n)
			}
		}
	}
}
