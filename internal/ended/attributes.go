package ended

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/bits"
	"strings"
	"unique"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Attributes are those of a span in OTLP's bytes: KeyValues one after the other,
// each as a field of Span, as package otlpwire writes them. Beside a list of
// attribute.KeyValue they are half as long and have no pointers, so that nobody
// follows any: not the collector, and not the encoder, on another processor and
// some milliseconds later.
//
// They only grow, at the end. Whoever was given them may read what was there then.
type Attributes []byte

// Heads of fields, of one byte each.
const (
	bytesType   = 2
	varintType  = 0
	fixed64Type = 1

	headAttribute = field.SpanAttributes<<3 | bytesType
	headKey       = field.KeyValueKey<<3 | bytesType
	headValue     = field.KeyValueValue<<3 | bytesType
	headText      = field.AnyString<<3 | bytesType
	headBytes     = field.AnyBytes<<3 | bytesType
	headBool      = field.AnyBool<<3 | varintType
	headInt       = field.AnyInt<<3 | varintType
	headDouble    = field.AnyDouble<<3 | fixed64Type
)

// Text adds a text, which must be valid UTF-8.
func (a Attributes) Text(key, value string) Attributes { return a.content(key, headText, value) }

// Odd adds a text that is not valid UTF-8, in the form of a byte slice, which
// nobody adds else. [Attributes.List] gives it back as it was; as bytes, the
// attributes are of no use any more.
func (a Attributes) Odd(key, value string) Attributes { return a.content(key, headBytes, value) }

func (a Attributes) content(key string, head byte, value string) Attributes {
	a = a.begin(key, sizeField(len(value)))
	return append(a.head(head, len(value)), value...)
}

// Bool adds a truth.
func (a Attributes) Bool(key string, value bool) Attributes {
	bit := byte(0)
	if value {
		bit = 1
	}
	return append(a.begin(key, 2), headBool, bit)
}

// Int adds an integer.
func (a Attributes) Int(key string, value int64) Attributes {
	a = append(a.begin(key, 1+sizeVarint(uint64(value))), headInt)
	return binary.AppendUvarint(a, uint64(value))
}

// Double adds a number with a fraction.
func (a Attributes) Double(key string, value float64) Attributes {
	a = append(a.begin(key, 1+8), headDouble)
	return binary.LittleEndian.AppendUint64(a, math.Float64bits(value))
}

// begin adds all of a KeyValue but the content of its value, of so many bytes. The
// key is one of package semconv's, and so is neither empty nor odd.
func (a Attributes) begin(key string, value int) Attributes {
	a = a.head(headAttribute, sizeField(len(key))+sizeField(value))
	a = append(a.head(headKey, len(key)), key...)
	return a.head(headValue, value)
}

func (a Attributes) head(head byte, n int) Attributes {
	if n < 0x80 {
		return append(a, head, byte(n))
	}
	return binary.AppendUvarint(append(a, head), uint64(n))
}

// sizeField is the number of bytes of a field with so many of content.
func sizeField(n int) int { return 1 + sizeVarint(uint64(n)) + n }

func sizeVarint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// Template is an attribute of spans that are alike: a text of which some hexadecimal
// digits are the span's. It never changes.
type Template struct {
	all    Attributes
	digits int // where they begin
}

// NewTemplate gives one whose text is so many digits, of a number of 64 bits, and rest.
func NewTemplate(key, rest string) *Template {
	t := &Template{all: Attributes(nil).Text(key, strings.Repeat("0", templateDigits)+rest)}
	t.digits = len(t.all) - len(rest) - templateDigits
	return t
}

const templateDigits = 16

// AppendTo appends the attribute with a span's number in its place.
func (t *Template) AppendTo(to Attributes, number uint64) Attributes {
	var raw [templateDigits / 2]byte
	binary.NativeEndian.PutUint64(raw[:], number)
	to = append(to, t.all...)
	hex.Encode(to[len(to)-len(t.all)+t.digits:], raw[:])
	return to
}

// Text is the text with a span's number in its place.
func (t *Template) Text(number uint64) string {
	return string(t.AppendTo(nil, number)[t.digits:])
}

func (t *Template) size() int {
	if t == nil {
		return 0
	}
	return len(t.all)
}

// List gives what was added, in its order. Each text is by itself, so that who
// keeps one does not keep them all.
func (a Attributes) List() []attribute.KeyValue {
	if len(a) == 0 {
		return nil
	}
	n := 0
	for rest := a; len(rest) > 0; n++ {
		_, rest = rest.cut()
	}
	list := make([]attribute.KeyValue, 0, n)
	for rest := a; len(rest) > 0; {
		var one Attributes
		one, rest = rest.cut()
		key, value := one.cut()
		value, _ = value.cut()
		list = append(list, attribute.KeyValue{Key: attribute.Key(unique.Make(string(key)).Value()), Value: value.value()})
	}
	return list
}

// cut gives the content of the field that a begins with, and what follows it.
func (a Attributes) cut() (content, rest Attributes) {
	n, size := binary.Uvarint(a[1:])
	rest = a[1+size:]
	return rest[:n], rest[n:]
}

// value reads an AnyValue.
func (a Attributes) value() attribute.Value {
	switch a[0] {
	case headBool:
		return attribute.BoolValue(a[1] != 0)
	case headInt:
		v, _ := binary.Uvarint(a[1:])
		return attribute.Int64Value(int64(v))
	case headDouble:
		return attribute.Float64Value(math.Float64frombits(binary.LittleEndian.Uint64(a[1:])))
	}
	text, _ := a.cut()
	return attribute.StringValue(string(text))
}
