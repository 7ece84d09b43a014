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

	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/tracing"
)

// grpcFront is the gRPC proxy's listener and the servers behind it. There are
// two: as the drain begins, the first tells its clients to go elsewhere and
// finishes what it has, and the second answers those who come all the same, so
// that a health check learns that the server drains, and not that it is gone.
type grpcFront struct {
	proxy   *grpcProxy
	builtin *grpcBuiltin
	cfg     GRPCConfig
	failed  func(error)        // the listener
	finish  context.CancelFunc // ends the built-in streams

	// Nil until it is started.
	doors    *doors
	serving  *grpc.Server
	draining *grpc.Server

	ends    sync.WaitGroup // of what start and drain began
	drained chan struct{}  // closed when nothing is left with the first server; made by drain
}

// newGRPCFront gives nil where no app has gRPC services.
func newGRPCFront(s *Server, apps []*App, component *tracing.Component, tp *tracing.Provider) *grpcFront {
	cfg := s.cfg.GRPC
	counts := s.metrics.Proxy(metrics.GRPC)
	p := &grpcProxy{
		apps:      make(map[string]*grpcApp, len(apps)),
		timeout:   cfg.RequestTimeout,
		work:      s.work,
		workers:   s.workers,
		notReady:  s.notReady,
		watch:     newWatch(cfg.StallTimeout),
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
			app.sets = append(app.sets, s.sets[d])
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
	return &grpcFront{proxy: p, builtin: newGRPCBuiltin(over, p), cfg: cfg, failed: s.end, finish: finish}
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
		grpc.InTapHandle(beginRPC),
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
	f.doors = newDoors(l)
	f.serving, f.draining = f.newServer(streamWorkers), f.newServer(0)
	f.proxy.watch.start() // ends by stop
	f.ends.Go(f.doors.accept)
	f.serve(f.serving)
	return nil
}

// serve has s take the connections, in place of who took them before.
func (f *grpcFront) serve(s *grpc.Server) {
	d := f.doors.open()
	f.ends.Go(func() {
		if err := s.Serve(d); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
			f.failed(fmt.Errorf("serve gRPC on %s: %w", d.Addr(), err))
		}
	})
}

// leave turns the health to NOT_SERVING, for good.
func (f *grpcFront) leave() { f.builtin.health.Shutdown() }

// drain tells the clients to go elsewhere.
func (f *grpcFront) drain() {
	if f.doors == nil {
		return
	}
	f.drained = make(chan struct{})
	f.serve(f.draining)
	f.ends.Go(func() {
		f.serving.GracefulStop()
		close(f.drained)
	})
}

// stop closes listener and connections. What has ended gets finishGrace to be
// sent, and closeGrace where ctx ends.
func (f *grpcFront) stop(ctx context.Context) {
	f.finish()
	if f.doors == nil {
		return
	}
	if !f.isDrained(ctx, finishGrace) && ctx.Err() != nil {
		f.isDrained(context.WithoutCancel(ctx), closeGrace)
	}
	f.serving.Stop()
	f.draining.Stop()
	f.doors.close()
	f.proxy.watch.stop()
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

// doors are listeners over one, of which the newest gets the connections. That
// a server closes its own leaves the listener alone.
type doors struct {
	listener net.Listener
	conns    chan arrival
	closed   chan struct{}

	newest *door // set by open, which is not for concurrent use
}

// arrival is what a listener's Accept gave.
type arrival struct {
	conn net.Conn
	err  error
}

func newDoors(l net.Listener) *doors {
	return &doors{listener: l, conns: make(chan arrival), closed: make(chan struct{})}
}

// accept hands on what the listener gives, until close.
func (d *doors) accept() {
	for {
		conn, err := d.listener.Accept()
		select {
		case d.conns <- arrival{conn, err}: // after an error, the server waits or serves no more
		case <-d.closed:
			if conn != nil {
				_ = conn.Close() // it has carried nothing
			}
			return
		}
	}
}

// open makes the newest door, and closes the one before it.
func (d *doors) open() *door {
	if d.newest != nil {
		_ = d.newest.Close()
	}
	d.newest = &door{of: d, closed: make(chan struct{})}
	return d.newest
}

// close closes the listener.
func (d *doors) close() {
	close(d.closed)
	_ = d.listener.Close() // it accepts nothing more, either way
}

// door is one of them.
type door struct {
	of     *doors
	once   sync.Once
	closed chan struct{}
}

var _ net.Listener = (*door)(nil)

// Accept implements [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	select {
	case <-d.closed: // first, or a server that ends gets a connection, and drops it
		return nil, net.ErrClosed
	default:
	}
	select {
	case a := <-d.of.conns:
		return a.conn, a.err
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// Addr implements [net.Listener].
func (d *door) Addr() net.Addr { return d.of.listener.Addr() }
