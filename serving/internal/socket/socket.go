// Package socket has the connection that a handler has taken over from the HTTP proxy,
// mostly for a web socket. The handler or its web socket library uses it as a [net.Conn].
// The proxy learns from it how the socket ended.
//
// The life of a [Conn]:
//
//  1. New wraps the connection. If the handler writes the head of the response itself, the
//     Conn adds a header to it, and records its status ([head]).
//  2. One goroutine reads from the connection until it ends. It reads ahead of the handler,
//     up to a bound ([inbox]). So it finds a close frame or the end of the connection even
//     if the handler does not read.
//  3. Writes of the handler go to the connection without a buffer. A deadline bounds the
//     wait for a client that does not read ([outbox]).
//  4. Both directions are scanned for the close frame (package wsframe). Options.Over
//     is called once, when the socket has ended ([closing]).
//  5. Close by the handler, or Finish by the proxy, ends the socket. If a close frame can
//     still be sent, it is sent, and the client has some time to answer it. Then the
//     connection is closed. Only the first call of Close or Finish has an effect.
//
// The package does not implement RFC 6455: pings, masks, messages and the handshake are
// the work of the handler. Open this file first, then inbox.go, outbox.go and closing.go.
package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Options describe the request whose connection a Conn wraps.
type Options struct {
	// Context is the context of the request. Required.
	Context context.Context
	// Over is called once, when the socket has ended. Over should end Context, and must not
	// block. Required.
	Over func(End)
	// CloseFrame returns the code and the reason of the close frame for a socket that its
	// handler closes after Context has ended. Code 0 means no close frame. Required.
	CloseFrame func() (code int, reason string)
	// WebSocket reports that frames of RFC 6455 follow the head of the response. If it is
	// false, the bytes are not scanned, so only the handler finds the end of its protocol.
	WebSocket bool
	// Status is the status of the response if net/http has written the head; 0 if the handler
	// writes the head to the Conn.
	Status int
	// Header and Value are the name and the value of a header. The Conn adds it to a head that
	// the handler writes.
	Header, Value string
	// Buffered are bytes that were already read from the connection. New copies them.
	Buffered []byte
	// Stall is the longest time for which the client may delay a write; no limit if it is not
	// positive.
	Stall time.Duration
}

// End is the way in which a socket ended.
type End int

// The ways in which a socket ends.
const (
	// Gone means that the client left without a close frame.
	Gone End = iota
	// Stalled means that the client did not read a write within Options.Stall.
	Stalled
	// Closed means that a close frame of either side ended the socket, and the handler had
	// time to answer it.
	Closed
	// Left means that the handler called Close, or the proxy called Finish.
	Left
)

// closeGrace bounds the time in which a close frame is sent and the client answers it.
const closeGrace = 250 * time.Millisecond

// Conn is the connection of a socket. Its methods are safe for concurrent use.
type Conn struct {
	net.Conn // the connection without a limit; Conn replaces some of its methods

	o    Options
	end  closing
	in   inbox
	out  outbox
	done chan struct{} // closed when the connection is closed and inbox.readFrom has returned
}

// New returns a Conn that wraps c. The connection c must not have deadlines. The caller must
// end the Conn by Close or Finish.
func New(c net.Conn, o Options) *Conn {
	s := &Conn{Conn: c, o: o, done: make(chan struct{})}
	s.end.over = o.Over
	s.in.init(o.WebSocket, &s.end)
	s.out.init(c, o, &s.end)
	s.in.put(o.Buffered, nil)
	go s.in.readFrom(c) // ends when the connection is closed; finish waits for this goroutine
	return s
}

// Status returns the status of the handler's response. It returns 0 if the handler has not
// written the head, or has written other bytes than a head of HTTP.
func (s *Conn) Status() int { return int(s.out.status.Load()) }

// Code returns the code of the first close frame of either side, or wsframe.CodeAbnormal if
// there was none.
func (s *Conn) Code() int { return s.end.code() }

// ClosedByClient reports whether the client's close frame came first.
func (s *Conn) ClosedByClient() bool { return s.end.byClient() }

// Read implements [net.Conn].
func (s *Conn) Read(p []byte) (int, error) {
	n, err := s.in.read(p)
	return n, s.failed(err)
}

// Write implements [net.Conn].
func (s *Conn) Write(p []byte) (int, error) {
	n, err := s.out.write(p)
	return n, s.failed(err)
}

// failed ends the request's context if the error of a read or a write means that the
// connection has ended. A passed deadline does not mean that. failed returns err.
func (s *Conn) failed(err error) error {
	if err != nil && s.o.WebSocket && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.end.report()
	}
	return err
}

// SetDeadline implements [net.Conn].
func (s *Conn) SetDeadline(t time.Time) error {
	if err := s.SetReadDeadline(t); err != nil {
		return err
	}
	return s.SetWriteDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (s *Conn) SetReadDeadline(t time.Time) error { return s.in.setDeadline(t) }

// SetWriteDeadline implements [net.Conn].
func (s *Conn) SetWriteDeadline(t time.Time) error {
	if err := s.end.ended(); err != nil {
		return err
	}
	return s.out.limit.SetOwn(t)
}

// CloseWrite closes the writing side of the connection. The error is
// [errors.ErrUnsupported] if the connection has no such method.
func (s *Conn) CloseWrite() error {
	half, ok := s.Conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("close for writing: %w", errors.ErrUnsupported)
	}
	return s.out.closeWrite(half.CloseWrite)
}

// Close implements [net.Conn]. The handler calls it. Close sends the client a close frame in
// two cases: the client has sent a close frame that the handler did not answer, or the
// runtime has ended the request.
func (s *Conn) Close() error {
	code, reason := 0, ""
	if s.o.Context.Err() != nil {
		code, reason = s.o.CloseFrame()
	}
	first, err := s.finish(code, reason)
	if !first {
		return net.ErrClosed
	}
	return err
}

// Finish ends the socket, unless it has ended. It returns when the connection is closed,
// which takes at most closeGrace. From now on, the handler's reads and writes fail with the
// cause of the request's context.
//
// If code is not 0 and the handler has sent no close frame, Finish sends a close frame with
// code and reason. If the client has sent a close frame, Finish sends its code instead. A
// frame that the handler has begun must end first. Finish then waits for the client's
// answer: if it closed the connection while bytes are unread, the connection would be
// reset, and the close frame could be lost.
//
// When Finish returns, the goroutine of the Conn has ended. Only calls of the handler may
// still run.
func (s *Conn) Finish(code int, reason string) {
	if first, _ := s.finish(code, reason); !first { // the error of Close has no effect, because the socket has ended
		<-s.done
	}
}

// finish ends the socket as Finish does. If an earlier call of finish has begun to end it,
// finish returns false at once.
func (s *Conn) finish(code int, reason string) (first bool, err error) {
	why := net.ErrClosed
	if s.o.Context.Err() != nil {
		why = context.Cause(s.o.Context)
	}
	received, first := s.end.begin(why)
	if !first {
		return false, nil
	}
	s.in.discard()
	if received != 0 {
		code, reason = received, ""
	}
	by := time.Now().Add(closeGrace)
	if code != 0 && s.out.close(code, reason, by) {
		select {
		case <-s.in.closed:
		case <-s.in.ended:
		case <-time.After(time.Until(by)):
		}
	}
	err = s.Conn.Close()
	<-s.in.ended
	close(s.done)
	s.end.report()
	return true, err
}
