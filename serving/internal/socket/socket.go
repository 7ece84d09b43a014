// Package socket is a connection that a handler has taken over from the HTTP proxy,
// mostly for a web socket. The handler or its web socket library has the connection
// as a [net.Conn]; the proxy learns how the socket ended.
//
// The life of a [Conn]:
//
//  1. New wraps the connection. If the handler writes the head of the response itself,
//     a header is put in and the status is noted ([head]).
//  2. One goroutine reads from the connection until it ends, up to a bound ahead of
//     the handler ([inbox]). So a close frame or the end of the connection is seen even
//     if the handler does not read.
//  3. Writes go straight to the connection, with a limit for a client that takes
//     nothing ([outbox]).
//  4. Both directions are scanned for the close frame (package wsframe). Options.Over
//     is called once, when the socket is over ([closing]).
//  5. Close, by the handler, or Finish, by the proxy, ends the socket: with a close frame
//     if one can still be sent, time for the client to answer it, and the connection's
//     end. Only the first of these calls has an effect.
//
// The package does not speak RFC 6455: pings, masks, messages and the handshake are the
// handler's. Open this file, then inbox.go, outbox.go and closing.go.
package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Options are the facts about its request that a Conn needs.
type Options struct {
	// Context is the context of the request. Required.
	Context context.Context
	// Over is called once, when the socket is over. Over should end Context, and must not
	// block. Required.
	Over func(End)
	// CloseFrame returns the code and the reason of the close frame for a socket that its
	// handler closes after Context has ended. Code 0 means no close frame. Required.
	CloseFrame func() (code int, reason string)
	// WebSocket reports that frames of RFC 6455 follow the head of the response. Bytes of
	// other protocols are not scanned, so only the handler knows when the protocol ends.
	WebSocket bool
	// Status is the status of a head that has been written; 0 if the handler
	// writes it.
	Status int
	// Header and Value are a header that is added to a head that the handler writes.
	Header, Value string
	// Buffered are bytes that were already read from the connection. New copies them.
	Buffered []byte
	// Stall bounds the time in which the client takes no bytes of a write; no limit if it
	// is not positive.
	Stall time.Duration
}

// End is the way in which a socket ended.
type End int

// The ends.
const (
	// Gone means that the client left without a close frame.
	Gone End = iota
	// Stalled means that the client read nothing of a write.
	Stalled
	// Closed means that a close frame ended the socket, and the handler had the time to
	// answer it.
	Closed
	// Left means that the handler has closed the connection, or the proxy has begun to close
	// it.
	Left
)

// closeGrace bounds the time for a close frame and its answer.
const closeGrace = 250 * time.Millisecond

// Conn is the connection. Its methods are safe for concurrent use.
type Conn struct {
	net.Conn // the connection; methods below replace some of its methods

	o    Options
	end  closing
	in   inbox
	out  outbox
	done chan struct{} // closed when the connection is closed and the reader has returned
}

// New returns a Conn of c, which must not have deadlines. It must be ended by Close or
// Finish.
func New(c net.Conn, o Options) *Conn {
	s := &Conn{Conn: c, o: o, done: make(chan struct{})}
	s.end.over = o.Over
	s.in.init(o.WebSocket, &s.end)
	s.out.init(c, o, &s.end)
	s.in.put(o.Buffered, nil)
	go s.in.readFrom(c) // ends with the connection, and finish waits for it
	return s
}

// Status returns the status of the handler's response; 0 if there is none yet, or if it
// was no response of HTTP.
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

// failed ends the request's context if err, of a read or a write, means that the
// connection has ended. It returns err.
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

// CloseWrite closes the writing side, if the connection can do so.
func (s *Conn) CloseWrite() error {
	half, ok := s.Conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("close for writing: %w", errors.ErrUnsupported)
	}
	return s.out.closeWrite(half.CloseWrite)
}

// Close implements [net.Conn]. The handler calls it. The client gets a close frame in two
// cases: it has sent one that the handler did not answer, or the runtime has ended the
// request.
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

// Finish ends the socket, unless it has ended, and returns when it has: within
// closeGrace. The handler's reads and writes fail from now on, with the context's cause.
//
// If code is not 0 and the handler has sent no close frame, the client gets a close
// frame. A frame that the handler has begun must end first. A client that has sent a
// close frame gets the code of that frame. The client then has time to answer, because a
// connection that is closed with unread bytes is reset, and the close frame may be lost.
//
// No goroutine of the Conn runs when Finish returns, except in the handler's own calls.
func (s *Conn) Finish(code int, reason string) {
	if first, _ := s.finish(code, reason); !first { // the socket is over in both cases
		<-s.done
	}
}

// finish ends the socket as Finish does. If another call has begun to end it, finish
// returns at once.
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
