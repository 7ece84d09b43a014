// Package socket is a connection that a handler has taken over from the HTTP
// proxy: a web socket as a rule. The handler, or the library that speaks for it,
// has it as a [net.Conn]; the proxy learns from it how the socket ended.
//
// The life of a [Conn]:
//
//  1. New wraps the connection. If the handler writes the head of the response
//     itself, a header is put in, and its status is remembered.
//  2. Reads and writes go straight to the connection. Scanners of package
//     wsframe see the bytes on their way, find the close frame of either side,
//     and know where a frame ends.
//  3. While the handler does not read, nobody would notice that the client has
//     left. So once it has not read for a moment, a goroutine reads ahead for
//     it, up to a bound. The handler's next Read stops that, takes what is there
//     and reads on by itself. A handler that reads in a loop, which is nearly
//     every one, costs neither this goroutine nor a copy.
//  4. Over tells the owner, once, that the socket is over: the client is gone,
//     it has sent its close frame and the handler has read what came before, or
//     the handler has closed the socket.
//  5. Finish ends it on the owner's side: with a close frame where one may still
//     be sent, time for the client to answer, and then the connection's end.
//
// It does not speak RFC 6455: pings, masks, messages and the handshake are the
// handler's. It puts in a close frame only where the socket is being ended and
// none has been sent, and then lets nothing follow it.
//
// Open this file, then read.go, write.go and end.go.
package socket

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/stall"
	"github.com/servetrace/servetrace/serving/internal/wsframe"
)

// Options are what a Conn has to know of its request.
type Options struct {
	// Context is the request's. Required.
	Context context.Context
	// Over is called once, when the socket is over: it should end Context. It
	// must not block. Required.
	Over func(End)
	// WebSocket says that frames of RFC 6455 follow the response's head. Other
	// protocols are passed on unseen: the handler alone knows how they end.
	WebSocket bool
	// Status is that of a head that has been written; 0: the handler writes it.
	Status int
	// Header and Value are put into a head that the handler writes.
	Header, Value string
	// Buffered is what has been read of the connection already. It is the
	// Conn's from now on.
	Buffered []byte
	// Stall is how long the client may take nothing of what is written; no limit if
	// it is not positive.
	Stall time.Duration
}

// End is how a socket came to its end.
type End int

// The ends.
const (
	// Gone: the client left, and no close frame had passed.
	Gone End = iota
	// Stalled: the client took nothing of what was written.
	Stalled
	// Closed: by a close frame, which the handler had the time to answer.
	Closed
	// Left: the handler has closed the connection, or the owner has begun to.
	Left
)

// readAheadAfter is how long the handler may not read before somebody does so
// in its place. It is also how long it has to answer a close frame that it has
// read before the request ends.
const readAheadAfter = 100 * time.Millisecond

// readAheadBytes bounds what is read in the handler's place. Of a client that
// sends more, and then leaves, nobody knows until the handler reads or writes.
const readAheadBytes = 64 << 10

// Conn is the connection. Its methods are safe for concurrent use.
type Conn struct {
	conn   net.Conn
	o      Options
	done   chan struct{} // closed when conn has been
	writes stall.Deadline
	look   *time.Timer // calls tick, while armed

	ahead sync.WaitGroup // of the goroutine that reads ahead

	// rmu is held by whoever reads from conn: the handler, the goroutine that
	// reads ahead, or Finish. It is taken before mu, and never with wmu.
	rmu     sync.Mutex
	in      wsframe.Scanner
	buf     []byte // read ahead
	readErr error  // what ended reading ahead

	// wmu is held by whoever writes to conn. It is taken before mu.
	wmu  sync.Mutex
	out  wsframe.Scanner
	head []byte // what has been written of the response's head, until it is whole
	late *late  // a close frame that waits for the end of the handler's frame

	mu           sync.Mutex
	status       int       // of the response
	code         int       // of the first close frame of either side; 0: none
	peerFirst    bool      // code is the client's
	peerClosed   time.Time // when the client's close frame came, or was next to be read
	behind       bool      // the handler may have messages to read before that
	readers      int       // handlers in Read
	reads        int       // how many have been
	seen         int       // reads, when tick last looked
	armed        bool      // tick will come
	reading      bool      // somebody reads ahead
	moved        bool      // conn's read deadline is not readBy
	readBy       time.Time
	over         bool // Over has been called
	left         bool // the handler has closed it
	ending       bool // Finish has begun
	closed       bool // conn is
	headExpected bool // the handler has still to write the response's head
}

var _ net.Conn = (*Conn)(nil)

// New makes a Conn of c, whose deadlines must not be set. Finish has to be
// called in the end.
func New(c net.Conn, o Options) *Conn {
	s := &Conn{
		conn:         c,
		o:            o,
		done:         make(chan struct{}),
		writes:       stall.New(o.Stall, false, c.SetWriteDeadline),
		buf:          o.Buffered,
		status:       o.Status,
		headExpected: o.Status == 0,
	}
	if o.WebSocket {
		s.rmu.Lock() // tick may come before passed has ended
		defer s.rmu.Unlock()
		s.mu.Lock()
		s.armed = true
		s.look = time.AfterFunc(readAheadAfter, s.tick)
		s.mu.Unlock()
		s.passed(o.Buffered, nil)
	}
	return s
}

// Done is closed when the connection has been closed.
func (s *Conn) Done() <-chan struct{} { return s.done }

// Status is that of the response that the handler gave; 0 while there is none,
// or if it was none of HTTP.
func (s *Conn) Status() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Code is that of the close frame that came first, of either side;
// wsframe.CodeAbnormal where there was none.
func (s *Conn) Code() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.code == 0 {
		return wsframe.CodeAbnormal
	}
	return s.code
}

// ClosedByClient reports whether the client's close frame came first.
func (s *Conn) ClosedByClient() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peerFirst
}

// LocalAddr implements [net.Conn].
func (s *Conn) LocalAddr() net.Addr { return s.conn.LocalAddr() }

// RemoteAddr implements [net.Conn].
func (s *Conn) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }

// SetDeadline implements [net.Conn].
func (s *Conn) SetDeadline(t time.Time) error {
	if err := s.SetReadDeadline(t); err != nil {
		return err
	}
	return s.SetWriteDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (s *Conn) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.endedLocked(); err != nil {
		return err
	}
	s.readBy = t
	if s.reading { // without a deadline, until the handler reads again
		return nil
	}
	return s.conn.SetReadDeadline(t)
}

// SetWriteDeadline implements [net.Conn].
func (s *Conn) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.endedLocked(); err != nil {
		return err
	}
	return s.writes.SetOwn(t)
}

// endedLocked is why the handler can no longer use the connection, or nil.
func (s *Conn) endedLocked() error {
	switch {
	case s.ending && s.o.Context.Err() != nil:
		return context.Cause(s.o.Context)
	case s.ending, s.left, s.closed:
		return net.ErrClosed
	}
	return nil
}

// noteClose remembers the close frame of one side, if it is the first.
// behind says that the handler may not have read all messages before that of
// the client.
func (s *Conn) noteClose(code int, peer, behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.code == 0 {
		s.code, s.peerFirst = code, peer
	}
	if !peer || !s.peerClosed.IsZero() {
		return
	}
	s.behind = behind
	s.reachedLocked()
}

// reachedLocked gives the handler the time to answer the client's close frame.
func (s *Conn) reachedLocked() {
	s.peerClosed = time.Now()
	if !s.ending && !s.closed {
		s.armed = true
		s.look.Reset(readAheadAfter)
	}
}

// tell calls Over, once, with the end that shows.
func (s *Conn) tell() {
	s.mu.Lock()
	end := Closed
	switch {
	case s.left, s.ending:
		end = Left
	case s.code == 0:
		end = Gone
	}
	s.mu.Unlock()
	s.tellEnd(end)
}

// tellEnd calls Over, once.
func (s *Conn) tellEnd(end End) {
	s.mu.Lock()
	told := s.over
	s.over = true
	s.mu.Unlock()
	if !told {
		s.o.Over(end)
	}
}
