package httpproxy

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// exchange is one request and its response on the side of the proxy. It decides when the
// request ends, and responds if the handler did not.
//
// The proxy's goroutine calls the methods in this order:
//
//  1. prepare, before it starts the handler.
//  2. await, and then endEarly if the request ends before the handler returns.
//  3. conclude, which responds if the handler did not.
//  4. limitRest, which leaves the last bytes to net/http.
//
// The handler's goroutine uses resp and call. Only the proxy's goroutine uses the other
// fields that change.
type exchange struct {
	proxy    *proxy
	r        *http.Request // the request as it arrived, with the route's prefix in its path
	identity identity.Request
	resp     response
	call     httpCall
	assigned *router.Assignment // nil until a replica has the request

	// The fields below are facts for the access log.
	arrived     time.Time
	ctx         context.Context   // context with the proxy span; nil without a route
	spanContext trace.SpanContext // context of the proxy span; zero if the span does not record
	route       *route            // nil if no route matched
	status      int               // status of the response, or the close code of a web socket; 499 if the client left before
	err         error             // error that ended the request; nil for an ordinary response
	protocol    spans.Protocol    // spans.HTTP or spans.WebSocket
	cut         bool              // the response is incomplete, so the connection or stream must be cut
}

// prepare makes the response for the handler. r is the request as the app sees it, without
// the route's prefix.
func (x *exchange) prepare(w http.ResponseWriter, r *http.Request, up *upgrade) {
	resp := &x.resp
	resp.x, resp.conn, resp.request, resp.upgrade = x, w, r, up
	resp.pace.prepare(w, r, x.proxy.stall)
}

// await waits until the handler has returned, and returns true and its error. If the request
// must end earlier, it returns false and the reason. A client that closes its side does not
// end the wait: it may still read, so the handler's answer is sent.
func (x *exchange) await(ctx context.Context) (returned bool, err error) {
	cutOff := x.assigned.CutOff()
	if x.route.Timeout <= 0 && x.resp.upgrade == nil {
		ctx = context.Background() // without a timeout and a socket, ctx ends only when the client leaves
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
		case errors.Is(context.Cause(ctx), cause.ErrSocketLeft): // the handler closed its socket, but may go on working
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

// timeLeft returns a context that ends at the request's timeout, but not when the client
// leaves. Without a timeout it does not end.
func (x *exchange) timeLeft() (context.Context, context.CancelFunc) {
	if x.route.Timeout <= 0 {
		return context.Background(), func() {}
	}
	return context.WithDeadlineCause(context.Background(), x.arrived.Add(x.route.Timeout), cause.ErrRequestTimeout)
}

// endEarly ends the request for the reason why, unless the handler has returned in the
// meantime. It returns the error that ended the request; nil if the client gets the handler's
// whole response.
func (x *exchange) endEarly(why error) error {
	resp := &x.resp
	switch resp.take(why) {
	case hijacked:
		return endSocket(resp.socket, nil, why)
	case lost:
		resp.pace.body.failReads(why)
		if resp.why == nil {
			resp.pace.flushLast()
		}
		return resp.why
	}
	<-x.assigned.Done() // comes soon, because the handler has returned
	return x.assigned.Err()
}

// conclude responds if the handler did not. It returns the status of the response, and
// whether the connection must be cut. Call it when the handler cannot write any more.
func (x *exchange) conclude() (status int, cut bool) {
	resp := &x.resp
	if resp.socket != nil {
		return resp.upgrade.status(resp.socket, x.err), x.err != nil
	}
	switch {
	case x.err == nil:
		return resp.status, x.spoilt()
	case resp.phase == whole:
		return cmp.Or(resp.status, statusClientGone), false
	case resp.status != 0:
		if !errors.Is(x.err, cause.ErrClientGone) {
			resp.pace.flushLast() // the client gets the beginning of the response before its connection is cut
		}
		return resp.status, true
	case cause.IsAbort(x.err):
		return http.StatusInternalServerError, true // for the span and the log; the client gets no status
	}
	status = statusOf(x.err)
	x.reply(status)
	return status, false
}

// reply responds instead of the handler, which has not begun a response and no longer can. A
// client that has closed its side may still read, so it gets status 503 with a text.
func (x *exchange) reply(status int) {
	h := x.resp.conn.Header()
	if x.spoilt() {
		h.Set("Connection", "close")
	}
	if after := retryAfter(x.err); after != "" {
		h.Set("Retry-After", after)
	}
	if status == statusClientGone {
		status = http.StatusServiceUnavailable
	}
	writeText(x.resp.conn, status, x.identity.ID, x.text(status))
}

// spoilt reports whether the connection can serve no other request, because endEarly may
// have set deadlines on it. An HTTP/2 stream has deadlines of its own.
func (x *exchange) spoilt() bool { return x.resp.phase == lost && !x.resp.pace.http2 }

// limitRest bounds the time in which net/http reads the end of the request and sends the end
// of the response after the proxy has returned. A connection that was cut or hijacked needs
// no limit.
func (x *exchange) limitRest() {
	if !x.cut && x.resp.socket == nil {
		x.resp.pace.finish(x.resp.phase)
	}
}
