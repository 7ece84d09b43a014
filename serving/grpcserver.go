package serving

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress, as with any server of gRPC's C core
	"google.golang.org/grpc/keepalive"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// grpcFront is the gRPC proxy's listener and the servers behind it. There are two,
// because a [grpc.Server] that tells its clients to go elsewhere accepts no more
// connections: as the drain begins, the first does that and finishes what it has,
// and the second answers clients that come all the same, so that a health check
// learns that the server drains, and not that it is gone.
type grpcFront struct {
	proxy   *grpcProxy
	builtin *grpcBuiltin
	cfg     GRPCConfig
	failed  func(error)        // the listener
	finish  context.CancelFunc // ends the built-in streams

	// Nil until it is started.
	listener net.Listener // of serving
	later    net.Listener // the same socket, of draining
	serving  *grpc.Server
	draining *grpc.Server

	accepting sync.WaitGroup // what has serving accept connections
	ends      sync.WaitGroup // what start and drain began
	drained   chan struct{}  // closed when nothing is left with the first server; made by drain
}

// newGRPCFront returns nil if no app has gRPC services.
func newGRPCFront(s *Server, apps []*App, component *identity.Component, tp *spans.Tracer) *grpcFront {
	cfg := s.cfg.GRPC
	counts := s.metrics.Proxy(metrics.GRPC)
	p := &grpcProxy{
		apps:      make(map[string]*grpcApp, len(apps)),
		timeout:   cfg.RequestTimeout,
		stall:     cfg.StallTimeout,
		server:    s.base,
		work:      s.work,
		workers:   s.workers,
		notReady:  s.all.notReady,
		metrics:   counts,
		unrouted:  counts.Ingress("", ""),
		component: component,
		tracing:   tp,
		access:    s.access(),
	}
	found := false
	for _, a := range apps {
		services := &a.ingress.rpcs
		services.ready()
		found = found || services.any()
		to := a.ingress.target.Load()
		app := &grpcApp{target: to, services: services, ingress: counts.Ingress(to.app, to.deployment)}
		for _, d := range a.deployments() {
			app.sets = append(app.sets, s.all.sets[d])
		}
		p.apps[a.name] = app
	}
	if !found {
		return nil
	}
	if len(apps) == 1 {
		p.only = p.apps[apps[0].name]
	}
	over, finish := context.WithCancel(context.Background())
	return &grpcFront{proxy: p, builtin: newGRPCBuiltin(over, p), cfg: cfg, failed: s.over.end, finish: finish}
}

// keepaliveTimeout is how long the answer to a keepalive ping may take. It is
// grpc's.
const keepaliveTimeout = 20 * time.Second

// streamWorkers is how many goroutines grpc keeps for calls, for the reason that
// the handlers have [workers]; calls beyond that have fresh ones. A native server
// spends a fifth less on a short call with them.
const streamWorkers = 64

func (f *grpcFront) newServer(workers uint32) *grpc.Server {
	cfg := f.cfg
	s := grpc.NewServer(
		grpc.NumStreamWorkers(workers),
		grpc.UnknownServiceHandler(f.proxy.handle),
		grpc.MaxRecvMsgSize(cfg.MaxMessageBytes),
		grpc.MaxSendMsgSize(cfg.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(min(cfg.MaxStreams, math.MaxInt32))),
		grpc.MaxHeaderListSize(uint32(min(cfg.MaxHeaderBytes, mostHeaderBytes))),
		grpc.ConnectionTimeout(cfg.ConnectionTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: cfg.KeepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: cfg.KeepaliveMinTime, PermitWithoutStream: true}),
	)
	f.builtin.registerOn(s)
	return s
}

// start listens and serves in the background.
func (f *grpcFront) start(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.cfg.Addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("start gRPC server: %w: another process listens there; choose another port with %s, or where the program sets its address", err, EnvGRPCPort)
	case err != nil:
		return fmt.Errorf("start gRPC server: %w; check %s and %s", err, EnvGRPCHost, EnvGRPCPort)
	}
	if f.later, err = sameSocket(l); err != nil {
		_ = l.Close() // nobody was told of it
		return fmt.Errorf("start gRPC server: %w", err)
	}
	f.listener = l
	f.serving, f.draining = f.newServer(streamWorkers), f.newServer(0)
	f.accepting.Go(func() { f.serve(f.serving, l) })
	return nil
}

// sameSocket returns another listener on l's socket. Connections are accepted until
// both are closed.
func sameSocket(l net.Listener) (net.Listener, error) {
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the listener has a descriptor of its own
	return net.FileListener(file)
}

// serve has s accept connections until l is closed.
func (f *grpcFront) serve(s *grpc.Server, l net.Listener) {
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
		f.failed(fmt.Errorf("serve gRPC on %s: %w", l.Addr(), err))
	}
}

// leave turns the health to NOT_SERVING, for good.
func (f *grpcFront) leave() { f.builtin.health.Shutdown() }

// drain tells the clients to go elsewhere. Connections that come from now on are the
// second server's.
func (f *grpcFront) drain() {
	if f.listener == nil {
		return
	}
	_ = f.listener.Close() // it accepts nothing more, either way
	f.accepting.Wait()     // else the server would drop what it has just accepted
	f.drained = make(chan struct{})
	f.ends.Go(func() { f.serve(f.draining, f.later) })
	f.ends.Go(func() {
		f.serving.GracefulStop()
		close(f.drained)
	})
}

// stop closes listener and connections. What has ended gets finishGrace to be
// sent, and closeGrace if ctx ends.
func (f *grpcFront) stop(ctx context.Context) {
	f.finish()
	if f.listener == nil {
		return
	}
	if !f.isDrained(ctx, finishGrace) && ctx.Err() != nil {
		f.isDrained(context.WithoutCancel(ctx), closeGrace)
	}
	f.serving.Stop()
	f.draining.Stop()
	f.ends.Wait()
}

// isDrained waits until the connections of before the drain are gone, but not
// beyond ctx and grace, and reports whether they are.
func (f *grpcFront) isDrained(ctx context.Context, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	select {
	case <-f.drained:
		return true
	case <-ctx.Done():
		return false
	}
}
