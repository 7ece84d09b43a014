package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/tracing"
)

// proxy is where HTTP requests come in. It finds the app, has the router choose
// a replica, and answers itself where no handler did. It never changes after
// newProxy.
type proxy struct {
	routes    *routeTable
	listing   []byte        // the body of /-/routes
	notReady  func() string // why a deployment takes no requests; empty where all do
	work      *work
	workers   *workers
	watch     *watch
	metrics   *metrics.Proxy
	unrouted  *metrics.Ingress // of requests that matched no route
	component *tracing.Component
	tracing   *tracing.Provider
	access    accessLog
}

// Texts are Ray's, which scripts may look for.
const (
	textHealthy  = "success"
	textDraining = "This node is being drained."
	textNotFound = "Path '%s' not found. Ping http://.../-/routes for available routes."
	textTimeout  = "Request %s timed out after %gs."
	textStalled  = "Request %s stalled for %gs." // not Ray's
)

// ServeHTTP implements [http.Handler].
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn := connectionOf(r)
	conn.enter(r)
	defer func() { conn.leave(p.watch.beat.Load()) }()
	if r.URL.Path == "" && r.Method != http.MethodConnect { // CONNECT has a host only
		r = withPath(r, "/", "") // https://www.rfc-editor.org/rfc/rfc9110#section-4.2.3
	}
	switch r.URL.Path {
	case "/-/healthz":
		p.health(w, "text/plain; charset=utf-8", []byte(textHealthy), p.notReady)
		return
	case "/-/routes":
		p.health(w, "application/json", p.listing, nil)
		return
	}
	x := &exchange{proxy: p, arrived: tracing.Clock(), r: r, conn: conn}
	x.request.ID = requestID(r.Header)
	p.metrics.Began()
	defer func() {
		if !x.rescued {
			p.done(x)
		}
	}()
	if x.admitted = p.work.admit(); !x.admitted {
		p.refuse(w, x)
		return
	}
	if p.work.isLeaving() {
		w.Header().Set("Connection", "close") // after this response; for HTTP/2 net/http makes it a GOAWAY
	}
	rt, path, rawPath, ok := p.routes.match(r.URL)
	if !ok {
		x.status = http.StatusNotFound
		writeText(w, x.status, x.request.ID, fmt.Sprintf(textNotFound, r.URL.Path))
		return
	}
	x.route = rt
	p.serve(w, x, withPath(r, path, rawPath))
	if x.cut && !x.rescued {
		panic(http.ErrAbortHandler) // net/http cuts the connection, silently
	}
}

// done is called when all is said of a request, once.
func (p *proxy) done(x *exchange) {
	if x.admitted {
		p.work.requestDone()
	}
	p.record(x)
}

// health answers body while the server takes requests, and why, if fault gives a
// reason, not all of its deployments do.
func (p *proxy) health(w http.ResponseWriter, contentType string, body []byte, fault func() string) {
	reason := ""
	if p.work.isLeaving() {
		reason = textDraining
	} else if fault != nil {
		reason = fault()
	}
	if reason != "" {
		writeText(w, http.StatusServiceUnavailable, "", reason)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(body) // the client may have left
}

// refuse turns a request away while the server drains. Closing the connection
// sends the client's next request elsewhere.
func (p *proxy) refuse(w http.ResponseWriter, x *exchange) {
	x.status = http.StatusServiceUnavailable
	w.Header().Set("Connection", "close")
	writeText(w, x.status, x.request.ID, textDraining)
}

// exchange is one request and its response, and a context between the client's
// and that of the proxy span. All that a request needs is a part of it, so that
// it is allocated at once: as 1,152 bytes, of which 1,144 are in use and 8 are the
// collector's. With one word more it would be 1,280.
type exchange struct {
	context.Context // the client's, with what came in headers; nil without a route

	proxy   *proxy
	conn    *connection   // nil: none is known
	r       *http.Request // as it came
	request tracing.Request
	resp    response
	call    httpCall     // has the context of assign
	done    chan outcome // of the handler, or from the watch; not used where it runs here
	within  tracing.ProxySpan

	// What the access log tells.
	arrived  time.Duration    // by tracing.Clock
	ended    time.Duration    // by that; zero: when all is said
	route    *route           // nil: none matched
	status   int              // what the client was told, or 499
	err      error            // what ended it otherwise than by a response
	protocol tracing.Protocol // HTTP or WebSocket
	cut      bool             // whether its connection or stream was cut
	admitted bool             // counted by work

	rescued  bool                   // see rescue.go: all is done, by a rescue or by finish; not to be read while one may begin
	rescuing atomic.Pointer[rescue] // if there is one; &settled: the handler has returned, and there will be none

	place assignment // zero until a replica took the request
}

// Value implements [context.Context].
func (x *exchange) Value(key any) any {
	if _, is := key.(tracing.RequestKey); is {
		return &x.request
	}
	return x.Context.Value(key)
}

// serve answers a request that matched a route, and fills in x; r is the request
// as the app sees it.
func (p *proxy) serve(w http.ResponseWriter, x *exchange, r *http.Request) {
	x.request.App, x.request.Deployment = x.route.app, x.route.deployment
	x.request.Route, x.request.ModelID = x.route.name(r), modelIDOf(r.Header)
	x.request.Component = p.component
	ctx, cancel := x.route.withTimeout(r.Context())
	defer cancel()
	up := upgradeOf(r)
	x.protocol = up.protocol()
	ctx = up.under(ctx)
	defer up.release()
	x.Context = p.tracing.Extract(ctx, r.Header)
	ctx, x.within = p.tracing.StartProxy(x, tracing.ProxyStart{
		Request:   &x.request,
		Protocol:  x.protocol,
		Method:    r.Method,
		RoutePath: x.route.remainder(x.r.URL.Path),

		HTTPRequest: x.r,
		At:          x.arrived,
	})
	x.resp.prepare(ctx, w, r, x)
	x.resp.upgrade = up
	if up == nil && r.ProtoMajor == 1 {
		x.resp.heads = x.conn
	}
	err := p.dispatch(ctx, &x.resp, x, r)
	if !x.rescued {
		x.err = err
		p.end(x)
	}
}

// end answers the client where nobody has, and ends the span.
func (p *proxy) end(x *exchange) {
	x.status, x.cut = p.conclude(&x.resp, x)
	if x.ended == 0 {
		x.ended = tracing.Clock()
	}
	x.within.End(tracing.ProxyResult{StatusCode: x.status, Err: spanError(x.err), At: x.ended})
}

func (rt *route) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if rt.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, rt.timeout, ErrRequestTimeout)
}

// dispatch has a replica answer r and waits for it, but not beyond ctx. It
// gives what ended the request otherwise than by an ordinary response.
//
// A client need not wait for a handler that outlasts its time, or that waits for
// its own client. So the handler has a goroutine of its own, or the client gets
// one in time: see rescue.go. The slot stays taken until it really returns.
func (p *proxy) dispatch(ctx context.Context, resp *response, x *exchange, r *http.Request) error {
	routed, a, err := x.route.assign(ctx, tracing.RouterStart{
		Protocol: resp.upgrade.protocol(),
		ModelID:  x.request.ModelID,
		Within:   &x.call.room.within,
	})
	if err != nil {
		if ctx.Err() != nil && err == context.Cause(ctx) { //nolint:errorlint // the very same
			return causeOf(ctx)
		}
		return err
	}
	x.call.room.Context, x.place, x.call.x = routed, a, x
	if r.ProtoMajor == 1 && resp.upgrade == nil && x.conn != nil {
		return p.here(ctx, x)
	}
	x.done = make(chan outcome, 2)
	p.watch.add(&resp.watched, x.conn, x.done)
	defer p.watch.remove(&resp.watched)
	p.work.handlerStarts()
	p.workers.start(x)
	returned, cause := p.await(ctx, resp, x.done, a.cut())
	if returned {
		return cause
	}
	found, complete := resp.take(cause)
	for found == ended {
		if o := <-x.done; o.stall == noStall {
			return o.err
		}
	}
	if found == hijacked {
		s := resp.socket()
		finishSocket(s, cause)
		return socketResult(s, nil, cause)
	}
	resp.abandon(cause)
	if complete {
		resp.flush(cutGrace)
		_ = resp.controller().SetWriteDeadline(time.Time{}) // its end may take as long as it does
		return nil
	}
	return cause
}

// work implements [job]: it has the replica answer.
func (x *exchange) work() {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = survived(x.resp.ctx, x.proxy.access.log, v)
		}
		x.done <- outcome{err: err} // the slot is free: the client may come back at once
		x.proxy.work.handlerDone()
	}()
	err = x.place.run(x.call.room.Context, &x.call)
}

// await waits until the handler has returned, which gives its error, or until
// the request is to be ended, which gives the cause.
func (p *proxy) await(ctx context.Context, resp *response, done <-chan outcome, cut <-chan struct{}) (returned bool, err error) {
	for {
		select {
		case o := <-done:
			switch {
			case o.stall == noStall:
				return true, o.err
			case !resp.outlives(o.stall):
				return false, ErrClientStalled
			}
		case <-ctx.Done():
			outer := resp.goesOn(ctx)
			if outer == nil {
				return false, resp.whyOver()
			}
			ctx = outer
		case <-cut:
			return false, ErrReplicaStopped
		}
	}
}

// conclude answers where the handler did not, and says what the client was
// told and whether its connection is to be cut. Nobody else writes any more.
func (p *proxy) conclude(resp *response, x *exchange) (status int, cut bool) {
	err := x.err
	if s := resp.socket(); s != nil {
		return resp.socketStatus(s, err), err != nil
	}
	status = resp.status // without the lock, as nobody writes
	switch {
	case err == nil:
		return status, false
	case status != 0:
		if !errors.Is(err, ErrClientGone) {
			resp.flush(cutGrace)
		}
		return status, true
	case isAbort(err):
		return http.StatusInternalServerError, true // the client sees no status at all
	}
	status = statusOf(err)
	if status == statusClientGone {
		return status, true
	}
	resp.reply(status, p.textFor(status, x), retryAfter(err))
	return status, false
}

// textFor is the body of a response that the proxy gives for err. What a
// handler failed with is not for clients.
func (p *proxy) textFor(status int, x *exchange) string {
	err := x.err
	if full, ok := errors.AsType[*QueueFullError](err); ok {
		return full.Error()
	}
	if gone, ok := errors.AsType[*DeploymentUnavailableError](err); ok {
		return gone.Error()
	}
	switch status {
	case http.StatusRequestTimeout:
		if errors.Is(err, ErrClientStalled) {
			return fmt.Sprintf(textStalled, x.request.ID, p.watch.limit.Seconds())
		}
		return fmt.Sprintf(textTimeout, x.request.ID, x.route.timeout.Seconds())
	case http.StatusServiceUnavailable:
		return textDraining
	}
	return http.StatusText(status)
}

// withPath gives r the path that the app sees.
func withPath(r *http.Request, path, rawPath string) *http.Request {
	if path == r.URL.Path {
		return r
	}
	inner := new(http.Request)
	*inner = *r
	inner.URL = new(url.URL)
	*inner.URL = *r.URL
	inner.URL.Path, inner.URL.RawPath = path, rawPath
	return inner
}
