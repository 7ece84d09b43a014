package otlpwire

import (
	"encoding/binary"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Writer writes a message from its end to its beginning: fields, and members of a list,
// in reverse. So the length of a message is known when its head is written. Text that
// is not valid UTF-8 gets U+FFFD for each run of bad bytes; protobuf's own encoder
// refuses the whole message.
//
// The zero value is ready for use. It keeps its buffer and allocates only to grow it.
// It is not safe for concurrent use.
type Writer struct {
	buf []byte // buf[pos:] is written
	pos int
}

// NewWriter returns a Writer that fills buf from its end. It allocates only if buf is
// too short.
func NewWriter(buf []byte) *Writer { return &Writer{buf, len(buf)} }

// Reset empties the writer. It drops a buffer longer than maxKept bytes.
func (w *Writer) Reset(maxKept int) {
	if len(w.buf) > maxKept {
		w.buf = nil
	}
	w.pos = len(w.buf)
}

// Bytes returns the written bytes. They are valid until the next write or Reset.
func (w *Writer) Bytes() []byte { return w.buf[w.pos:] }

// Len returns the number of bytes written.
func (w *Writer) Len() int { return len(w.buf) - w.pos }

// Message writes the head of field num. Its content is the bytes that were written since
// Len returned end.
func (w *Writer) Message(num, end int) { w.head(num, w.Len()-end) }

// Uint writes a varint field, unless v is zero. Protobuf omits zeros.
func (w *Writer) Uint(num int, v uint64) {
	if v != 0 {
		w.Varint(num, v)
	}
}

// Fixed32 writes a fixed32 field, unless v is zero.
func (w *Writer) Fixed32(num int, v uint32) {
	if v == 0 {
		return
	}
	binary.LittleEndian.PutUint32(w.take(4), v)
	w.tag(num, protowire.Fixed32Type)
}

// Fixed64 writes a fixed64 field, unless v is zero.
func (w *Writer) Fixed64(num int, v uint64) {
	if v != 0 {
		w.Double(num, v)
	}
}

// Text writes a string field, unless s is empty.
func (w *Writer) Text(num int, s string) {
	if s != "" {
		w.text(num, s)
	}
}

// Content writes a bytes field, or an encoded message, even if b is empty.
func (w *Writer) Content(num int, b []byte) { copy(w.content(num, len(b)), b) }

// Raw writes encoded fields.
func (w *Writer) Raw(b []byte) { copy(w.take(len(b)), b) }

// KeyValues writes a repeated KeyValue field. It keeps no reference to kvs.
func (w *Writer) KeyValues(num int, kvs []attribute.KeyValue) {
	for i := len(kvs) - 1; i >= 0; i-- {
		w.KeyValue(num, &kvs[i])
	}
}

// KeyValue writes one member of a repeated KeyValue field.
func (w *Writer) KeyValue(num int, kv *attribute.KeyValue) {
	end := w.Len()
	w.value(&kv.Value)
	if w.shortKey(num, string(kv.Key), w.Len()-end) {
		return
	}
	w.key(kv, end)
	w.Message(num, end)
}

func (w *Writer) keyValue(kv *attribute.KeyValue) {
	end := w.Len()
	w.value(&kv.Value)
	w.key(kv, end)
}

// key writes the head of the value that was written since Len returned end, and the key.
func (w *Writer) key(kv *attribute.KeyValue, end int) {
	w.Message(field.KeyValueValue, end)
	w.Text(field.KeyValueKey, string(kv.Key))
}

// shortKey writes the bytes of a KeyValue before its value, which has n bytes and is
// already written: three heads and the key, in one piece. It returns false, and writes
// nothing, if a head is longer than usual, or the key is empty or not valid UTF-8.
func (w *Writer) shortKey(num int, key string, n int) bool {
	const heads = 3 * plainHead
	if len(key)+heads+n >= oneByte || num > 15 || key == "" || !utf8.ValidString(key) {
		return false
	}
	b := w.take(heads + len(key))
	b[0], b[1] = byte(num<<3)|byte(protowire.BytesType), byte(len(b)-plainHead+n)
	b[2], b[3] = byte(field.KeyValueKey<<3)|byte(protowire.BytesType), byte(len(key))
	copy(b[4:], key)
	b[len(b)-2], b[len(b)-1] = byte(field.KeyValueValue<<3)|byte(protowire.BytesType), byte(n)
	return true
}

// Varint writes a varint field, even if v is zero, for a member of a oneof.
func (w *Writer) Varint(num int, v uint64) {
	if v < oneByte && num <= 15 {
		b := w.take(2)
		b[0], b[1] = byte(num<<3)|byte(protowire.VarintType), byte(v)
		return
	}
	w.varint(v)
	w.tag(num, protowire.VarintType)
}

// Double writes a field of eight bytes, even if v is zero, for a member of a oneof.
func (w *Writer) Double(num int, v uint64) {
	binary.LittleEndian.PutUint64(w.take(8), v)
	w.tag(num, protowire.Fixed64Type)
}

func (w *Writer) text(num int, s string) {
	if utf8.ValidString(s) {
		copy(w.content(num, len(s)), s)
		return
	}
	end := w.Len()
	w.repair(s)
	w.head(num, w.Len()-end)
}

// repair writes s with U+FFFD for each run of bytes that is not valid UTF-8.
func (w *Writer) repair(s string) {
	bad := false
	for len(s) > 0 {
		r, size := utf8.DecodeLastRuneInString(s)
		wasBad := bad
		bad = r == utf8.RuneError && size == 1
		switch {
		case !bad:
			copy(w.take(size), s[len(s)-size:])
		case !wasBad:
			copy(w.take(3), "\uFFFD")
		}
		s = s[:len(s)-size]
	}
}

// content writes a field with n bytes of content, and returns the content for the caller to
// fill.
func (w *Writer) content(num, n int) []byte {
	if n < oneByte && num <= 15 {
		b := w.take(plainHead + n)
		b[0], b[1] = byte(num<<3)|byte(protowire.BytesType), byte(n)
		return b[plainHead:]
	}
	end := w.Len() + n
	w.take(n)
	w.head(num, n)
	return w.buf[len(w.buf)-end:][:n]
}

// head writes the tag and the length of a field before its n bytes of content.
func (w *Writer) head(num, n int) {
	if n < oneByte && num <= 15 {
		b := w.take(2)
		b[0], b[1] = byte(num<<3)|byte(protowire.BytesType), byte(n)
		return
	}
	w.varint(uint64(n))
	w.tag(num, protowire.BytesType)
}

func (w *Writer) tag(num int, typ protowire.Type) {
	w.varint(uint64(num)<<3 | uint64(typ))
}

func (w *Writer) varint(v uint64) {
	if v < oneByte {
		w.take(1)[0] = byte(v)
		return
	}
	binary.PutUvarint(w.take(protowire.SizeVarint(v)), v)
}

// take reserves n bytes before the written bytes, for the caller to fill.
func (w *Writer) take(n int) []byte {
	w.pos -= n
	if w.pos < 0 {
		w.grow()
	}
	return w.buf[w.pos:][:n]
}

// grow enlarges the buffer until pos is within it. It is apart from take, so that take
// can be inlined.
//
//go:noinline
func (w *Writer) grow() {
	const smallest = 1 << 10
	buf := make([]byte, max(2*len(w.buf), w.Len(), smallest))
	pos := len(buf) - w.Len()
	copy(buf[len(buf)-len(w.buf):], w.buf)
	w.buf, w.pos = buf, pos
}

// PartialSuccess returns an encoded ExportTraceServiceResponse:
// https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/collector/trace/v1/trace_service.proto
// The package with its generated code is not used, because it links an HTTP gateway.
func PartialSuccess(rejected int, message string) []byte {
	var w Writer
	w.Text(field.PartialSuccessErrorMessage, message)
	w.Uint(field.PartialSuccessRejectedSpans, uint64(rejected))
	w.Message(field.ResponsePartialSuccess, 0)
	return w.Bytes()
}

// oneByte is the smallest number with a varint of more than one byte.
const oneByte = 0x80

// SizeField returns the size of a field with a field number of at most 15 and n bytes of
// content.
func SizeField(n int) int { return 1 + protowire.SizeBytes(n) }
