package otlpwire

import (
	"encoding/binary"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Writer writes a message from its end to its beginning. The caller must write the fields, and
// the members of a list, in reverse order. So the length of a message is known when its tag and
// its length are written. In a text that is not valid UTF-8, U+FFFD replaces each run of wrong
// bytes. Protobuf's own encoder would refuse the whole message.
//
// The zero value is ready for use. It keeps its buffer and allocates only to grow it.
// It is not safe for concurrent use.
type Writer struct {
	buf []byte // the end of buf, from index pos on, is written
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

// Message writes the tag and the length of a message in field num. The content of the message is
// the bytes that were written since Len returned end.
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

// Content writes a field with the content b, a bytes field or an encoded message, even if b is
// empty.
func (w *Writer) Content(num int, b []byte) { copy(w.content(num, len(b)), b) }

// Raw writes b, which has encoded fields, unchanged.
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

// keyValue writes the content of a KeyValue.
func (w *Writer) keyValue(kv *attribute.KeyValue) {
	end := w.Len()
	w.value(&kv.Value)
	w.key(kv, end)
}

// key completes a KeyValue after its value was written, because the Writer writes from the
// end to the start. It writes the length and the tag of the value, and then the key. end is
// the result of Len before the value was written.
func (w *Writer) key(kv *attribute.KeyValue, end int) {
	w.Message(field.KeyValueValue, end)
	w.Text(field.KeyValueKey, string(kv.Key))
}

// shortKey writes the tag and the length of a KeyValue, its key, and the tag and the length of
// its value. The value of n bytes is already written. shortKey does so in one piece, which is
// faster. It returns false and writes nothing if a tag or a length needs more than one byte, or
// if the key is empty or not valid UTF-8.
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

// Varint writes a varint field, even if v is zero. Zero must be written for a member of a oneof.
func (w *Writer) Varint(num int, v uint64) {
	if v < oneByte && num <= 15 {
		b := w.take(2)
		b[0], b[1] = byte(num<<3)|byte(protowire.VarintType), byte(v)
		return
	}
	w.varint(v)
	w.tag(num, protowire.VarintType)
}

// Double writes a field of eight bytes, even if v is zero. Zero must be written for a member of a
// oneof.
func (w *Writer) Double(num int, v uint64) {
	binary.LittleEndian.PutUint64(w.take(8), v)
	w.tag(num, protowire.Fixed64Type)
}

// text writes a string field, even if s is empty.
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

// content writes the tag and the length of a field before n bytes of content. It returns the
// content, which the caller must fill.
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

// head writes the tag and the length of a field. Its n bytes of content are already written.
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

// take reserves n bytes before the written bytes, and returns them for the caller to fill.
func (w *Writer) take(n int) []byte {
	w.pos -= n
	if w.pos < 0 {
		w.grow()
	}
	return w.buf[w.pos:][:n]
}

// grow enlarges the buffer so that pos is not negative. It is not a part of take, because the
// compiler can inline only a small function.
//
//go:noinline
func (w *Writer) grow() {
	const smallest = 1 << 10
	buf := make([]byte, max(2*len(w.buf), w.Len(), smallest))
	pos := len(buf) - w.Len()
	copy(buf[len(buf)-len(w.buf):], w.buf)
	w.buf, w.pos = buf, pos
}

// PartialSuccess returns an encoded ExportTraceServiceResponse with the number of rejected spans
// and a message. It does not use the generated code of this response, because the package of
// that code links an HTTP gateway.
// https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/collector/trace/v1/trace_service.proto
func PartialSuccess(rejected int, message string) []byte {
	var w Writer
	w.Text(field.PartialSuccessErrorMessage, message)
	w.Uint(field.PartialSuccessRejectedSpans, uint64(rejected))
	w.Message(field.ResponsePartialSuccess, 0)
	return w.Bytes()
}

// oneByte is the smallest number whose varint has more than one byte.
const oneByte = 0x80

// SizeField returns the size in bytes of a field with n bytes of content. The field number must
// be at most 15.
func SizeField(n int) int { return 1 + protowire.SizeBytes(n) }
