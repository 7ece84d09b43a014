package serving

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/tracing"
)

// grpcProxy is where gRPC calls come in. It finds the app and its method, has the
// router choose a replica, and answers itself where no handler did. It never
// changes after newGRPCProxy.
//
// The grpc.Server before it knows none of the apps' services: what it has no
// service for comes here, as a stream. The replica decodes the messages straight
// into what the method's generated code makes, so that the bytes are neither
// copied nor sent a second time.
type grpcProxy struct {
	apps      map[string]*grpcApp
	only      *grpcApp // nil where there are several
	timeout   time.Duration
	work      *work
	workers   *workers
	notReady  func() string // why a deployment takes no calls; empty where all do
	watch     *watch
	calls     rpcCalls
	metrics   *metrics.Proxy
	unrouted  *metrics.Ingress // of calls for no app
	component *tracing.Component
	tracing   *tracing.Provider
	access    accessLog
}

// grpcApp is an app as gRPC calls find it.
type grpcApp struct {
	*target

	services *rpcServices // those of its ingress; it may have none
	ingress  *metrics.Ingress
	sets     []*replicaSet // of all its deployments
}

// ready says whether each of the app's deployments takes calls.
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

// beginRPC is grpc's tap: it is called as a stream begins, and has its metadata,
// of which grpc gives copies only from then on.
func beginRPC(ctx context.Context, info *tap.Info) (context.Context, error) {
	c := &rpc{under: ctx, md: info.Header, full: info.FullMethodName}
	return (*rpcArrival)(c), nil
}

// last gives the last value of a key, as Ray does, or "".
func last(md metadata.MD, key string) string {
	if values := md[key]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// handle is the [grpc.StreamHandler] of every call for an app.
func (p *grpcProxy) handle(_ any, stream grpc.ServerStream) (err error) {
	c := arrivedIn(stream.Context())
	defer func() {
		if v := recover(); v != nil { // grpc does not
			err = p.statusOfRPC(c.id, survived(stream.Context(), p.access.log, v)).Err()
		}
	}()
	c.proxy, c.stream, c.arrived = p, stream, tracing.Clock()
	c.id = fitRequestID(last(c.md, metaRequestID))
	c.giveBackID()
	p.metrics.Began()
	defer p.record(c)
	st := p.answer(c)
	c.code = st.Code()
	return st.Err()
}

// trailers are used again and again: grpc copies what it is given for one.
var trailers = sync.Pool{New: func() any { return metadata.MD{metaRequestID: {""}} }}

// giveBackID has the client told of the request id, however the call ends.
func (c *rpc) giveBackID() {
	md := trailers.Get().(metadata.MD)
	md[metaRequestID][0] = c.id
	_ = grpc.SetTrailer(c.stream.Context(), md) // c.stream's method would look whether the id is fit
	trailers.Put(md)
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

// appFor finds the app that a call is for, or nil. Where there is one app only, no
// name is asked for, and a wrong one does not matter, as in Ray.
func (p *grpcProxy) appFor(name string) *grpcApp {
	if p.only != nil {
		return p.only
	}
	return p.apps[name]
}

// serve answers a call whose method is known.
func (p *grpcProxy) serve(c *rpc) *status.Status {
	ctx := c.begin(p.timeout)
	defer c.release()
	c.done = make(chan outcome, 3)
	p.calls.add(c)
	defer p.calls.remove(c)
	c.request = tracing.Request{
		ID:         c.id,
		App:        c.app.app,
		Deployment: c.app.deployment,
		Route:      c.app.app,
		ModelID:    strings.ToValidUTF8(last(c.md, metaModelID), "\uFFFD"),
		Component:  p.component,
	}
	ctx, span := p.tracing.StartProxy(p.tracing.ExtractMetadata(ctx, c.md), tracing.ProxyStart{
		Request:  &c.request,
		Protocol: tracing.GRPC,
		Method:   c.full,
		Metadata: c.md,
		Peer:     peerOf,
		At:       c.arrived,
	})
	c.ctx, c.span = ctx, span.Context()
	c.err = p.dispatch(ctx, c)
	st := p.statusOfRPC(c.id, c.err)
	c.ended = tracing.Clock()
	span.End(tracing.ProxyResult{GRPCCode: codeName(st.Code()), Err: rpcFailure(c.err), At: c.ended})
	return st
}

// peerOf is the other end of the connection that a call came by, or nil.
func peerOf(ctx context.Context) net.Addr {
	if from, ok := peer.FromContext(ctx); ok {
		return from.Addr
	}
	return nil
}

// dispatch has a replica run c and waits for it, but not beyond ctx. It gives
// what ended the call otherwise than by success.
//
// The handler has a goroutine to itself, so that a client need not wait for a
// handler that outlasts its time. The slot stays taken until it really returns.
func (p *grpcProxy) dispatch(ctx context.Context, c *rpc) error {
	routed, place, err := c.app.assign(ctx, tracing.RouterStart{
		Protocol:   tracing.GRPC,
		CallMethod: c.method.name,
		Streaming:  c.method.info.IsServerStream,
		ModelID:    c.request.ModelID,
	})
	if err != nil {
		return err
	}
	c.replica = place.uniqueID()
	c.routed, c.place = routed, place
	p.watch.add(&c.watched, c.done)
	defer p.watch.remove(&c.watched)
	p.work.handlerStarts()
	p.workers.start(c)
	returned, cause := c.await()
	if returned {
		return cause
	}
	if c.take(cause) == ended {
		for {
			if o := <-c.done; o.stall == noStall {
				return o.err
			}
		}
	}
	c.cut(cause) // a stall has not ended the context
	return cause
}

// unready says why the proxy takes no calls, "" while it does.
func (p *grpcProxy) unready() string {
	if p.work.isLeaving() {
		return textDraining
	}
	return p.notReady()
}

// rpcCalls are the calls under way, for the end of a server that drains no
// longer: grpc ends a stream's context without a cause.
type rpcCalls struct {
	mu    sync.Mutex
	first *rpc
	cause error // why they were cut off; nil while they were not
}

func (l *rpcCalls) add(c *rpc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		l.cutLocked(c)
	}
	c.next = l.first
	if c.next != nil {
		c.next.prev = c
	}
	l.first = c
}

func (l *rpcCalls) remove(c *rpc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.next != nil {
		c.next.prev = c.prev
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	c.prev, c.next = nil, nil
}

// cutOff ends the contexts of all calls, and of those that are still to come.
func (l *rpcCalls) cutOff(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	l.cause = cause
	for c := l.first; c != nil; c = c.next {
		l.cutLocked(c)
	}
}

// cutLocked ends the context of a call and tells its proxy, which may wait for a
// handler that heeds no context.
func (l *rpcCalls) cutLocked(c *rpc) {
	c.cut(l.cause)
	c.done <- outcome{stall: cutShort}
}
