package datadogexporter

import (
	"encoding/binary"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// Forms of msgpack that are written by hand, because each span has dozens.
// https://github.com/msgpack/msgpack/blob/master/spec.md
const (
	fixMap   = 0x80
	fixText  = 0xa0
	text8    = 0xd9
	float64s = 0xcb
	array32  = 0xdd
)

func appendText(b []byte, text string) []byte {
	switch n := len(text); {
	case n < 32:
		b = append(b, fixText|byte(n))
	case n < 256:
		b = append(b, text8, byte(n))
	default:
		return msgp.AppendString(b, text)
	}
	return append(b, text...)
}

func appendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, float64s), math.Float64bits(f))
}

// appendCount leaves room for how many members an array has, which setCount
// fills in.
func appendCount(b []byte) []byte { return append(b, array32, 0, 0, 0, 0) }

func setCount(b []byte, at, n int) { binary.BigEndian.PutUint32(b[at+1:], uint32(n)) }
