// Package wsframe follows the frames of a web socket (RFC 6455) to find out how the
// socket was closed.
//
// The life of a [Scanner], one for each direction of a socket:
//
//  1. The owner of the connection passes all bytes to Scan, in their order and in pieces of
//     any size. Scan reads the headers of frames and skips payloads. It keeps a few dozen
//     bytes of state, and allocates nothing.
//  2. Between two calls of Scan, AtBoundary reports whether another frame may be inserted
//     after the scanned bytes.
//  3. After the close frame, Closed reports its code. Scan ignores later bytes.
//
// A Scanner does not check masks, reserved bits, unknown opcodes, UTF-8 or the order of
// fragments, because the web socket library does so. If it cannot find the end of a frame,
// or the code of a close frame is invalid, it is Broken and ignores all later bytes.
//
// The package changes no bytes, sends nothing and has no timer.
package wsframe

import "encoding/binary"

// The codes of close frames, and the sizes of their parts.
//
// Source: https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1
const (
	CodeGoingAway = 1001 // the server stops, or the user leaves the page
	CodeNoStatus  = 1005 // only in logs and spans: the close frame had no code
	CodeAbnormal  = 1006 // only in logs and spans: there was no close frame
	CodeInternal  = 1011 // the server could not continue
	CodeRestart   = 1012 // the server restarts, and the client may connect again
	CodeTryAgain  = 1013 // the server is overloaded
	maxControlLen = 125  // the largest payload of a control frame, in bytes
	codeLen       = 2    // the length of a code in a close frame, in bytes
)

const (
	bitFinal    = 0x80 // in the first byte: the last frame of a message
	bitMask     = 0x80 // in the second byte: a mask follows the length
	opcodeMask  = 0x0f // the bits of the opcode in the first byte
	opcodeClose = 0x8
	opcodeCtrl  = 0x8  // the smallest opcode of a control frame
	lengthMask  = 0x7f // the bits of the length in the second byte
	length16    = 126  // this length means that the length is in the next 2 bytes
	length64    = 127  // this length means that the length is in the next 8 bytes
)

// phase is the part of a frame to which the next scanned byte belongs.
type phase uint8

const (
	inHeader  phase = iota // the header of a frame, of which no byte may have come yet
	inPayload              // the payload of a frame that is not a close frame
	inClose                // the payload of a close frame
	closed                 // a byte after the close frame
	broken                 // the bytes cannot be scanned any further
)

// Scanner scans one direction of a socket, from its first frame on. The zero value is
// ready. It is not safe for concurrent use.
type Scanner struct {
	left   uint64        // number of bytes of the payload that have not come yet
	header [14]byte      // header of the current frame: 2 bytes, 0, 2 or 8 bytes of length, and 0 or 4 bytes of mask
	have   uint8         // number of bytes in header
	body   [codeLen]byte // the first bytes of a close frame's payload, unmasked
	got    uint8         // number of bytes in body
	phase  phase
	data   bool   // a part of a data frame has passed since Restart
	code   uint16 // code of the close frame; set in the phase closed
}

// Scan scans the next bytes.
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

// headerLen returns the length of the header that begins with h, in bytes. If h is too short
// to determine the length, it returns 2.
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

// begin starts the payload of a frame whose header is complete.
func (s *Scanner) begin() {
	h := s.header[:s.have]
	s.left = payloadLen(h)
	control := h[0]&opcodeMask >= opcodeCtrl
	switch {
	case s.left > 1<<63-1, // RFC 6455 demands that the highest bit is zero
		control && (s.left > maxControlLen || h[0]&bitFinal == 0): // a control frame must be short and not fragmented
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

// collect reads the payload of a close frame at the start of p, and returns the number of its
// bytes in p. It keeps the code, unmasked, and skips the reason.
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

// endIfOver ends the current frame if its payload is complete.
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

// end reads the code of a complete close frame. After a code that must not be sent, the
// scanner is broken, because the other side answers it with a code of its own.
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

// sendable reports whether RFC 6455 allows the code in a close frame.
//
// Source: https://www.rfc-editor.org/rfc/rfc6455#section-7.4.2
func sendable(code uint16) bool {
	switch code {
	case 1004, CodeNoStatus, CodeAbnormal, 1015:
		return false
	}
	return code >= 1000 && code < 5000
}

// Closed reports whether a complete close frame has passed. code is its code, from 1000 to
// 4999, or CodeNoStatus if the frame had no code.
func (s *Scanner) Closed() (code int, ok bool) {
	return int(s.code), s.phase == closed
}

// Restart starts the count of HasData again. A data frame that has begun and not ended
// counts for the time after Restart.
func (s *Scanner) Restart() {
	s.data = s.phase == inPayload && s.header[0]&opcodeMask < opcodeCtrl
}

// HasData reports whether any part of a message has passed since the last call of Restart, or
// since the first frame. An incomplete header does not count.
func (s *Scanner) HasData() bool { return s.data }

// AtBoundary reports whether a control frame may be sent next, because the last byte was the
// end of a frame, or no byte has passed yet. It is false after the close frame, because no
// frame may follow that.
func (s *Scanner) AtBoundary() bool { return s.phase == inHeader && s.have == 0 }

// Broken reports whether the scanned bytes were not a valid sequence of frames.
func (s *Scanner) Broken() bool { return s.phase == broken }

// AppendClose appends a server's close frame to b. If the code must not be sent, the frame
// has no code and no reason. The reason must be ASCII, and is cut to the size of a control
// frame.
func AppendClose(b []byte, code int, reason string) []byte {
	if code < 0 || code > 1<<16-1 || !sendable(uint16(code)) {
		return append(b, bitFinal|opcodeClose, 0)
	}
	reason = reason[:min(len(reason), maxControlLen-codeLen)]
	b = append(b, bitFinal|opcodeClose, byte(codeLen+len(reason)), byte(code>>8), byte(code))
	return append(b, reason...)
}
