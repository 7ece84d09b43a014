package httpproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/requestid"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// Config describes a proxy and net/http's server in front of it.
type Config struct {
	Shared    *router.Shared
	Component *identity.Component
	Routes    []Route
	NotReady  func() string // returns the reason for which a deployment takes no requests, or "" if all deployments take requests

	StallTimeout      time.Duration // longest time for which a client may delay a read or a write; no limit if not positive
	ReadHeaderTimeout time.Duration
	IdleTimeout       time.Duration
	MaxHeaderBytes    int
}

// proxy serves HTTP requests. It never changes after newProxy.
type proxy struct {
	shared    *router.Shared
	routes    routeTable
	listing   []byte // the response body for /-/routes
	notReady  func() string
	stall     time.Duration // see Config.StallTimeout
	counts    *metrics.Proxy
	unrouted  *metrics.Ingress // counts the requests that matched no route
	component *identity.Component
}

func newProxy(c Config) *proxy {
	p := &proxy{
		shared:    c.Shared,
		notReady:  c.NotReady,
		stall:     c.StallTimeout,
		counts:    c.Shared.Metrics.Proxy(metrics.HTTP),
		component: c.Component,
	}
	p.unrouted = p.counts.Ingress("", "")
	p.routes = newRouteTable(c.Routes, p.counts)
	apps := make(map[string]string, len(p.routes))
	for _, rt := range p.routes {
		apps[rt.Prefix] = rt.Deployment.App
	}
	p.listing, _ = json.Marshal(apps) // a map of strings can always be encoded
	return p
}

// Texts of responses. Except for the marked lines they are equal to Ray's, because scripts
// may search for them.
const (
	textHealthy  = "success"
	textDraining = "This node is being drained."
	textNotFound = "Path '%s' not found. Ping http://.../-/routes for available routes."
	textTimeout  = "Request %s timed out after %gs."
	textStalled  = "Request %s stalled for %gs."                                           // Ray has no such text
	textGone     = "Request %s was given up because its client has closed the connection." // Ray has no such text
)

// headerRequestID is the header with the id of a request, in the request and in the response.
// It is in the canonical form of keys of an http.Header.
const headerRequestID = "X-Request-Id"

const headerContentLength = "Content-Length"

// ServeHTTP implements [http.Handler].
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "" && r.Method != http.MethodConnect { // a CONNECT request has a host and no path
		r = withPath(r, "/", "") // https://www.rfc-editor.org/rfc/rfc9110#section-4.2.3
	}
	switch r.URL.Path {
	case "/-/healthz":
		p.health(w, "text/plain; charset=utf-8", []byte(textHealthy), p.notReady)
		p.limitOwnResponse(w, r)
	case "/-/routes":
		p.health(w, "application/json", p.listing, nil)
		p.limitOwnResponse(w, r)
	default:
		p.answer(w, r)
	}
}

// answer answers a request to an app. It finds the route of the app, and passes the request to
// serve. If the server is draining or no route matches, answer itself responds.
func (p *proxy) answer(w http.ResponseWriter, r *http.Request) {
	x := &exchange{proxy: p, arrived: time.Now(), r: r} // the state of this request, see exchange.go
	x.identity.ID = requestid.Fit(r.Header.Get(headerRequestID))
	p.counts.Began()
	defer p.recordAndCut(x)
	if !p.shared.Counter.Admit() {
		x.status = http.StatusServiceUnavailable
		w.Header().Set("Connection", "close") // the client must send its next request to another process
		writeText(w, x.status, x.identity.ID, textDraining)
		return
	}
	defer p.shared.Counter.RequestDone()
	defer x.resp.pace.release() // pace sets the deadlines of this request
	if p.shared.Counter.Leaving() {
		w.Header().Set("Connection", "close") // closes the connection after this response; over HTTP/2, net/http sends GOAWAY instead
	}
	rt, path, rawPath, ok := p.routes.match(r.URL)
	if !ok {
		x.status = http.StatusNotFound
		writeText(w, x.status, x.identity.ID, fmt.Sprintf(textNotFound, r.URL.Path))
		p.limitOwnResponse(w, r)
		return
	}
	x.route = rt
	p.serve(w, x, withPath(r, path, rawPath))
	x.limitRest()
}

// serve answers a request that matched a route, and sets the fields of x for the access log.
// r is the request as the app sees it, without the route's prefix in its path.
func (p *proxy) serve(w http.ResponseWriter, x *exchange, r *http.Request) {
	x.identity.App, x.identity.Deployment = x.route.Deployment.App, x.route.Deployment.Name
	x.identity.Route, x.identity.ModelID = x.route.name(r), modelIDOf(r.Header)
	x.identity.Component = p.component
	ctx, cancel := x.route.withTimeout(r.Context())
	defer cancel()
	up := upgradeOf(r) // nil, unless the request asks for another protocol, such as a web socket
	x.protocol = up.protocol()
	ctx = up.handlerContext(ctx)
	defer up.cancel()
	ctx, span := p.shared.Tracer.StartProxy(p.shared.Tracer.Provider.Extract(ctx, r.Header), spans.ProxyStart{
		Request:     &x.identity,
		Protocol:    x.protocol,
		Method:      r.Method,
		RoutePath:   x.route.remainder(x.r.URL.Path),
		HTTPRequest: x.r,
	})
	x.ctx, x.spanContext = ctx, span.Context()
	x.prepare(w, r, up)
	x.err = p.dispatch(ctx, x)
	x.status, x.cut = x.conclude()
	defer p.recovered(ctx) // EndProxy runs the user's span processors, and their panic must not end the response
	span.EndProxy(spans.ProxyResult{StatusCode: x.status, Err: cause.ForSpan(x.err)})
}

// dispatch assigns the request to a replica and waits for the answer. It returns the
// error that ended the request, nil for an ordinary response.
//
// Assignment.Start runs x.call (call.go), and so the handler, on another goroutine. So a client
// does not wait for a handler that runs longer than the request may take. Such a handler counts
// as one of the replica's requests until it has returned.
func (p *proxy) dispatch(ctx context.Context, x *exchange) error {
	assigned, err := x.route.Deployment.Assign(ctx, spans.RouterStart{
		Protocol:  x.protocol,
		ModelID:   x.identity.ModelID,
		Unsampled: !x.spanContext.IsValid(),
	})
	if err != nil {
		if ctx.Err() != nil && err == context.Cause(ctx) { //nolint:errorlint // Assign returns the cause itself
			return cause.Of(ctx) // if the client has left, err is only context.Canceled
		}
		return err
	}
	x.assigned = assigned
	x.call.x = x
	assigned.Start(&x.call)
	returned, err := x.await(ctx)
	if returned {
		return err
	}
	return x.endEarly(err)
}

// recovered recovers from a panic of user code other than the handler, and logs it. It must
// be deferred.
func (p *proxy) recovered(ctx context.Context) {
	if v := recover(); v != nil {
		_ = p.shared.Log.Recovered(ctx, v)
	}
}

// recordAndCut counts and logs the request after its response. It cuts the connection if
// the response is incomplete.
func (p *proxy) recordAndCut(x *exchange) {
	p.record(x)
	if x.cut {
		panic(http.ErrAbortHandler) // makes net/http cut the connection without a log line
	}
}

// limitOwnResponse bounds the time in which net/http reads the end of a request to which the
// proxy itself has responded, and sends the response.
func (p *proxy) limitOwnResponse(w http.ResponseWriter, r *http.Request) {
	var own pace
	own.prepare(w, r, p.stall)
	own.finish(whole)
}

// health responds with body. If the server is about to stop, or fault returns a text, it
// responds with 503 and the reason.
func (p *proxy) health(w http.ResponseWriter, contentType string, body []byte, fault func() string) {
	reason := ""
	if p.shared.Counter.Leaving() {
		reason = textDraining
	} else if fault != nil {
		reason = fault()
	}
	if reason != "" {
		writeText(w, http.StatusServiceUnavailable, "", reason)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(body) // fails only if the client has left
}

// withPath returns r if it has the path, otherwise a copy of r with path and rawPath.
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
