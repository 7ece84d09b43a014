package socket

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/servetrace/servetrace/serving/internal/wsframe"
)

// stepBytes is how much is written at once, so that a large write of which the
// client takes something can be told from one of which it takes nothing.
const stepBytes = 64 << 10

// late is a close frame that is to be sent when the handler's frame has ended.
type late struct {
	code   int
	reason string
}

// Write implements [net.Conn].
func (s *Conn) Write(p []byte) (int, error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.writable(); err != nil {
		return 0, err
	}
	if s.headExpectedNow() {
		return s.writeHead(p)
	}
	n, err := s.send(p)
	if s.late != nil && err == nil {
		s.sendClose(s.late.code, s.late.reason)
	}
	return n, s.explain(err)
}

// writable is why nothing may be written any more. A frame that the handler has
// begun may be ended also while the socket is.
func (s *Conn) writable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late != nil && !s.left && !s.closed {
		return nil
	}
	return s.endedLocked()
}

func (s *Conn) headExpectedNow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.headExpected
}

// send writes what the handler sends, and follows its frames.
func (s *Conn) send(p []byte) (n int, err error) {
	for {
		s.writes.Begin(0)
		m, err := s.conn.Write(p[:min(len(p), stepBytes)])
		if err != nil && s.writes.Expired() {
			s.tellEnd(Stalled)
		}
		s.sent(p[:m], err)
		n += m
		p = p[m:]
		if err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// sent looks at what a write took. It is called with wmu held.
func (s *Conn) sent(b []byte, err error) {
	if !s.o.WebSocket {
		return
	}
	if _, before := s.out.Closed(); !before && len(b) > 0 {
		s.out.Scan(b)
		if code, now := s.out.Closed(); now {
			s.noteClose(code, false, false)
		}
	}
	if err != nil && !isTimeout(err) {
		s.tell()
	}
}

// maxHeadBytes bounds the head of a response that a handler writes.
const maxHeadBytes = 64 << 10

var headEnd = []byte("\r\n\r\n")

// writeHead gathers the head that the handler writes, and sends it when it is
// whole, together with what follows it.
func (s *Conn) writeHead(p []byte) (int, error) {
	s.head = append(s.head, p...)
	size := bytes.Index(s.head, headEnd) + len(headEnd)
	whole := size >= len(headEnd)
	if !whole && len(s.head) <= maxHeadBytes && couldBeHead(s.head) {
		return len(p), nil
	}
	if err := s.sendHead(size, whole); err != nil {
		return 0, s.explain(err)
	}
	return len(p), nil
}

// sendHead sends what there is of the head, of size if it is whole, and what
// follows it.
func (s *Conn) sendHead(size int, whole bool) error {
	head, rest := s.head, []byte(nil)
	if whole {
		head, rest = setHeader(s.head[:size], s.o.Header, s.o.Value), s.head[size:]
	}
	s.head = nil
	s.mu.Lock()
	s.headExpected = false
	s.status = statusOf(head)
	s.mu.Unlock()
	s.writes.Begin(0)
	_, err := s.conn.Write(head)
	if err != nil && s.writes.Expired() {
		s.tellEnd(Stalled)
	}
	if err == nil && len(rest) > 0 {
		_, err = s.send(rest)
	}
	return err
}

const protocolName = "HTTP/"

// couldBeHead reports whether a head of HTTP/1 begins like this.
func couldBeHead(b []byte) bool {
	n := min(len(b), len(protocolName))
	return string(b[:n]) == protocolName[:n]
}

// statusOf reads the status line, "HTTP/1.1 101 Switching Protocols"; 0 where
// it is none.
func statusOf(head []byte) int {
	if !bytes.HasPrefix(head, []byte(protocolName)) {
		return 0
	}
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	words := bytes.Fields(line)
	if len(words) < 2 {
		return 0
	}
	status, err := strconv.Atoi(string(words[1]))
	if err != nil || status < 100 || status > 999 {
		return 0
	}
	return status
}

// setHeader gives head with the header set, in place of any of that name.
func setHeader(head []byte, name, value string) []byte {
	out := make([]byte, 0, len(head)+len(name)+len(value)+4)
	first := true
	for line := range bytes.SplitAfterSeq(head, []byte("\r\n")) {
		key, _, _ := bytes.Cut(line, []byte(":"))
		if !first && bytes.EqualFold(key, []byte(name)) {
			continue
		}
		out = append(out, line...)
		if first {
			out = append(out, name...)
			out = append(out, ": "...)
			out = append(out, value...)
			out = append(out, "\r\n"...)
		}
		first = false
	}
	return out
}

// sendClose sends a close frame, unless one has been. In the midst of a frame
// that the handler sends, it is left until that ends. It is called with wmu
// held, by whoever ends the socket.
func (s *Conn) sendClose(code int, reason string) {
	if !s.speaksFrames() || s.out.Broken() {
		return
	}
	if _, sent := s.out.Closed(); sent {
		return
	}
	s.late = &late{code: code, reason: reason}
	if !s.out.AtBoundary() {
		return
	}
	s.late = nil
	frame := wsframe.AppendClose(make([]byte, 0, 128), code, reason)
	n, err := s.conn.Write(frame)
	s.sent(frame[:n], err)
}

// speaksFrames reports whether the web socket was opened.
func (s *Conn) speaksFrames() bool {
	const switchingProtocols = 101
	return s.o.WebSocket && s.Status() == switchingProtocols
}

// CloseWrite closes the writing side, where the connection can do so.
func (s *Conn) CloseWrite() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	half, ok := s.conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("close for writing: %w", errors.ErrUnsupported)
	}
	return half.CloseWrite()
}
