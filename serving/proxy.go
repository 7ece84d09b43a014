package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// proxy serves HTTP requests. It finds the app, has the router choose a replica, and
// answers itself if no handler did. It never changes after newProxy.
type proxy struct {
	routes    *routeTable
	listing   []byte        // the body of /-/routes
	notReady  func() string // why a deployment takes no requests; empty if all do
	work      *work
	workers   *workers
	stall     time.Duration   // how long a client may hold up its request; none if not positive
	base      context.Context // of the server: ends when it drains no longer
	metrics   *metrics.Proxy
	unrouted  *metrics.Ingress // of requests that matched no route
	component *identity.Component
	tracing   *spans.Tracer
	access    accessLog
}

// Texts are Ray's, which scripts may look for.
const (
	textHealthy  = "success"
	textDraining = "This node is being drained."
	textNotFound = "Path '%s' not found. Ping http://.../-/routes for available routes."
	textTimeout  = "Request %s timed out after %gs."
	textStalled  = "Request %s stalled for %gs."                                           // not Ray's
	textGone     = "Request %s was given up because its client has closed the connection." // not Ray's
)

// ServeHTTP implements [http.Handler].
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "" && r.Method != http.MethodConnect { // CONNECT has a host only
		r = withPath(r, "/", "") // https://www.rfc-editor.org/rfc/rfc9110#section-4.2.3
	}
	switch r.URL.Path {
	case "/-/healthz":
		p.health(w, "text/plain; charset=utf-8", []byte(textHealthy), p.notReady)
		p.bound(w, r)
	case "/-/routes":
		p.health(w, "application/json", p.listing, nil)
		p.bound(w, r)
	default:
		p.exchange(w, r)
	}
}

// exchange answers a request that is not for the proxy itself.
func (p *proxy) exchange(w http.ResponseWriter, r *http.Request) {
	x := &exchange{proxy: p, arrived: time.Now(), r: r}
	x.request.ID = requestID(r.Header)
	p.metrics.Began()
	defer p.done(x)
	defer x.release()
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
		p.bound(w, r)
		return
	}
	x.route = rt
	p.serve(w, x, withPath(r, path, rawPath))
	x.finish()
}

// done is called once, after the response, to count and log the request. It cuts the
// connection if the response is to be cut.
func (p *proxy) done(x *exchange) {
	if x.admitted {
		p.work.requestDone()
	}
	p.record(x)
	if x.cut {
		panic(http.ErrAbortHandler) // net/http cuts the connection, silently
	}
}

// bound limits how long net/http may read the rest of the request and send a response
// that the proxy made itself.
func (p *proxy) bound(w http.ResponseWriter, r *http.Request) {
	if p.stall <= 0 || r.ProtoMajor != 1 {
		return
	}
	c, now := http.NewResponseController(w), time.Now()
	_ = c.SetWriteDeadline(now.Add(2 * p.stall)) // fails if there is no connection
	if r.Body != nil && r.Body != http.NoBody {
		_ = c.SetReadDeadline(now.Add(p.stall)) // net/http reads the rest of it first
	}
}

// health answers with body, or with 503 and the reason while the server drains or fault
// gives one.
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
	ctx, span := p.tracing.StartProxy(p.tracing.Provider.Extract(ctx, r.Header), spans.ProxyStart{
		Request:   &x.request,
		Protocol:  x.protocol,
		Method:    r.Method,
		RoutePath: x.route.remainder(x.r.URL.Path),

		HTTPRequest: x.r,
	})
	x.ctx, x.span = ctx, span.Context()
	x.prepare(w, r, up)
	x.err = p.dispatch(ctx, x)
	x.status, x.cut = x.conclude()
	defer p.survive(ctx) // a panic of the user's span processors costs the client nothing
	span.EndProxy(spans.ProxyResult{StatusCode: x.status, Err: spanError(x.err)})
}

// dispatch has a replica answer the request and waits for it. It returns the error that
// ended the request; nil for an ordinary response.
//
// A client need not wait for a handler that outlasts its time, or that waits for
// its own client. So the handler has a goroutine of its own. The slot stays taken
// until it really returns.
func (p *proxy) dispatch(ctx context.Context, x *exchange) error {
	routed, place, err := x.route.assign(ctx, spans.RouterStart{
		Protocol: x.protocol,
		ModelID:  x.request.ModelID,
	})
	if err != nil {
		if ctx.Err() != nil && err == context.Cause(ctx) { //nolint:errorlint // the very same
			return causeOf(ctx)
		}
		return err
	}
	x.call.x, x.call.routed, x.call.place = x, routed, place
	x.call.done = make(chan error, 1)
	p.work.handlerStarts()
	p.workers.start(&x.call)
	returned, cause := x.await(ctx)
	if returned {
		return cause
	}
	return x.takeOver(cause)
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
			return fmt.Sprintf(textStalled, x.request.ID, p.stall.Seconds())
		}
		return fmt.Sprintf(textTimeout, x.request.ID, x.route.timeout.Seconds())
	case http.StatusServiceUnavailable:
		if errors.Is(err, ErrClientGone) {
			return fmt.Sprintf(textGone, x.request.ID)
		}
		return textDraining
	}
	return http.StatusText(status)
}

// survive recovers from a panic around a handler.
func (p *proxy) survive(ctx context.Context) {
	if v := recover(); v != nil {
		_ = survived(ctx, p.access.log, v)
	}
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
