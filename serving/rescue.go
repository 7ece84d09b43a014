package serving

import (
	"context"
	"net"
	"runtime/pprof"
	"time"
)

// The handler of an HTTP/1.1 request runs on its connection's goroutine, as with
// net/http alone: to hand a request over to another goroutine and back costs more
// than all else that the runtime does for it. A request that ends before its
// handler, by a timeout say, gets a goroutine then, its rescue. That one takes the
// response away from the handler, answers the client, and takes the connection
// away from net/http, which would keep it until the handler has returned.

// here has the replica answer x on this goroutine, and gives what ended the
// request otherwise than by an ordinary response; nothing that counts where a
// rescue has ended it.
func (p *proxy) here(ctx context.Context, x *exchange) (err error) {
	p.watch.prepare(&x.resp.watched, x.conn)
	x.conn.current.Store(x) // from here on, x hears of what ends it
	x.heed(ctx)
	if x.route.timeout > 0 {
		defer context.AfterFunc(ctx, x.over)()
	}
	x.call.room.at = x.place.at // no other goroutine is between
	err = errGoexit
	defer func() {
		pprof.SetGoroutineLabels(context.Background()) // the handler may have set its own
		x.conn.current.Store(nil)
		x.returned()
		switch {
		case x.rescued:
			p.work.handlerDone()
		case err == errGoexit: //nolint:errorlint // the very same
			x.err = err
			x.finish(err) // net/http does not, on a goroutine that ends
		case err == nil:
			x.ended = x.call.room.at
		}
	}()
	return x.place.run(x.call.room.Context, &x.call)
}

// heed ends x if what ends it came before x would hear of it.
func (x *exchange) heed(ctx context.Context) {
	if x.conn.broken.Load() {
		x.conn.end()
	}
	if ctx.Err() != nil {
		x.over()
		return
	}
	select {
	case <-x.place.cut():
		x.rescue(ErrReplicaStopped)
	default:
	}
}

// over is called when x's context has ended and the handler has not returned.
func (x *exchange) over() { x.rescue(x.resp.whyOver()) }

// stalled is called by the watch.
func (x *exchange) stalled(s stall) {
	if !x.resp.outlives(s) {
		x.rescue(ErrClientStalled)
	}
}

// rescue is the goroutine that ends an exchange before its handler has returned.
type rescue struct{ done chan struct{} }

var settled rescue

// rescue ends x with cause, unless its handler has returned.
func (x *exchange) rescue(cause error) {
	r := &rescue{done: make(chan struct{})}
	if !x.rescuing.CompareAndSwap(nil, r) {
		return
	}
	defer close(r.done)
	defer func() {
		if v := recover(); v != nil { // net/http would have recovered on its own goroutine
			_ = survived(x.resp.ctx, x.proxy.access.log, v) // the request is over
		}
	}()
	found, complete := x.resp.take(cause)
	if found == ended {
		return // it is about to return
	}
	x.proxy.work.handlerStarts() // it goes on without its request
	if !complete {
		x.err = cause
	}
	x.finish(cause)
}

// finish does, for the reason why, what is otherwise done as the handler's
// goroutine goes back to net/http, and closes the connection: all of it, though
// the user's log or span processors panic.
func (x *exchange) finish(why error) {
	x.rescued = true
	defer x.proxy.work.requestDone()
	defer func() { x.hangUp(x.sendOff()) }()
	defer x.proxy.record(x) // before the client has its answer, as always
	x.resp.abandon(why)
	x.proxy.end(x)
}

// returned is called when the handler has. No rescue follows, and one that has
// begun has ended when it returns: it must not meddle with the connection's next
// request.
func (x *exchange) returned() {
	if !x.rescuing.CompareAndSwap(nil, &settled) {
		<-x.rescuing.Load().done
	}
}

// sendOff sends what net/http holds of the response, unless that is to be cut, and
// takes the connection away from it.
func (x *exchange) sendOff() net.Conn {
	if x.cut {
		_ = x.conn.SetWriteDeadline(time.Now()) // Hijack flushes: nobody waits for what is cut
	} else {
		x.resp.flush(replyGrace)
	}
	conn, _, err := x.resp.controller().Hijack()
	if err != nil {
		conn = x.conn // which somebody has closed
	}
	x.conn.end() // the handler hears of it
	return conn
}

// hangUp closes the connection that sendOff gave.
func (x *exchange) hangUp(conn net.Conn) {
	if !x.cut && x.resp.body != nil {
		linger(conn)
	}
	_ = conn.Close() // nothing is to follow
}

// replyGrace is how long a client that is slow to read may hold up an answer of
// the proxy's own. It is for those only that have not read the answers before it
// either, and so long that a process which gets no time does not take a client for
// one: what is written after a deadline fails though there is space for it.
const replyGrace = 5 * time.Second

// lingerGrace is as long as net/http's own.
const lingerGrace = 500 * time.Millisecond

// linger lets the client read a response though it has not sent all of its body:
// what comes after a connection is closed resets it, and with that the response.
func linger(c net.Conn) {
	if half, is := c.(interface{ CloseWrite() error }); is {
		_ = half.CloseWrite() // it may have left
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerGrace))
	var rest [4 << 10]byte
	for {
		if _, err := c.Read(rest[:]); err != nil {
			return
		}
	}
}
