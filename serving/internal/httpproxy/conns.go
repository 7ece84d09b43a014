package httpproxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/inflight"
)

// conns holds the open connections. [http.Server.Shutdown] would wait five seconds for each
// connection without a request. It would wait without limit for a client that reads the end
// of a response slowly.
type conns struct {
	mu     sync.Mutex
	open   map[net.Conn]*connection
	closed bool
}

// connection is the connection of a client. Its methods are safe for concurrent use.
type connection struct {
	net.Conn

	fresh bool // the client has not sent a request; guarded by conns.mu

	mu    sync.Mutex
	moved time.Time // time at which the client last read bytes of an HTTP/2 response
}

func newConns() *conns { return &conns{open: make(map[net.Conn]*connection)} }

type connectionKey struct{}

func (s *conns) onContext(ctx context.Context, c net.Conn) context.Context {
	conn := &connection{Conn: c, fresh: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = conn
	return context.WithValue(ctx, connectionKey{}, conn)
}

func (s *conns) onState(c net.Conn, state http.ConnState) {
	if state == http.StateIdle {
		return // nothing changes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		if s.closed {
			_ = c.Close() // an error has no effect, because no request has arrived
		}
	case http.StateActive:
		if conn := s.open[c]; conn != nil {
			conn.fresh = false
		}
	case http.StateClosed, http.StateHijacked:
		delete(s.open, c)
	}
}

// closeFresh closes the connections without a request, and later connections.
func (s *conns) closeFresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c, conn := range s.open {
		if conn.fresh {
			_ = c.Close() // an error has no effect, because no request has arrived
		}
	}
}

// hurry makes net/http finish its responses quickly. net/http no longer waits for the
// rest of a body, and has inflight.CutGrace to send the end of a response. The caller
// must not call hurry before the handlers of all requests have returned.
func (s *conns) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.SetReadDeadline(time.Now()) // fails if the connection is closed, and then reads fail, too
		_ = c.SetWriteDeadline(time.Now().Add(inflight.CutGrace))
	}
}

// connectionOf returns the connection of a request of HTTP/2; nil for other requests.
func connectionOf(r *http.Request) *connection {
	if r.ProtoMajor != 2 {
		return nil
	}
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

// progress records the time at which the client takes bytes of a response.
func (c *connection) progress() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = time.Now()
}

// closeStuck closes the connection if the client has read nothing on any stream for limit.
// Otherwise each of its waiting requests would block a replica in turn.
func (c *connection) closeStuck(limit time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.moved) >= limit {
		_ = c.Close() // ends its streams, too
	}
}
