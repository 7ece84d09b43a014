package serving

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
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
	open   map[*connection]struct{}
	closed bool
}

// connection is one of a client's, as net/http has it, and the context that those of
// its requests are derived from: to find it there costs no look at memory that
// nobody has looked at since the last request.
type connection struct {
	timed
	context.Context

	end context.CancelFunc // ends that, and with it the contexts of its requests

	current atomic.Pointer[exchange] // whose handler runs on its goroutine; nil: none
	broken  atomic.Bool              // the client sends no more
	taken   atomic.Bool              // from net/http, by Hijack
	hurried atomic.Bool              // a write deadline may be ours
	over    atomic.Bool              // closed after a response, as it was retired

	identity string // of the request to whose response the next write belongs; empty once it has it

	life  atomic.Uint64 // see below
	moved atomic.Int64  // the watch's beat in which the client last took something
	http2 atomic.Bool
}

// What life has. A request changes it four times, so that it is one word.
const (
	connFresh    uint64 = 1 << iota // has not sent a request
	connActive                      // net/http is busy with at least one request
	connRetired                     // to be closed when it is idle
	connOngoing                     // from here on, how many requests are in the proxy; one at most with HTTP/1.1
	connLeftBit  = 24               // from here on, the beat in which the last of them left it; 0 as the next comes
	connButLeft  = 1<<connLeftBit - 1
	connRequests = connButLeft &^ (connOngoing - 1)
)

func newConns() *conns { return &conns{open: make(map[*connection]struct{})} }

// onState is the server's ConnState hook.
func (s *conns) onState(c net.Conn, state http.ConnState) {
	conn, is := c.(*connection)
	if !is {
		return // it came by a listener of somebody else's
	}
	if state == http.StateActive || state == http.StateIdle {
		conn.turn(state)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	conn.turn(state)
	switch state {
	case http.StateNew:
		if s.closed {
			_ = c.Close() // it has carried nothing
		}
	case http.StateClosed:
		delete(s.open, conn)
		conn.end()
	case http.StateHijacked:
		delete(s.open, conn)
		conn.taken.Store(true)
	}
}

// turn has c be in state.
func (c *connection) turn(state http.ConnState) {
	for {
		old := c.life.Load()
		now := old &^ (connFresh | connActive)
		switch state {
		case http.StateNew:
			now |= connFresh
		case http.StateActive:
			now = now&connButLeft | connActive
		}
		if !c.life.CompareAndSwap(old, now) {
			continue
		}
		if state == http.StateIdle && now&connRetired != 0 { // the response is with the kernel
			c.over.Store(true)
			_ = c.Close() // nothing was to follow
		}
		return
	}
}

// closeFresh closes the connections without a request, and those that come
// after.
func (s *conns) closeFresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for conn := range s.open {
		if conn.life.Load()&connFresh != 0 {
			_ = conn.Close() // it has carried nothing
		}
	}
}

// hurry ends what net/http still waits for on connections without a request in
// the proxy.
func (s *conns) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		conn.hurry(0)
	}
}

// hurryLate does so where net/http has waited for too long.
func (s *conns) hurryLate(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		conn.hurry(now)
	}
}

// hurry has net/http end the response that it is finishing, if it is, and has been
// for too long at the beat now, which 0 does not ask for: it does not wait for the
// rest of the body any more, and has cutGrace to send what it has. The streams of
// HTTP/2 can not be told apart here, and none of them moves.
func (c *connection) hurry(now int64) {
	was, is := c.retireLate(now)
	if !is {
		return
	}
	if c.http2.Load() || was&connRetired != 0 {
		_ = c.Close() // its deadlines were set before, in vain
		return
	}
	c.hurried.Store(true)
	_ = c.SetReadDeadline(time.Now()) // fails where it is closed already
	_ = c.SetWriteDeadline(time.Now().Add(cutGrace))
}

// retireLate retires c if it is to be hurried, and gives what its life was.
func (c *connection) retireLate(now int64) (was uint64, is bool) {
	for {
		was = c.life.Load()
		if was&connActive == 0 || was&connRequests != 0 {
			return was, false
		}
		life := was | connRetired
		if now != 0 {
			if !overdue(int64(was>>connLeftBit), now) {
				return was, false
			}
			life = life&connButLeft | uint64(now)<<connLeftBit // the next time counts anew
		}
		if c.life.CompareAndSwap(was, life) {
			return was, true
		}
	}
}

type connectionKey struct{}

// onContext is the server's ConnContext hook.
func (s *conns) onContext(ctx context.Context, c net.Conn) context.Context {
	conn, is := c.(*connection)
	if !is {
		return ctx
	}
	conn.Context, conn.end = context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[conn] = struct{}{}
	return conn
}

// Value implements [context.Context].
func (c *connection) Value(key any) any {
	if _, is := key.(connectionKey); is {
		return c
	}
	return c.Context.Value(key)
}

// listener makes connections of those that it accepts.
type listener struct{ net.Listener }

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &connection{timed: timed{Conn: c}}, nil
}

// Read implements [net.Conn]. net/http reads while a handler runs, to see the
// client leave, and then ends the request's context.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.timed.Read(b)
	if err == nil {
		return n, nil
	}
	if !c.isLate(err) { // which is also how net/http ends a read of its own
		c.broken.Store(true)
	}
	c.failed()
	return n, err
}

// Write implements [net.Conn]. net/http ends the request's context where it fails.
func (c *connection) Write(b []byte) (int, error) {
	if c.identity != "" {
		return c.writeHead(b)
	}
	return c.write(b)
}

// identify has the next write, which is the first of an HTTP/1.1 response, tell the
// client the request id. In net/http's map of headers a line costs a microsecond:
// the map, the copy that net/http makes of it, and its walks over that.
//
// Nobody else writes from net/http's WriteHeader until the response begins: it
// sends no 100 Continue any more, but for a 101, which has its id in the map.
func (c *connection) identify(id string) { c.identity = id }

// heads are where the first write of a response gets its line. That has as much as
// net/http's buffer, 4 KiB, at most.
var heads = sync.Pool{New: func() any { return new([4<<10 + 256]byte) }}

// writeHead writes b, the beginning of a response, with its request id below the
// status line.
func (c *connection) writeHead(b []byte) (int, error) {
	room := heads.Get().(*[4<<10 + 256]byte)
	defer heads.Put(room)
	status := bytes.IndexByte(b, '\n') + 1
	head := append(room[:0], b[:status]...)
	head = append(head, headerRequestID+": "...)
	head = append(head, c.identity...)
	head = append(head, "\r\n"...)
	more := len(head) - status
	head = append(head, b[status:]...)
	c.identity = ""
	n, err := c.write(head)
	if n <= status {
		return n, err
	}
	return max(status, n-more), err
}

// write writes b. A deadline of ours is for clients that are slow to read. A
// goroutine that got no processor until it had passed would fail though there is
// space, and its client miss an answer that is complete: so it tries once more.
func (c *connection) write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.hurried.Load() && !c.broken.Load() {
		if err = c.SetWriteDeadline(time.Now().Add(againGrace)); err == nil {
			n, err = c.Conn.Write(b)
		}
	}
	if err != nil {
		c.failed()
	}
	return n, err
}

// againGrace is short, for a client that does not read has had its time.
const againGrace = 50 * time.Millisecond

// failed ends the current request, as its client has left or, to net/http, is as
// good as that: it ends the contexts of all later requests too.
func (c *connection) failed() {
	x := c.current.Load()
	if x == nil {
		return
	}
	c.end()
	retire(x.r)
	go x.over() // ends as soon as the request is concluded
}

// CloseWrite is what net/http asks of the connections of TCP.
func (c *connection) CloseWrite() error {
	if half, is := c.Conn.(interface{ CloseWrite() error }); is {
		return half.CloseWrite()
	}
	return nil
}

// findStalled is for the watch: it ends the requests that their clients hold up.
func (s *conns) findStalled(now int64) {
	s.eachCurrent(func(x *exchange) {
		if late(&x.resp.watched.reading, now) {
			go x.stalled(readStall) // ends as soon as the request is concluded
		}
		if late(&x.resp.watched.writing, now) {
			go x.stalled(writeStall) // as above
		}
	})
}

// cutOff ends the requests that are with a replica whose cut has been closed.
func (s *conns) cutOff(cut <-chan struct{}) {
	s.eachCurrent(func(x *exchange) {
		if x.place.cut() == cut {
			go x.rescue(ErrReplicaStopped) // ends as soon as the request is concluded
		}
	})
}

// shutDown ends all requests, whose contexts have been ended.
func (s *conns) shutDown() {
	s.eachCurrent(func(x *exchange) {
		go x.over() // ends as soon as the request is concluded
	})
}

// eachCurrent calls f with each request whose handler runs on its connection's
// goroutine. One that has just begun may be missed: see [proxy.here].
func (s *conns) eachCurrent(f func(*exchange)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		if x := conn.current.Load(); x != nil {
			f(x)
		}
	}
}

// connectionOf gives nil for a request that came by none, as in a benchmark.
func connectionOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

// enter counts r in while the proxy has it, until leave. It turns away one that
// came before its connection was closed, to which no answer can get.
func (c *connection) enter(r *http.Request) {
	if c == nil {
		return
	}
	if c.over.Load() {
		panic(http.ErrAbortHandler) // net/http had read r too, which is lost with the connection
	}
	if r.ProtoMajor == 2 && !c.http2.Load() {
		c.http2.Store(true)
	}
	c.life.Add(connOngoing)
}

func (c *connection) leave(beat int64) {
	if c == nil {
		return
	}
	for {
		old := c.life.Load()
		if c.life.CompareAndSwap(old, (old-connOngoing)&connButLeft|uint64(beat)<<connLeftBit) {
			break
		}
	}
	if c.taken.Load() {
		c.end()
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
	c.hurried.Store(true)
	c.life.Or(connRetired)
}
