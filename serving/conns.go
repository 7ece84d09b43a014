package serving

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// conns knows the open connections, for what net/http does otherwise than we
// need. [http.Server.Shutdown] would wait five seconds for each that has not
// sent a request yet. An HTTP/1.1 connection that must not be used again is
// closed, though its last response does not say so. And net/http waits without
// limit for a client as it finishes a response whose handler has returned: for
// the rest of the body, and for space to send the last bytes.
type conns struct {
	mu     sync.Mutex
	open   map[net.Conn]*connection
	closed bool
}

// connection is one of a client's. Its requests' contexts carry it.
type connection struct {
	conns *conns
	net   net.Conn

	ongoing atomic.Int32 // requests in the proxy; one at most with HTTP/1.1
	left    atomic.Int64 // the watch's beat in which the last of them left it
	moved   atomic.Int64 // the beat in which the client last took something
	http2   atomic.Bool

	// Guarded by conns.mu.
	fresh   bool // has not sent a request
	active  bool // net/http is busy with at least one request
	retired bool // to be closed when it is idle
}

func newConns() *conns { return &conns{open: make(map[net.Conn]*connection)} }

// onState is the server's ConnState hook.
func (s *conns) onState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.open[c]
	if conn == nil {
		return // closed
	}
	conn.fresh, conn.active = state == http.StateNew, state == http.StateActive
	switch state {
	case http.StateActive:
		conn.left.Store(0)
	case http.StateNew:
		if s.closed {
			_ = c.Close() // it has carried nothing
		}
	case http.StateIdle: // the response is with the kernel
		if conn.retired {
			_ = c.Close() // nothing was to follow
		}
	case http.StateClosed, http.StateHijacked:
		delete(s.open, c)
	}
}

// closeFresh closes the connections without a request, and those that come
// after.
func (s *conns) closeFresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c, conn := range s.open {
		if conn.fresh {
			_ = c.Close() // it has carried nothing
		}
	}
}

// hurry ends what net/http still waits for on connections without a request in
// the proxy.
func (s *conns) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.open {
		if conn.active && conn.ongoing.Load() == 0 {
			conn.hurryLocked()
		}
	}
}

// hurryLate does so where net/http has waited for too long.
func (s *conns) hurryLate(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.open {
		if conn.active && conn.ongoing.Load() == 0 && late(&conn.left, now) {
			conn.hurryLocked()
		}
	}
}

// hurryLocked has net/http end the response that it is finishing: it does not
// wait for the rest of the body any more, and has cutGrace to send what it has.
// The streams of HTTP/2 can not be told apart here, and none of them moves.
func (c *connection) hurryLocked() {
	if c.http2.Load() || c.retired {
		_ = c.net.Close() // its deadlines were set before, in vain
		return
	}
	c.retired = true
	_ = c.net.SetReadDeadline(time.Now()) // fails where it is closed already
	_ = c.net.SetWriteDeadline(time.Now().Add(cutGrace))
}

type connectionKey struct{}

// onContext is the server's ConnContext hook.
func (s *conns) onContext(ctx context.Context, c net.Conn) context.Context {
	conn := &connection{conns: s, net: c}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = conn
	return context.WithValue(ctx, connectionKey{}, conn)
}

// connectionOf gives nil for a request that came by none, as in a benchmark.
func connectionOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

// enter counts r in while the proxy has it, until leave.
func (c *connection) enter(r *http.Request) {
	if c == nil {
		return
	}
	c.http2.Store(r.ProtoMajor == 2)
	c.ongoing.Add(1)
}

func (c *connection) leave(beat int64) {
	if c != nil {
		c.left.Store(beat)
		c.ongoing.Add(-1)
	}
}

// retire has r's connection closed when its response has been sent. A read
// deadline that we set may have hit a read of net/http's own, whereupon it ends
// the context of every later request; and what is left of a body would be taken
// for one. HTTP/2 has deadlines for each stream and needs none of this.
func retire(r *http.Request) {
	c := connectionOf(r)
	if c == nil || r.ProtoMajor != 1 {
		return
	}
	c.conns.mu.Lock()
	defer c.conns.mu.Unlock()
	c.retired = true
}
