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
	controller http.ResponseController // of the connection
	writes     stall.Deadline
	body       *requestBody // nil if there is none
	peer       *connection  // of HTTP/2; else nil
	stalled    atomic.Bool  // the client held up a read or a write

	duplex  bool  // the handler reads the body beside writing
	broken  bool  // a write has failed
	flushed bool  // the client may have seen the beginning
	wrote   int64 // bytes of the body
}

// beginWrite begins a write. In the first, net/http may wait for the end of the body.
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
