package httpproxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/inflight"
)

// conns holds the open connections of a server, to close them when the server stops.
// [http.Server.Shutdown] alone would wait five seconds for each connection on which no
// request has arrived, and without a limit for a client that reads a response slowly.
type conns struct {
	mu     sync.Mutex
	open   map[net.Conn]*connection
	closed bool
}

// connection is a client's connection, with the facts that closeFresh and closeStuck need.
// Its methods are safe for concurrent use.
type connection struct {
	net.Conn

	fresh bool // no request has arrived on the connection; guarded by conns.mu

	mu    sync.Mutex
	moved time.Time // time at which a write of an HTTP/2 response last succeeded; zero if none has
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
		return // an idle connection stays open, and a request has arrived on it before
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		if s.closed {
			_ = c.Close() // an error of Close harms no client, because no request has arrived
		}
	case http.StateActive:
		if conn := s.open[c]; conn != nil {
			conn.fresh = false
		}
	case http.StateClosed, http.StateHijacked:
		delete(s.open, c)
	}
}

// closeFresh closes the connections on which no request has arrived. From then on, new
// connections are closed at once.
func (s *conns) closeFresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c, conn := range s.open {
		if conn.fresh {
			_ = c.Close() // an error of Close harms no client, because no request has arrived
		}
	}
}

// hurry makes net/http finish its responses quickly, by deadlines on all connections.
// net/http reads no more bytes of request bodies, and has inflight.CutGrace to send the
// last bytes of responses. Call hurry only after the handlers of all requests have
// returned.
func (s *conns) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.SetReadDeadline(time.Now()) // fails only for a closed connection, where reads and writes fail anyway
		_ = c.SetWriteDeadline(time.Now().Add(inflight.CutGrace))
	}
}

// connectionOf returns the connection of an HTTP/2 request. It returns nil for other
// requests.
func connectionOf(r *http.Request) *connection {
	if r.ProtoMajor != 2 {
		return nil
	}
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

// progress records that a write to the client has succeeded now. It does nothing for a nil
// connection.
func (c *connection) progress() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = time.Now()
}

// closeStuck closes an HTTP/2 connection if no write on any of its streams has succeeded for
// the time limit. Otherwise each request of that client would block a replica for that time.
func (c *connection) closeStuck(limit time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.moved) >= limit {
		_ = c.Close() // ends all streams of the connection
	}
}
