package relay

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// connections has the open connections of all listeners. It limits the number of
// connections, and the bytes of requests that are still arriving. Safe for concurrent
// use.
type connections struct {
	most      int
	mostBytes int64
	linger    time.Duration
	unused    func() // called when no connection was open for the duration linger
	log       *slog.Logger

	mu      sync.Mutex
	open    map[*conn]struct{}
	byPeer  map[string]int    // numbers of open connections by peer; no entry is zero
	held    int64             // sum of the field held of all open connections
	timer   *time.Timer       // runs while no connection is open, for Config.Linger
	refused map[string]uint64 // connections that a limit closed, by reason
	lost    map[string]uint64 // spans that senders lost, by reason
}

// Reasons for which the relay closes a connection.
const (
	reasonPeer        = "peer"        // the peer runs as another user
	reasonConnections = "connections" // there are more than Config.MaxConnections
	reasonBytes       = "bytes"       // there are more than Config.ReceiveBytes
)

func newConnections(cfg Config, unused func(), log *slog.Logger) *connections {
	return &connections{
		most: cfg.MaxConnections, mostBytes: cfg.ReceiveBytes, linger: cfg.Linger, unused: unused, log: log,
		open: map[*conn]struct{}{}, byPeer: map[string]int{}, refused: map[string]uint64{}, lost: zeroLost(),
	}
}

// conn is a connection of a sender. It counts the bytes of requests that have begun to arrive
// and are not complete.
type conn struct {
	net.Conn
	all      *connections
	protocol string
	sender   string // key for the host's limit on each sender
	peer     string // key for the limit on connections
	since    time.Time
	tally    tally

	// all.mu guards the fields below.
	read     int64      // bytes read so far
	arriving []*arrival // requests that are arriving, in the order of their start
	held     int64      // bytes read since the first arriving request began
	busy     int        // number of requests without an answer
	used     time.Time  // end of the last request; zero if there was no request
	closed   bool       // the connection was removed from connections.open
}

// tally counts the answered requests of a connection, the accepted spans, the requests that
// were pushed back, and the spans that the sender lost.
type tally struct {
	requests, spans, pushedBack atomic.Uint64
	lost                        map[string]uint64 // numbers of lost spans by reason; guarded by all.mu
}

// arrival is a request that has begun to arrive and is not complete.
type arrival struct {
	conn  *conn
	start int64 // value of conn.read at the start of the request
}

// listener accepts connections of senders, up to the limits.
type listener struct {
	net.Listener
	all      *connections
	protocol string
}

// Accept returns the next connection within the limits. It closes connections beyond the
// limits.
func (l listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.all.admit(raw, l.protocol); c != nil {
			return c, nil
		}
		_ = raw.Close() // an error has no effect, because no request has arrived
	}
}

// admit returns the connection of a sender, or nil if the connection must be closed.
func (a *connections) admit(raw net.Conn, protocol string) *conn {
	sender, err := senderOf(raw)
	if err != nil {
		a.report(reasonPeer, "connection of another user is refused", "error", err)
		return nil
	}
	c := &conn{Conn: raw, all: a, protocol: protocol, sender: sender, peer: peerOf(raw, sender), since: time.Now()}
	closed, idle, ok := a.add(c)
	switch {
	case !ok:
		a.report(reasonConnections, "too many connections; a new connection is closed", "sender", sender, "limit", a.most)
		return nil
	case closed != nil:
		text := "too many connections; a connection of the peer with most is closed"
		if idle {
			text = "too many connections; an idle connection is closed"
		}
		_ = closed.Conn.Close() // the peer notices the end even after an error
		a.report(reasonConnections, text, "sender", closed.sender, "limit", a.most)
	}
	return c
}

// isLocal reports whether the connection is a Unix socket.
func (c *conn) isLocal() bool { return c.Conn.RemoteAddr().Network() == "unix" }

// add adds a connection. At the limit it first removes another connection, and returns it for
// the caller to close. idle reports whether the removed connection had no request. If no
// connection can be removed, add returns false for ok and does not add c.
func (a *connections) add(c *conn) (closed *conn, idle, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) >= a.most {
		if closed = a.replaceableLocked(c.peer); closed == nil {
			return nil, false, false
		}
		idle = closed.busy == 0
		a.removeLocked(closed)
	}
	a.open[c] = struct{}{}
	a.byPeer[c.peer]++
	a.restartTimerLocked()
	return closed, idle, true
}

// senderOf returns the key of a sender: its process if the sender uses a Unix socket,
// otherwise its address. It returns an error if the process runs as another user.
func senderOf(raw net.Conn) (string, error) {
	if _, local := raw.(*net.UnixConn); !local {
		return raw.RemoteAddr().String(), nil
	}
	peer, err := wire.CheckPeer(raw)
	return fmt.Sprintf("pid %d (uid %d)", peer.PID, peer.UID), err
}

// peerOf returns the key for the limit on connections: the process if the sender uses a Unix
// socket, otherwise the IP address. For IPv6 it returns the network (/64), because one machine
// may use all addresses of its network.
func peerOf(raw net.Conn, sender string) string {
	addr, err := netip.ParseAddrPort(raw.RemoteAddr().String())
	if err != nil { // the address of a Unix socket has no IP address
		return sender
	}
	ip := addr.Addr().Unmap()
	if ip.Is6() {
		network, _ := ip.Prefix(64) // cannot fail for IPv6
		ip = network.Addr()
	}
	return ip.String()
}

// report counts a connection that a limit closed. It logs the first connection for each
// reason.
func (a *connections) report(reason, text string, args ...any) {
	a.mu.Lock()
	a.refused[reason]++
	level := slog.LevelDebug
	if a.refused[reason] == 1 {
		level = slog.LevelWarn
	}
	a.mu.Unlock()
	a.log.Log(context.Background(), level, text+"; more are counted, and logged at level debug", args...)
}

// replaceableLocked returns the connection to close for a new connection of newPeer, or
// nil. An idle connection can be closed if its peer has at least as many connections as
// newPeer. A busy connection can be closed only if its peer keeps more connections than
// newPeer gets.
func (a *connections) replaceableLocked(newPeer string) (least *conn) {
	own := a.byPeer[newPeer]
	for c := range a.open {
		has := a.byPeer[c.peer]
		if (c.busy == 0 && has >= own || has > own+1) && (least == nil || a.lessNeededLocked(c, least)) {
			least = c
		}
	}
	return least
}

// lessNeededLocked reports whether to close c rather than d. The first difference decides: the
// peer of c has more connections, c is idle and d is busy, the last request of c ended
// earlier, or c was opened earlier.
func (a *connections) lessNeededLocked(c, d *conn) bool {
	if has, other := a.byPeer[c.peer], a.byPeer[d.peer]; has != other {
		return has > other
	}
	if idle := c.busy == 0; idle != (d.busy == 0) {
		return idle
	}
	return cmp.Or(c.used.Compare(d.used), c.since.Compare(d.since)) < 0
}

// removeLocked removes a connection that is or will be closed from the lists.
func (a *connections) removeLocked(c *conn) {
	if c.closed {
		return
	}
	c.closed = true
	a.held -= c.held
	c.held, c.arriving = 0, nil
	delete(a.open, c)
	if a.byPeer[c.peer]--; a.byPeer[c.peer] == 0 {
		delete(a.byPeer, c.peer)
	}
	a.restartTimerLocked()
}

// restartTimerLocked begins to measure the time of Config.Linger again if no connection is
// open. Otherwise it stops the timer.
func (a *connections) restartTimerLocked() {
	if a.timer != nil {
		a.timer.Stop()
	}
	if a.linger > 0 && len(a.open) == 0 {
		a.timer = time.AfterFunc(a.linger, a.unused)
	}
}

// startTimer begins to measure the time of Config.Linger if no connection is open.
func (a *connections) startTimer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restartTimerLocked()
}

// isEmpty reports whether there is no connection.
func (a *connections) isEmpty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open) == 0
}

// stop stops the timer of Config.Linger for good.
func (a *connections) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.linger = 0
	a.restartTimerLocked()
}

// Read reads from the connection and counts the bytes.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.all.received(c, int64(n))
	}
	return n, err
}

// received counts n bytes that arrived at a connection. If all unfinished requests then have
// too many bytes, it closes the connection that holds the most of them.
func (a *connections) received(c *conn, n int64) {
	most, bytes := a.count(c, n)
	if most == nil {
		return
	}
	_ = most.Conn.Close() // the peer notices the end even after an error
	a.report(reasonBytes, "too many bytes of requests that do not end; the connection with most is closed",
		"sender", most.sender, "bytes", bytes, "limit", a.mostBytes)
}

// count adds n bytes to the count of a connection. If the limit is exceeded, it removes the
// connection that holds the most bytes. It returns this connection and the bytes that it held.
func (a *connections) count(c *conn, n int64) (most *conn, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.read += n
	a.recountLocked(c)
	if a.held <= a.mostBytes {
		return nil, 0
	}
	most = c
	for other := range a.open {
		if other.held > most.held {
			most = other
		}
	}
	bytes = most.held
	a.removeLocked(most)
	return most, bytes
}

// recountLocked computes again the bytes that a connection holds, and their sum over all
// connections.
func (a *connections) recountLocked(c *conn) {
	a.held -= c.held
	c.held = 0
	if len(c.arriving) > 0 && !c.closed {
		c.held = c.read - c.arriving[0].start
	}
	a.held += c.held
}

// begin records that a request begins to arrive. The caller must call done of the arrival when
// the request is complete, and c.ended after the answer.
func (c *conn) begin() *arrival {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.busy++
	a := &arrival{c, c.read}
	c.arriving = append(c.arriving, a)
	return a
}

// done records that the request is complete, or has failed. Further calls do nothing.
func (a *arrival) done() {
	c := a.conn
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if i := slices.Index(c.arriving, a); i >= 0 {
		c.arriving = slices.Delete(c.arriving, i, i+1)
	}
	c.all.recountLocked(c)
}

// ended records that a request was answered.
func (c *conn) ended() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.busy--
	c.used = time.Now()
}

// Close closes the connection.
func (c *conn) Close() error {
	c.all.mu.Lock()
	c.all.removeLocked(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// RemoteAddr returns the address of the sender. The result contains c, for the function
// connOf, because gRPC passes only the address to a call.
func (c *conn) RemoteAddr() net.Addr { return remoteAddr{c.Conn.RemoteAddr(), c} }

// remoteAddr is the address of a connection, with the connection.
type remoteAddr struct {
	net.Addr
	conn *conn
}
