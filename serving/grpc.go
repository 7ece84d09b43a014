package serving

import (
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
	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// grpcProxy takes gRPC calls. It finds the app and its method, has the router choose
// a replica, and answers itself if no handler did. It never changes after
// newGRPCFront.
//
// The grpc.Server before it knows none of the apps' services: calls of services that
// it does not know come here, as streams. The replica decodes the messages straight
// into what the method's generated code makes, so that the bytes are neither copied
// nor sent a second time.
type grpcProxy struct {
	apps      map[string]*grpcApp
	only      *grpcApp // nil if there are several
	timeout   time.Duration
	stall     time.Duration   // how long a client may hold up its call; not positive: no limit
	server    context.Context // ends when calls are cut off, with the cause
	work      *work
	workers   *workers
	notReady  func() string // why a deployment takes no calls; empty if all do
	metrics   *metrics.Proxy
	unrouted  *metrics.Ingress // of calls for no app
	component *identity.Component
	tracing   *spans.Tracer
	access    accessLog
}

// grpcApp is an app as gRPC calls find it.
type grpcApp struct {
	*target

	services *rpcServices // those of its ingress; it may have none
	ingress  *metrics.Ingress
	sets     []*replicaSet // of all its deployments
}

// ready reports whether each of the app's deployments takes calls.
func (a *grpcApp) ready() bool {
	return !slices.ContainsFunc(a.sets, func(s *replicaSet) bool { return s.reason() != "" })
}

// The keys of the metadata that is for the proxy. They are Ray's.
const (
	metaApplication = "application"
	metaRequestID   = "request_id"
	metaModelID     = "multiplexed_model_id"
)

// Texts are Ray's where it has any.
const (
	textNoApplication      = "Application metadata not set. " + textListApplications
	textApplicationUnknown = "Application '%s' not found. " + textListApplications
	textListApplications   = "Ping /ray.serve.RayServeAPIService/ListApplications for available applications."
	textMethodUnknown      = "Application '%s' has no method %s."
	textClientGone         = "Client for request %s disconnected."
	textClientDeadline     = "The client's deadline has passed."
	textReplicaStopped     = "The replica was stopped."
	textInternal           = "Internal server error."
)

// last returns the last value of a key, as Ray does, or "".
func last(md metadata.MD, key string) string {
	if values := md[key]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// handle is the [grpc.StreamHandler] of every call for an app.
func (p *grpcProxy) handle(_ any, stream grpc.ServerStream) (err error) {
	c := &rpc{proxy: p, stream: rpcStream{stream: stream, stall: p.stall, arrived: time.Now()}}
	c.full, _ = grpc.MethodFromServerStream(stream)
	c.md, _ = metadata.FromIncomingContext(stream.Context())
	c.request.ID = fitRequestID(last(c.md, metaRequestID))
	defer func() {
		if v := recover(); v != nil { // grpc does not
			err = p.statusOfRPC(c.request.ID, survived(stream.Context(), p.access.log, v)).Err()
		}
	}()
	stream.SetTrailer(metadata.Pairs(metaRequestID, c.request.ID))
	p.metrics.Began()
	defer p.record(c)
	st := p.answer(c)
	c.code = st.Code()
	return st.Err()
}

// answer answers a call, and fills in c. Its span ends before the client learns
// of the end.
func (p *grpcProxy) answer(c *rpc) *status.Status {
	if !p.work.admit() {
		return status.New(codes.Unavailable, textDraining)
	}
	defer p.work.requestDone()
	name := last(c.md, metaApplication)
	c.app = p.appFor(name)
	if c.app == nil {
		if name == "" {
			return status.New(codes.NotFound, textNoApplication)
		}
		return status.Newf(codes.NotFound, textApplicationUnknown, cutAt(name, mostPath))
	}
	c.method = c.app.services.methods[c.full]
	if c.method == nil {
		return status.Newf(codes.Unimplemented, textMethodUnknown, c.app.app, cutAt(c.full, mostPath))
	}
	return p.serve(c)
}

// appFor returns the app that a call is for, or nil. With one app only, no name is
// needed, and a wrong name does not matter, as in Ray.
func (p *grpcProxy) appFor(name string) *grpcApp {
	if p.only != nil {
		return p.only
	}
	return p.apps[name]
}

// serve answers a call whose method is known.
func (p *grpcProxy) serve(c *rpc) *status.Status {
	c.stream.info = &c.method.info
	c.stream.begin(p.timeout)
	defer c.stream.release()
	r := &c.request
	r.App, r.Deployment, r.Route, r.Component = c.app.app, c.app.deployment, c.app.app, p.component
	r.ModelID = strings.ToValidUTF8(last(c.md, metaModelID), "\uFFFD")
	ctx, span := p.tracing.StartProxy(p.tracing.Provider.ExtractMetadata(c.stream.call, c.md), spans.ProxyStart{
		Request:  r,
		Protocol: spans.GRPC,
		Method:   c.full,
		Metadata: c.md,
		Peer:     peerOf,
	})
	c.ctx, c.span = ctx, span.Context()
	c.err = p.dispatch(ctx, c)
	st := p.statusOfRPC(r.ID, c.err)
	span.EndProxy(spans.ProxyResult{GRPCCode: codeName(st.Code()), Err: rpcFailure(c.err)})
	return st
}

// peerOf returns the other end of the connection that a call came by, or nil.
func peerOf(ctx context.Context) net.Addr {
	if from, ok := peer.FromContext(ctx); ok {
		return from.Addr
	}
	return nil
}

// dispatch has a replica run c and waits for the handler, but not beyond ctx. It
// returns what ended the call otherwise than by success.
//
// The handler has a goroutine to itself, so that a client need not wait for a
// handler that outlasts its time. The slot stays taken until it really returns.
func (p *grpcProxy) dispatch(ctx context.Context, c *rpc) error {
	routed, place, err := c.app.assign(ctx, spans.RouterStart{
		Protocol:   spans.GRPC,
		CallMethod: c.method.name,
		Streaming:  c.method.info.IsServerStream,
		ModelID:    c.request.ModelID,
	})
	if err != nil {
		return err
	}
	c.routed, c.place, c.done = routed, place, make(chan error, 1)
	p.work.handlerStarts()
	p.workers.start(c)
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
	case <-place.cut():
		c.stream.end(ErrReplicaStopped)
	case <-p.server.Done():
		c.stream.end(context.Cause(p.server))
	}
	cause := context.Cause(ctx)
	if !c.stream.take(cause) {
		return <-c.done // the handler has returned
	}
	return cause
}

// unready returns why the proxy takes no calls, "" while it does.
func (p *grpcProxy) unready() string {
	if p.work.isLeaving() {
		return textDraining
	}
	return p.notReady()
}
