package httpproxy

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/router"
	"github.com/servetrace/servetrace/serving/internal/socket"
	"github.com/servetrace/servetrace/serving/internal/stall"
)

// exchange is one request and its response, as the proxy sees them.
//
// The proxy's goroutine calls the methods in this order:
//
//  1. prepare, before it starts the handler, and await.
//  2. endEarly, if the request ends before the handler returns.
//  3. ensureResponse, which responds if the handler did not.
//  4. limitRest and releaseDeadlines, which leave the connection to net/http.
//
// The handler's goroutine uses resp, and calls completeResponse when the handler has
// returned. Only the proxy's goroutine uses the other fields that change.
type exchange struct {
	proxy    *proxy
	r        *http.Request // the request as it arrived
	identity identity.Request
	resp     response
	call     httpCall           // used by the handler's goroutine
	assigned *router.Assignment // nil until a replica has the request

	// For the access log.
	arrived  time.Time
	ctx      context.Context   // context with the proxy span; nil without a route
	span     trace.SpanContext // context of the proxy span; zero if the span does not record
	route    *route            // nil: no route matched
	status   int               // status of the client's response, or 499
	err      error             // error that ended the request; nil for an ordinary response
	protocol spans.Protocol    // HTTP or WebSocket
	cut      bool              // whether the connection or stream must be cut

	leftBehind bool // the handler did not return in time, and may still run
}

// prepare makes the response to r, the request as the app sees it.
func (x *exchange) prepare(w http.ResponseWriter, r *http.Request, up *upgrade) {
	resp := &x.resp
	resp.pace.controller = *http.NewResponseController(w)
	limit, stream := x.proxy.stall, r.ProtoMajor == 2
	resp.x, resp.conn, resp.request, resp.upgrade = x, w, r, up
	resp.missing = -1
	resp.pace.limit, resp.pace.peer = limit, connectionOf(r)
	resp.pace.writes = stall.New(limit, stream, resp.pace.controller.SetWriteDeadline)
	if r.Body != nil && r.Body != http.NoBody {
		resp.pace.body = &requestBody{body: r.Body, stream: stream, reads: stall.New(limit, stream, resp.pace.controller.SetReadDeadline), stalled: &resp.pace.stalled}
	}
}

// await waits until the handler has returned, and returns its error. If the request must
// end earlier, it returns the reason. A client that closes its side ends only the
// handler's context. The client may still read, so the handler's answer is sent.
func (x *exchange) await(ctx context.Context) (returned bool, err error) {
	cutOff := x.assigned.CutOff()
	if x.route.Timeout <= 0 && x.resp.upgrade == nil {
		ctx = context.Background() // only cutOff ends the wait
	}
	for {
		select {
		case <-x.assigned.Done():
			return true, x.assigned.Err()
		case <-cutOff.Done():
			return false, context.Cause(cutOff)
		case <-ctx.Done():
		}
		switch why := cause.Of(ctx); {
		case errors.Is(context.Cause(ctx), cause.ErrSocketLeft): // the handler closed its socket, and has not returned
			ctx = x.resp.upgrade.outer
		case errors.Is(why, cause.ErrClientGone):
			left, cancel := x.timeLeft()
			defer cancel()
			ctx = left
		default:
			return false, why
		}
	}
}

// timeLeft returns a context that ends by the request's timeout, if it has one, but not
// when the client leaves.
func (x *exchange) timeLeft() (context.Context, context.CancelFunc) {
	if x.route.Timeout <= 0 {
		return context.Background(), func() {}
	}
	return context.WithDeadlineCause(context.Background(), x.arrived.Add(x.route.Timeout), cause.ErrRequestTimeout)
}

// completeResponse completes an ordinary response. The handler's goroutine calls it once,
// when the handler has returned with err. It returns the status that the handler has
// sent, or 0, and the error that ended the request; nil for an ordinary response. A panic
// of the handler takes precedence over the context's end, and the context's end over
// other errors, because the end causes these errors.
func (x *exchange) completeResponse(err error) (status int, _ error) {
	resp := &x.resp
	if s := resp.upgrade.taken(); s != nil {
		err = x.completeSocket(s, err)
		return s.Status(), err
	}
	resp.mu.Lock()
	defer resp.mu.Unlock()
	if resp.phase == lost {
		return resp.status, cause.Heavier(err, resp.why)
	}
	why := x.earlyEndLocked(err)
	resp.whole = err == nil && !resp.pace.broken && (why == nil || errors.Is(why, cause.ErrClientGone))
	status = resp.status
	if resp.whole && resp.phase == open {
		resp.beginLocked(http.StatusOK) // as net/http would; if the client has left, this response does not count as an answer
		if why == nil {
			status = http.StatusOK
		}
	}
	if resp.whole && len(resp.header) > 0 {
		maps.Copy(resp.conn.Header(), resp.header) // the trailers; net/http reads no other headers at this point
	}
	if why != nil {
		err = cause.Heavier(err, why)
	}
	resp.phase, resp.status = ended, status
	return status, err
}

// earlyEndLocked returns the reason for which the request ended early, or nil if the handler
// has answered. err is the error with which the handler returned. If the client has closed
// its side, a handler without an error or a failed write has answered in two cases: it
// wrote after the close, or nothing of its response was sent before it returned.
func (x *exchange) earlyEndLocked(err error) error {
	resp := &x.resp
	switch {
	case resp.completeLocked():
		return nil
	case resp.pace.stalled.Load() && (err != nil || resp.pace.broken || resp.phase == open):
		return cause.ErrClientStalled
	case x.ctx.Err() == nil:
		return nil
	}
	why := cause.Of(x.ctx)
	answered := resp.phase == begun && !resp.pace.broken && (resp.late || !resp.pace.flushed)
	switch {
	case errors.Is(why, cause.ErrClientGone) && err == nil && answered:
		return nil
	case errors.Is(why, cause.ErrClientGone) && resp.pace.stalled.Load(): // a failed read ends the context, too
		return cause.ErrClientStalled
	}
	return why
}

// completeSocket ends a request whose connection the handler took over, in place of the
// rest of completeResponse. It returns the error that ended the socket.
func (x *exchange) completeSocket(s *socket.Conn, err error) error {
	resp := &x.resp
	resp.mu.Lock()
	ours := resp.why // the reason of the proxy
	resp.mu.Unlock()
	if ours == nil && x.ctx.Err() != nil {
		ours = cause.Of(x.ctx)
	}
	why := err
	if ours != nil {
		why = cause.Heavier(err, ours)
	}
	finishSocket(s, why)
	return socketResult(s, err, ours)
}

// endEarly ends the request because of why, unless the handler has returned meanwhile. It
// returns the error that ended the request; nil for an ordinary response.
func (x *exchange) endEarly(why error) error {
	found, complete := x.takeResponse(why)
	switch found {
	case ended:
		<-x.assigned.Done()
		return x.assigned.Err()
	case hijacked:
		s := x.resp.upgrade.taken()
		finishSocket(s, why)
		return socketResult(s, nil, why)
	}
	x.leftBehind = true
	x.resp.pace.body.failReads(why) // the handler reads no more of the body
	if complete {
		x.flush()
		return nil
	}
	return why
}

// takeResponse takes the response away from a handler that may still run, because the
// request has ended; why is the cause. found is the phase of the response before that.
// Afterwards the handler can no longer write, and no write is under way. The connection
// belongs to the proxy, except if the phase is ended or hijacked. complete reports that
// the handler had written as many bytes as its Content-Length says.
func (x *exchange) takeResponse(why error) (found phase, complete bool) {
	resp := &x.resp
	reset := false
	if !resp.mu.TryLock() {
		reset = x.interruptAndLock()
	}
	defer resp.mu.Unlock()
	switch {
	case resp.phase == hijacked:
		resp.why = why
		return hijacked, false
	case resp.phase == ended && !reset:
		return ended, true
	case resp.phase == ended:
		found = begun // net/http has not written the end of the response
	default:
		found, complete = resp.phase, !reset && resp.completeLocked()
	}
	resp.phase = lost
	if !complete {
		resp.why = why
	}
	return found, complete
}

// interruptAndLock takes the lock of the response from a handler that may be stuck in a
// write. A write is stuck while the client does not read, or does not send the end of its
// body, which net/http reads before it replies. reset reports that the HTTP/2 stream
// ended at the deadline, so that the client cannot get all of the response.
func (x *exchange) interruptAndLock() (reset bool) {
	resp, by := &x.resp, time.Now().Add(inflight.CutGrace)
	set := resp.pace.writes.Hurry(by) == nil // otherwise the write ends by itself
	resp.pace.body.hurry(time.Now())
	resp.mu.Lock()
	return set && resp.request.ProtoMajor == 2 && !time.Now().Before(by)
}

// ensureResponse responds if the handler did not. It returns the status of the response and
// whether the connection must be cut. The handler writes no more.
func (x *exchange) ensureResponse() (status int, cut bool) {
	resp := &x.resp
	if s := resp.upgrade.taken(); s != nil {
		return resp.upgrade.status(s, x.err), x.err != nil
	}
	status = resp.sent()
	switch {
	case x.err == nil:
		return status, x.leftBehind && x.r.ProtoMajor == 1 // endEarly may have set deadlines on the connection of x
	case resp.whole:
		return cmp.Or(status, statusClientGone), false
	case status != 0:
		if !errors.Is(x.err, cause.ErrClientGone) {
			x.flush()
		}
		return status, true
	case cause.IsAbort(x.err):
		return http.StatusInternalServerError, true // the client gets no status
	}
	status = statusOf(x.err)
	x.reply(status)
	return status, false
}

// reply responds instead of the handler. The handler has returned, has not begun, or has
// lost the response before it began. If the client has closed its side but still reads, the
// response shows that its request was given up.
func (x *exchange) reply(status int) {
	resp := &x.resp
	h := resp.conn.Header()
	if resp.informs {
		clear(h)
	}
	if x.leftBehind && x.r.ProtoMajor == 1 {
		h.Set("Connection", "close") // endEarly may have set deadlines on the connection
	}
	if after := retryAfter(x.err); after != "" {
		h.Set("Retry-After", after)
	}
	if status == statusClientGone {
		status = http.StatusServiceUnavailable
	}
	writeText(resp.conn, status, x.identity.ID, x.text(status))
}

// flush sends the bytes that net/http still holds. So the client sees the beginning of the
// response before its connection is cut. A slow client has CutGrace to read them.
func (x *exchange) flush() {
	_ = x.resp.pace.writes.Hurry(time.Now().Add(inflight.CutGrace)) // if this fails, the flush ends by itself
	if x.r.ProtoMajor == 1 {
		x.resp.pace.body.hurry(time.Now().Add(inflight.CutGrace / 2)) // net/http may first read the end of the body
	}
	_ = x.resp.pace.controller.Flush() // the client may have left
}

// limitRest bounds the time for the rest of the exchange. net/http reads the end of a body
// that the handler did not read, and sends the last bytes.
func (x *exchange) limitRest() {
	resp := &x.resp
	switch {
	case resp.upgrade.taken() != nil || x.cut: // nothing is left to do
	case x.r.ProtoMajor != 1:
		resp.finishStream()
	case x.leftBehind || !resp.pace.body.remains():
		resp.pace.writes.Finish(0)
	default:
		// A read that interruptAndLock has ended leaves the connection unusable.
		if resp.pace.stalled.Load() || resp.pace.body.reads.Hurried() {
			resp.pace.body.hurry(time.Now())
		} else {
			resp.pace.body.reads.Finish(0)
		}
		resp.pace.writes.Finish(x.proxy.stall)
	}
}

// releaseDeadlines leaves the connection to net/http. From then on, user code that still
// has the body of the request cannot set a deadline.
func (x *exchange) releaseDeadlines() {
	x.resp.pace.writes.Release()
	if body := x.resp.pace.body; body != nil {
		body.reads.Release()
	}
}
