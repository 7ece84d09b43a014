package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/trace"

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
	x := &exchange{arrived: time.Now(), r: r, id: requestID(r.Header)}
	p.metrics.Began()
	defer p.record(x)
	if !p.work.admit() {
		p.refuse(w, x)
		return
	}
	defer p.work.requestDone()
	if p.work.isLeaving() {
		w.Header().Set("Connection", "close") // after this response; for HTTP/2 net/http makes it a GOAWAY
	}
	rt, path, rawPath, ok := p.routes.match(r.URL)
	if !ok {
		x.status = http.StatusNotFound
		writeText(w, x.status, x.id, fmt.Sprintf(textNotFound, r.URL.Path))
		return
	}
	x.route = rt
	p.serve(w, x, withPath(r, path, rawPath))
	if x.cut {
		panic(http.ErrAbortHandler) // net/http cuts the connection, silently
	}
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
	writeText(w, x.status, x.id, textDraining)
}

// exchange is one request and its response, as the access log tells it.
type exchange struct {
	arrived  time.Time
	r        *http.Request    // as it came
	protocol tracing.Protocol // HTTP or WebSocket
	id       string
	route    *route            // nil: none matched
	name     string            // of the route, as in spans
	span     trace.SpanContext // of the proxy span; zero where it does not record
	ctx      context.Context   // with the proxy span; nil without a route
	replica  string            // unique id; empty until one took the request
	status   int               // what the client was told, or 499
	cut      bool              // whether its connection or stream was cut
	err      error             // what ended it otherwise than by a response
}

// serve answers a request that matched a route, and fills in x; r is the request
// as the app sees it.
func (p *proxy) serve(w http.ResponseWriter, x *exchange, r *http.Request) {
	x.name = x.route.name(r)
	ctx, cancel := x.route.withTimeout(r.Context())
	defer cancel()
	up := upgradeOf(r)
	x.protocol = up.protocol()
	ctx = up.under(ctx)
	defer up.release()
	ctx, span := p.tracing.StartProxy(p.tracing.Extract(ctx, r.Header), tracing.ProxyStart{
		Request: &tracing.Request{
			ID:         x.id,
			App:        x.route.app,
			Deployment: x.route.deployment,
			Route:      x.name,
			ModelID:    modelIDOf(r.Header),
			Component:  p.component,
		},
		Protocol:  x.protocol,
		Method:    r.Method,
		RoutePath: x.route.remainder(x.r.URL.Path),

		HTTPRequest: x.r,
	})
	x.ctx, x.span = ctx, span.Context()
	resp := newResponse(ctx, w, r, x.id, x.route.prefix)
	resp.upgrade = up
	x.err = p.dispatch(ctx, resp, x, r)
	x.status, x.cut = p.conclude(resp, x)
	span.End(tracing.ProxyResult{StatusCode: x.status, Err: spanError(x.err)})
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
// The handler has a goroutine of its own, so that a client need not wait for a
// handler that outlasts its time, or that waits for its own client. The slot
// stays taken until it really returns.
func (p *proxy) dispatch(ctx context.Context, resp *response, x *exchange, r *http.Request) error {
	routed, a, err := x.route.assign(ctx, tracing.RouterStart{Protocol: resp.upgrade.protocol(), ModelID: ModelID(ctx)})
	if err != nil {
		if ctx.Err() != nil && err == context.Cause(ctx) { //nolint:errorlint // the very same
			return causeOf(ctx)
		}
		return err
	}
	x.replica = a.replica().UniqueID
	done := make(chan outcome, 2)
	p.watch.add(&resp.watched, connectionOf(r), done)
	defer p.watch.remove(&resp.watched)
	p.work.handlerStarts()
	go func() {
		err := errGoexit
		defer func() {
			done <- outcome{err: err} // the slot is free: the client may come back at once
			p.work.handlerDone()
		}()
		err = a.run(routed, &httpCall{resp: resp, r: r})
	}()
	returned, cause := p.await(ctx, resp, done, a.cut())
	if returned {
		return cause
	}
	found, complete := resp.take(cause)
	for found == ended {
		if o := <-done; o.stall == noStall {
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
		resp.flush()
		return nil
	}
	return cause
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
	status = resp.told()
	switch {
	case err == nil:
		return status, false
	case status != 0:
		if !errors.Is(err, ErrClientGone) {
			resp.flush()
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
			return fmt.Sprintf(textStalled, x.id, p.watch.limit.Seconds())
		}
		return fmt.Sprintf(textTimeout, x.id, x.route.timeout.Seconds())
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
