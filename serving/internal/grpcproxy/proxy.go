package grpcproxy

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/requestid"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// proxy answers gRPC calls. It never changes after newProxy.
type proxy struct {
	shared    *router.Shared
	apps      map[string]*app
	only      *app          // the app, if there is only one; otherwise nil
	timeout   time.Duration // longest time of a call; no limit if not positive
	stall     time.Duration // longest time for which a client may delay a message; no limit if not positive
	notReady  func() string // see Config.NotReady
	counts    *metrics.Proxy
	unrouted  *metrics.Ingress // counts the calls that belong to no app
	component *identity.Component
}

// App is an app that may have gRPC services.
type App struct {
	Ingress  *router.Deployment
	Services *Services            // gRPC services of the ingress; may be empty
	All      []*router.Deployment // all deployments of the app, including the ingress
}

// app is an App with the data that the proxy needs for it.
type app struct {
	App

	counts *metrics.Ingress
}

func newProxy(c Config) *proxy {
	p := &proxy{
		shared:    c.Shared,
		apps:      make(map[string]*app, len(c.Apps)),
		timeout:   c.Settings.RequestTimeout,
		stall:     c.Settings.StallTimeout,
		notReady:  c.NotReady,
		counts:    c.Shared.Metrics.Proxy(metrics.GRPC),
		component: c.Component,
	}
	p.unrouted = p.counts.Ingress("", "")
	for _, a := range c.Apps {
		a.Services.chain()
		to := &app{App: a, counts: p.counts.Ingress(a.Ingress.App, a.Ingress.Name)}
		p.apps[a.Ingress.App] = to
		if len(c.Apps) == 1 {
			p.only = to
		}
	}
	return p
}

// ready reports whether each of the app's deployments takes calls.
func (a *app) ready() bool {
	return !slices.ContainsFunc(a.All, func(d *router.Deployment) bool { return d.Replicas.Unready() != "" })
}

// The keys of the metadata that the proxy reads and sends. They are equal to Ray's.
const (
	metaApplication = "application"
	metaRequestID   = "request_id"
	metaModelID     = "multiplexed_model_id"
)

// Texts for clients. A text is equal to Ray Serve's, unless it is marked or Ray Serve has no
// such case.
const (
	textNoApplication      = "Application metadata not set. " + textListApplications
	textApplicationUnknown = "Application '%s' not found. " + textListApplications
	textListApplications   = "Ping /ray.serve.RayServeAPIService/ListApplications for available applications."
	textMethodUnknown      = "Application '%s' has no method %s."
	textHealthy            = "success"
	textDraining           = "This node is being drained."
	textTimeout            = "Request %s timed out after %gs."
	textStalled            = "Request %s stalled for %gs." // Ray has no such text
	textClientGone         = "Client for request %s disconnected."
	textClientDeadline     = "The client's deadline has passed."
	textReplicaStopped     = "The replica was stopped."
	textInternal           = "Internal server error."
)

// last returns the last value of a key, which counts in Ray too. It returns "" if the key has
// no value.
func last(md metadata.MD, key string) string {
	if values := md[key]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// handle is the [grpc.StreamHandler] of each call, except calls of the builtinServices.
func (p *proxy) handle(_ any, stream grpc.ServerStream) (err error) {
	c := &call{proxy: p, stream: callStream{stream: stream, stall: p.stall, arrived: time.Now()}}
	c.full, _ = grpc.MethodFromServerStream(stream)
	c.md, _ = metadata.FromIncomingContext(stream.Context())
	c.request.ID = requestid.Fit(last(c.md, metaRequestID))
	defer func() {
		if v := recover(); v != nil { // grpc does not recover from panics
			err = p.statusOf(c.request.ID, p.shared.Log.Recovered(stream.Context(), v)).Err()
		}
	}()
	stream.SetTrailer(metadata.Pairs(metaRequestID, c.request.ID))
	p.counts.Began()
	defer p.record(c)
	st := p.answer(c)
	c.code = st.Code()
	return st.Err()
}

// answer answers a call, and sets the fields of c for the access log. The proxy span ends
// before the client gets the status.
func (p *proxy) answer(c *call) *status.Status {
	if !p.shared.Counter.Admit() {
		return status.New(codes.Unavailable, textDraining)
	}
	defer p.shared.Counter.RequestDone()
	name := last(c.md, metaApplication)
	c.app = cmp.Or(p.only, p.apps[name]) // a single app gets all calls, even if the name is wrong, as in Ray
	if c.app == nil {
		if name == "" {
			return status.New(codes.NotFound, textNoApplication)
		}
		return status.Newf(codes.NotFound, textApplicationUnknown, accesslog.Cut(name))
	}
	c.method = c.app.Services.methods[c.full]
	if c.method == nil {
		return status.Newf(codes.Unimplemented, textMethodUnknown, c.app.Ingress.App, accesslog.Cut(c.full))
	}
	return p.serve(c)
}

// serve answers a call with a known app and method.
func (p *proxy) serve(c *call) *status.Status {
	c.stream.info = &c.method.info
	release := c.stream.beginCall(p.timeout)
	defer release()
	r, to := &c.request, c.app.Ingress
	r.App, r.Deployment, r.Route, r.Component = to.App, to.Name, to.App, p.component
	r.ModelID = strings.ToValidUTF8(last(c.md, metaModelID), "\uFFFD")
	ctx, span := p.shared.Tracer.StartProxy(p.shared.Tracer.Provider.ExtractMetadata(c.stream.call, c.md), spans.ProxyStart{
		Request:  r,
		Protocol: spans.GRPC,
		Method:   c.full,
		Metadata: c.md,
		Peer:     peerOf,
	})
	c.ctx, c.span = ctx, span.Context()
	c.err = p.dispatch(ctx, c)
	st := p.statusOf(r.ID, c.err)
	span.EndProxy(spans.ProxyResult{GRPCCode: codeName(st.Code()), Err: failure(c.err)})
	return st
}

// peerOf returns the address of the client of a call, or nil if it is unknown.
func peerOf(ctx context.Context) net.Addr {
	if from, ok := peer.FromContext(ctx); ok {
		return from.Addr
	}
	return nil
}

// dispatch assigns c to a replica and waits for the handler, at most until ctx or the
// replica ends. It returns the error that ended the call, or nil.
//
// The handler has its own goroutine, so that a client does not wait for a handler that
// runs longer than the call may take. Such a handler counts as one of the replica's calls
// until it has returned.
func (p *proxy) dispatch(ctx context.Context, c *call) error {
	assigned, err := c.app.Ingress.Assign(ctx, spans.RouterStart{
		Protocol:   spans.GRPC,
		CallMethod: c.method.name,
		Streaming:  c.method.info.IsServerStream,
		ModelID:    c.request.ModelID,
		Unsampled:  !c.span.IsValid(),
	})
	if err != nil {
		return err
	}
	c.assigned = assigned
	assigned.Start(c)
	cutOff := assigned.CutOff()
	select {
	case <-assigned.Done():
		return assigned.Err()
	case <-ctx.Done():
	case <-cutOff.Done():
		c.stream.endCall(context.Cause(cutOff))
	}
	why := context.Cause(ctx)
	if !c.stream.takeCall(why) {
		<-assigned.Done() // comes soon, because the handler has returned
		return assigned.Err()
	}
	return why
}

// unready returns the reason for which a health check must fail, or "".
func (p *proxy) unready() string {
	if p.shared.Counter.Leaving() {
		return textDraining
	}
	return p.notReady()
}
