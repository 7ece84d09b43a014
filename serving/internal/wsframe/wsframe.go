// Package wsframe follows the frames of a web socket (RFC 6455) as they pass by,
// to find out how it was closed.
//
// The life of a [Scanner], one for each direction of a socket:
//
//  1. Whoever carries the bytes shows them to Scan, in their order and in
//     whatever pieces they come. It reads headers, skips payloads, and keeps
//     nothing: its state is a few dozen bytes, and it allocates nothing.
//  2. Between shows it knows whether a frame may be put in here (AtBoundary).
//  3. When the close frame has passed, it knows the code (Closed). What follows
//     is not looked at.
//
// It judges no more than it must: masks, reserved bits, unknown opcodes, UTF-8
// and the order of fragments are the affair of the web socket library that
// speaks. Only what makes the end of a frame or the meaning of a close frame
// doubtful has it give up (Broken), and then it claims nothing any more.
//
// It changes no byte, answers nobody and knows no time. Open this file; it is
// the whole, but for AppendClose.
package wsframe

import "encoding/binary"

// Close codes.
//
// Source: https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1
const (
	CodeNormal    = 1000 // the purpose was fulfilled
	CodeGoingAway = 1001 // a server that stops, or a page that is left
	CodeNoStatus  = 1005 // never sent: the close frame had no code
	CodeAbnormal  = 1006 // never sent: there was no close frame
	CodeInternal  = 1011 // the server could not go on
	CodeRestart   = 1012 // the server starts anew: the client may come back
	CodeTryAgain  = 1013 // the server is overloaded
	maxControlLen = 125
	codeLen       = 2
)

const (
	bitFinal    = 0x80
	bitMask     = 0x80
	opcodeMask  = 0x0f
	opcodeClose = 0x8
	opcodeCtrl  = 0x8 // and above: control frames
	lengthMask  = 0x7f
	length16    = 126
	length64    = 127
)

// phase says what the next byte is part of.
type phase uint8

const (
	inHeader phase = iota // of a header, or a frame's first
	inPayload
	inClose // the payload of a close frame
	closed
	broken
)

// Scanner follows one direction of a socket from its first frame on. The zero
// value is ready. It is not safe for concurrent use.
type Scanner struct {
	left   uint64   // bytes of the payload to come
	header [14]byte // 2, then 0, 2 or 8 of length, then 0 or 4 of mask
	have   uint8    // bytes of header
	body   [codeLen]byte
	got    uint8 // bytes of body
	phase  phase
	data   bool // something of a frame with data has passed since Restart
	code   uint16
}

// Scan looks at the bytes that came next.
func (s *Scanner) Scan(p []byte) {
	for len(p) > 0 {
		switch s.phase {
		case inHeader:
			n := min(headerLen(s.header[:s.have])-int(s.have), len(p))
			copy(s.header[s.have:], p[:n])
			s.have += uint8(n)
			p = p[n:]
			if int(s.have) == headerLen(s.header[:s.have]) {
				s.begin()
			}
		case inPayload:
			n := min(s.left, uint64(len(p)))
			s.left -= n
			p = p[n:]
			s.endIfOver()
		case inClose:
			p = p[s.collect(p):]
			s.endIfOver()
		default:
			return
		}
	}
}

// headerLen is how long a header is, as far as what is there of it says.
func headerLen(h []byte) int {
	if len(h) < 2 {
		return 2
	}
	n := 2
	switch h[1] & lengthMask {
	case length16:
		n += 2
	case length64:
		n += 8
	}
	if h[1]&bitMask != 0 {
		n += 4
	}
	return n
}

// begin judges a whole header.
func (s *Scanner) begin() {
	h := s.header[:s.have]
	s.left = payloadLen(h)
	control := h[0]&opcodeMask >= opcodeCtrl
	switch {
	case s.left > 1<<63-1, // its highest bit has to be zero
		control && (s.left > maxControlLen || h[0]&bitFinal == 0): // whether its end is that of a message, who knows
		s.phase = broken
	case h[0]&opcodeMask == opcodeClose:
		s.phase, s.got = inClose, 0
	default:
		s.phase = inPayload
		s.data = s.data || !control
	}
	s.endIfOver()
}

func payloadLen(h []byte) uint64 {
	switch n := h[1] & lengthMask; n {
	case length16:
		return uint64(binary.BigEndian.Uint16(h[2:]))
	case length64:
		return binary.BigEndian.Uint64(h[2:])
	default:
		return uint64(n)
	}
}

// collect takes what is there of a close frame's payload: the code, of which it
// takes the mask off, and a reason, which it skips.
func (s *Scanner) collect(p []byte) int {
	n := int(min(s.left, uint64(len(p))))
	for _, b := range p[:n] {
		if s.got == codeLen {
			break
		}
		if s.header[1]&bitMask != 0 {
			b ^= s.header[s.have-4+s.got]
		}
		s.body[s.got] = b
		s.got++
	}
	s.left -= uint64(n)
	return n
}

// endIfOver ends the frame when nothing of it is left.
func (s *Scanner) endIfOver() {
	if s.left > 0 {
		return
	}
	switch s.phase {
	case inPayload:
		s.phase, s.have = inHeader, 0
	case inClose:
		s.end()
	}
}

// end reads the code of a whole close frame. One that is not allowed on the
// wire is a fault that the other side answers with a code of its own.
func (s *Scanner) end() {
	s.phase, s.code = closed, CodeNoStatus
	switch s.got {
	case 0:
	case codeLen:
		s.code = binary.BigEndian.Uint16(s.body[:])
		if !sendable(s.code) {
			s.phase = broken
		}
	default:
		s.phase = broken
	}
}

// sendable reports whether a close frame may carry the code.
//
// Source: https://www.rfc-editor.org/rfc/rfc6455#section-7.4.2
func sendable(code uint16) bool {
	switch code {
	case 1004, CodeNoStatus, CodeAbnormal, 1015:
		return false
	}
	return code >= 1000 && code < 5000
}

// Closed reports whether a whole close frame has passed, and its code:
// CodeNoStatus where it had none, else 1000 to 4999.
func (s *Scanner) Closed() (code int, ok bool) {
	return int(s.code), s.phase == closed
}

// Restart begins a stretch of which HasData then tells. A frame with data that
// is under way counts for it.
func (s *Scanner) Restart() {
	s.data = s.phase == inPayload && s.header[0]&opcodeMask < opcodeCtrl
}

// HasData reports whether anything of a message has passed since Restart, or
// since the beginning, but for a header that is not whole.
func (s *Scanner) HasData() bool { return s.data }

// AtBoundary reports whether the last byte was the end of a frame, or the first
// is still to come, so that a control frame may be sent next. It is false once
// the close frame has passed, after which none may be.
func (s *Scanner) AtBoundary() bool { return s.phase == inHeader && s.have == 0 }

// Broken reports whether what has passed was no sequence of frames.
func (s *Scanner) Broken() bool { return s.phase == broken }

// AppendClose appends a server's close frame to b. A code that must not be sent
// is left out, and the reason with it, which is cut to what a frame holds; it
// has to be ASCII.
func AppendClose(b []byte, code int, reason string) []byte {
	if code < 0 || code > 1<<16-1 || !sendable(uint16(code)) {
		return append(b, bitFinal|opcodeClose, 0)
	}
	reason = reason[:min(len(reason), maxControlLen-codeLen)]
	b = append(b, bitFinal|opcodeClose, byte(codeLen+len(reason)), byte(code>>8), byte(code))
	return append(b, reason...)
}
