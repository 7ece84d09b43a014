package grpcproxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress, as with gRPC's C core
	"google.golang.org/grpc/keepalive"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// Config describes a proxy and its server.
type Config struct {
	Shared    *router.Shared
	Component *identity.Component
	Apps      []App
	NotReady  func() string // reason for which a deployment takes no calls; empty if all take calls
	Failed    func(error)   // called if the listener fails
	Settings  Settings
}

// Settings are the operator's settings. No field is zero, except RequestTimeout.
type Settings struct {
	RequestTimeout    time.Duration
	MaxMessageBytes   int
	MaxStreams        int
	MaxHeaderBytes    int
	StallTimeout      time.Duration
	ConnectionTimeout time.Duration
	KeepaliveTime     time.Duration
	KeepaliveMinTime  time.Duration
}

// Front is the gRPC side of a server: a listener and the servers behind it. There are
// two, because a [grpc.Server] in a graceful stop accepts no more connections. When the
// drain begins, the first server stops gracefully and finishes its calls. The second
// server answers new connections, so that a health check gets the state of the drain,
// and not a refused connection.
type Front struct {
	proxy   *proxy
	builtin *builtin
	cfg     Config
	finish  context.CancelFunc // ends the streams of builtin

	// Nil until Start.
	listener net.Listener // listener of serving
	later    net.Listener // the same socket, for the server draining
	serving  *grpc.Server
	draining *grpc.Server

	accepting sync.WaitGroup // counts goroutines in which serving accepts connections
	ends      sync.WaitGroup // the goroutines of Drain
	drained   chan struct{}  // closed when the first server has no connection; Drain makes the channel
}

// New returns nil if no app has gRPC services.
func New(c Config) *Front {
	if !slices.ContainsFunc(c.Apps, func(a App) bool { return a.Services.Any() }) {
		return nil
	}
	p := newProxy(c)
	over, finish := context.WithCancel(context.Background())
	return &Front{proxy: p, builtin: newBuiltin(over, p), cfg: c, finish: finish}
}

// Refresh updates the health service with the current state of the deployments.
func (f *Front) Refresh() { f.builtin.refresh() }

// keepaliveTimeout bounds the time to the answer to a keepalive ping. It is grpc's
// default.
const keepaliveTimeout = 20 * time.Second

// streamWorkers is the number of goroutines that grpc keeps for calls, because the stack
// of a new goroutine must grow first. Each further call starts a goroutine.
const streamWorkers = 64

func (f *Front) newServer(workers uint32) *grpc.Server {
	cfg := f.cfg.Settings
	s := grpc.NewServer(
		grpc.NumStreamWorkers(workers),
		grpc.UnknownServiceHandler(f.proxy.handle),
		grpc.MaxRecvMsgSize(cfg.MaxMessageBytes),
		grpc.MaxSendMsgSize(cfg.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(min(cfg.MaxStreams, math.MaxInt32))),
		grpc.MaxHeaderListSize(uint32(min(cfg.MaxHeaderBytes, math.MaxInt32))),
		grpc.ConnectionTimeout(cfg.ConnectionTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: cfg.KeepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: cfg.KeepaliveMinTime, PermitWithoutStream: true}),
	)
	f.builtin.registerOn(s)
	return s
}

// Start serves the connections of l, a TCP listener, in the background. If Start fails,
// it closes l.
func (f *Front) Start(l net.Listener) error {
	var err error
	if f.later, err = sameSocket(l); err != nil {
		_ = l.Close() // an error has no effect, because no request has arrived
		return fmt.Errorf("start gRPC server: %w", err)
	}
	f.listener = l
	f.serving, f.draining = f.newServer(streamWorkers), f.newServer(0)
	f.accepting.Go(func() { f.serve(f.serving, l) })
	return nil
}

// Addr returns the listener's address, or nil before Start.
func (f *Front) Addr() net.Addr {
	if f.listener == nil {
		return nil
	}
	return f.listener.Addr()
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

// serve accepts connections for s until l is closed.
func (f *Front) serve(s *grpc.Server, l net.Listener) {
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
		f.cfg.Failed(fmt.Errorf("serve gRPC on %s: %w", l.Addr(), err))
	}
}

// Leave sets the health to NOT_SERVING permanently.
func (f *Front) Leave() { f.builtin.health.Shutdown() }

// Drain asks the clients to connect elsewhere. The second server accepts later
// connections.
func (f *Front) Drain() {
	if f.listener == nil {
		return
	}
	_ = f.listener.Close() // the listener accepts nothing more, even after an error
	f.accepting.Wait()     // else the server would drop a connection that it has just accepted
	f.drained = make(chan struct{})
	f.ends.Go(func() { f.serve(f.draining, f.later) })
	f.ends.Go(func() {
		f.serving.GracefulStop()
		close(f.drained)
	})
}

// finishGrace bounds the time to send the answers of ended calls.
const finishGrace = time.Second

// Stop closes the listener and the connections. It waits for the answers of ended calls
// for at most finishGrace, or CloseGrace if ctx ends.
func (f *Front) Stop(ctx context.Context) {
	f.finish()
	if f.listener == nil {
		return
	}
	if !f.isDrained(ctx, finishGrace) && ctx.Err() != nil {
		f.isDrained(context.WithoutCancel(ctx), inflight.CloseGrace)
	}
	f.serving.Stop()
	f.draining.Stop()
	f.ends.Wait()
}

// isDrained waits until the first server has no connection, at most until ctx ends or
// for grace. It reports whether the server has none.
func (f *Front) isDrained(ctx context.Context, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	select {
	case <-f.drained:
		return true
	case <-ctx.Done():
		return false
	}
}
