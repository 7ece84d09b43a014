package wsframe

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

const fin = 0x80

// frame builds one, masked where mask is not nil.
func frame(first byte, mask, payload []byte) []byte {
	b := []byte{first}
	var bit byte
	if mask != nil {
		bit = bitMask
	}
	switch n := len(payload); {
	case n <= maxControlLen:
		b = append(b, bit|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, bit|length16), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, bit|length64), uint64(n))
	}
	b = append(b, mask...)
	for i, c := range payload {
		if mask != nil {
			c ^= mask[i%4]
		}
		b = append(b, c)
	}
	return b
}

func closing(code uint16, reason string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, code), reason...)
}

// seen is what a scanner tells at the end.
type seen struct {
	code                     int
	closed, boundary, broken bool
}

func look(s *Scanner) seen {
	code, ok := s.Closed()
	if !ok {
		code = 0
	}
	return seen{code, ok, s.AtBoundary(), s.Broken()}
}

var mask = []byte{0xa1, 0x02, 0xf3, 0x04}

// streams are byte sequences and what is to be seen in them.
var streams = []struct {
	name string
	in   []byte
	want seen
}{
	{"nothing", nil, seen{boundary: true}},
	{"text", frame(fin|1, mask, []byte("hello")), seen{boundary: true}},
	{"empty text", frame(fin|1, mask, nil), seen{boundary: true}},
	{"unmasked text", frame(fin|1, nil, []byte("hello")), seen{boundary: true}},
	{"16 bits of length", frame(fin|2, mask, make([]byte, 300)), seen{boundary: true}},
	{"64 bits of length", frame(fin|2, nil, make([]byte, 70000)), seen{boundary: true}},
	{"64 bits for a short one", append([]byte{fin | 2, length64, 0, 0, 0, 0, 0, 0, 0, 1}, 'x'), seen{boundary: true}},
	{"half a frame", frame(fin|1, mask, []byte("hello"))[:8], seen{}},
	{"half a header", []byte{fin | 1}, seen{}},
	{"half a mask", []byte{fin | 1, bitMask | 1, 1, 2}, seen{}},
	{"close", frame(fin|8, mask, closing(1000, "")), seen{code: 1000, closed: true}},
	{"close with a reason", frame(fin|8, mask, closing(1001, "going away")), seen{code: 1001, closed: true}},
	{"close with the longest reason", frame(fin|8, mask, closing(4999, strings.Repeat("x", 123))), seen{code: 4999, closed: true}},
	{"a server's close", frame(fin|8, nil, closing(3008, "")), seen{code: 3008, closed: true}},
	{"close without a code", frame(fin|8, mask, nil), seen{code: CodeNoStatus, closed: true}},
	{"close with half a code", frame(fin|8, mask, []byte{3}), seen{broken: true}},
	{"close that is not whole", frame(fin|8, mask, closing(1000, "bye"))[:9], seen{}},
	{"half a code so far", frame(fin|8, mask, closing(1000, ""))[:7], seen{}},
	{"close with 1006", frame(fin|8, mask, closing(1006, "")), seen{broken: true}},
	{"close with 1005", frame(fin|8, mask, closing(1005, "")), seen{broken: true}},
	{"close with 1004", frame(fin|8, mask, closing(1004, "")), seen{broken: true}},
	{"close with 1015", frame(fin|8, mask, closing(1015, "")), seen{broken: true}},
	{"close with 999", frame(fin|8, mask, closing(999, "")), seen{broken: true}},
	{"close with 5000", frame(fin|8, mask, closing(5000, "")), seen{broken: true}},
	{"close with a reserved code", frame(fin|8, mask, closing(2999, "")), seen{code: 2999, closed: true}},
	{"close in fragments", frame(8, mask, closing(1000, "")), seen{broken: true}},
	{"close that is too long", frame(fin|8, mask, closing(1000, strings.Repeat("x", 124))), seen{broken: true}},
	{"ping that is too long", append([]byte{fin | 9, length64}, 0, 0, 0, 0, 0, 0, 1, 0), seen{broken: true}},
	{"huge", []byte{fin | 2, length64, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3}, seen{}},
	{"negative", []byte{fin | 2, length64, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}, seen{broken: true}},
	{"compressed, unknown opcode, then close", bytes.Join([][]byte{
		frame(fin|0x40|1, mask, []byte("deflated")), frame(fin|5, mask, []byte("?")), frame(fin|8, mask, closing(1003, "")),
	}, nil), seen{code: 1003, closed: true}},
	{"control frames between fragments", bytes.Join([][]byte{
		frame(1, mask, []byte("a")), frame(fin|9, mask, []byte("ping")), frame(0, mask, []byte("b")),
		frame(fin|10, mask, nil), frame(fin, mask, []byte("c")), frame(fin|8, mask, closing(1000, "")),
	}, nil), seen{code: 1000, closed: true}},
	{"a close in a payload", frame(fin|2, nil, frame(fin|8, nil, closing(1000, ""))), seen{boundary: true}},
	{"a second close", append(frame(fin|8, mask, closing(1000, "")), frame(fin|8, mask, closing(1011, ""))...), seen{code: 1000, closed: true}},
	{"rubbish after the close", append(frame(fin|8, mask, closing(1000, "")), 0xff, 0xff, 0xff), seen{code: 1000, closed: true}},
}

// TestScanner holds every stream whole, byte by byte, and cut once at each place.
func TestScanner(t *testing.T) {
	for _, tt := range streams {
		for cut := 0; cut <= min(len(tt.in), 200); cut++ {
			var s Scanner
			s.Scan(tt.in[:cut])
			s.Scan(tt.in[cut:])
			if got := look(&s); got != tt.want {
				t.Errorf("%s, cut at %d: %+v, want %+v", tt.name, cut, got, tt.want)
			}
		}
		var s Scanner
		for i := range tt.in {
			s.Scan(tt.in[i : i+1])
		}
		if got := look(&s); got != tt.want {
			t.Errorf("%s, byte by byte: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestHasData(t *testing.T) {
	text, ping, end := frame(fin|1, mask, []byte("hello")), frame(fin|9, mask, []byte("hello")), frame(fin|8, mask, closing(1000, ""))
	for _, tt := range []struct {
		name          string
		before, after []byte
		want          bool
	}{
		{"nothing", nil, nil, false},
		{"a message", nil, text, true},
		{"a message, then others", nil, append(text[:len(text):len(text)], end...), true},
		{"control frames", nil, append(ping[:len(ping):len(ping)], end...), false},
		{"a message before", text, end, false},
		{"half a message before", text[:8], append(text[8:len(text):len(text)], end...), true},
		{"half a ping before", ping[:8], ping[8:], false},
	} {
		var s Scanner
		s.Scan(tt.before)
		s.Restart()
		s.Scan(tt.after)
		if s.HasData() != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, s.HasData(), tt.want)
		}
	}
}

func TestScannerAllocatesNothing(t *testing.T) {
	in := bytes.Join([][]byte{frame(fin|1, mask, make([]byte, 1000)), frame(fin|8, mask, closing(1000, "bye"))}, nil)
	if n := testing.AllocsPerRun(100, func() {
		var s Scanner
		for p := in; len(p) > 0; p = p[min(len(p), 7):] {
			s.Scan(p[:min(len(p), 7)])
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAppendClose(t *testing.T) {
	for _, tt := range []struct {
		code   int
		reason string
		want   []byte
	}{
		{1001, "bye", []byte{0x88, 5, 0x03, 0xe9, 'b', 'y', 'e'}},
		{1000, "", []byte{0x88, 2, 0x03, 0xe8}},
		{1000, strings.Repeat("x", 200), append([]byte{0x88, 125, 0x03, 0xe8}, strings.Repeat("x", 123)...)},
		{CodeNoStatus, "unsaid", []byte{0x88, 0}},
		{-1, "", []byte{0x88, 0}},
		{1 << 16, "", []byte{0x88, 0}},
	} {
		if got := AppendClose([]byte("before"), tt.code, tt.reason); !bytes.Equal(got, append([]byte("before"), tt.want...)) {
			t.Errorf("%d %q: %x", tt.code, tt.reason, got)
		}
	}
}

// FuzzScanner: how a stream is cut makes no difference, and another parser sees
// the same close frame.
func FuzzScanner(f *testing.F) {
	for _, tt := range streams {
		f.Add(tt.in, uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		var whole, cut Scanner
		whole.Scan(in)
		n := max(1, int(step))
		for p := in; len(p) > 0; p = p[min(len(p), n):] {
			cut.Scan(p[:min(len(p), n)])
		}
		if whole != cut {
			t.Fatalf("whole %+v, in steps of %d %+v", whole, n, cut)
		}
		code, ok := whole.Closed()
		if want, there := reference(in); ok != there || ok && code != want {
			t.Fatalf("close %d %v, want %d %v", code, ok, want, there)
		}
	})
}

// reference finds the close frame in the plainest way that there is, over the
// whole of the bytes.
func reference(in []byte) (code int, ok bool) {
	for {
		if len(in) < 2 {
			return 0, false
		}
		op, size, masked := in[0], uint64(in[1]&0x7f), in[1]&0x80 != 0
		rest := in[2:]
		if size >= 126 {
			wide := map[uint64]int{126: 2, 127: 8}[size]
			if len(rest) < wide {
				return 0, false
			}
			size = 0
			for _, b := range rest[:wide] {
				size = size<<8 | uint64(b)
			}
			rest = rest[wide:]
		}
		var key [4]byte
		if masked {
			if len(rest) < 4 {
				return 0, false
			}
			copy(key[:], rest)
			rest = rest[4:]
		}
		if size>>63 != 0 || op&8 != 0 && (size > 125 || op&0x80 == 0) || uint64(len(rest)) < size {
			return 0, false
		}
		payload := rest[:size]
		in = rest[size:]
		if op&0xf != 8 {
			continue
		}
		if size == 0 {
			return 1005, true
		}
		if size == 1 {
			return 0, false
		}
		code = int(payload[0]^key[0])<<8 | int(payload[1]^key[1])
		bad := code < 1000 || code > 4999 || code == 1004 || code == 1005 || code == 1006 || code == 1015
		return code, !bad
	}
}
