package httpproxy

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/stall"
)

// pace enforces the stall limit while a response is written to a client. The response's
// lock guards it, except for controller, stalled, writes and body, which are safe for
// concurrent use.
type pace struct {
	limit      time.Duration
	controller http.ResponseController // controller of net/http's response
	writes     stall.Deadline
	body       *requestBody // nil if there is none
	peer       *connection  // the connection, for HTTP/2 only
	stalled    atomic.Bool  // the client has delayed a read or a write beyond the limit

	duplex  bool  // the handler reads the body while it writes
	broken  bool  // a write has failed
	flushed bool  // the client may have seen the beginning of the response
	wrote   int64 // number of written bytes of the response's body
}

// beginWrite begins a write. In the first write, net/http may first wait for the end of the
// request's body.
func (p *pace) beginWrite() {
	if !p.awaitsBody() {
		p.writes.Begin(0)
		return
	}
	p.body.reads.Begin(0)
	p.writes.Begin(p.limit)
}

// awaitsBody reports whether net/http reads the end of the body before it sends the
// response.
func (p *pace) awaitsBody() bool { return p.peer == nil && !p.duplex && p.body.remains() }

// endWrite ends a write that returned err, and returns the error for the handler.
func (p *pace) endWrite(err error) error {
	defer p.writes.Done()
	if p.awaitsBody() && p.body.reads.Expired() {
		p.stalled.Store(true)
	}
	if err == nil {
		p.peer.progress()
		return nil
	}
	p.broken = true
	if p.writes.Expired() {
		p.stalled.Store(true)
		p.peer.closeStuck(p.limit)
		return cause.ErrClientStalled
	}
	return err
}
