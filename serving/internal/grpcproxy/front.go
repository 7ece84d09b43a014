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
	_ "google.golang.org/grpc/encoding/gzip" // lets clients compress messages, as gRPC's C core does
	"google.golang.org/grpc/keepalive"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// Config describes a proxy and the gRPC servers in front of it.
type Config struct {
	Shared    *router.Shared
	Component *identity.Component
	Apps      []App
	NotReady  func() string // returns the reason for which a deployment takes no calls, or "" if all deployments take calls
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

// Front is the gRPC side of a server: a listener and two gRPC servers. There are two,
// because a [grpc.Server] in a graceful stop accepts no more connections. When the drain
// begins, the first server stops gracefully and finishes its calls. The second server takes
// new connections, so that a health check gets the answer NOT_SERVING instead of a refused
// connection.
type Front struct {
	proxy   *proxy
	builtin *builtin
	cfg     Config
	finish  context.CancelFunc // ends the health watches of builtin

	// The four fields below are nil until Start.
	listener net.Listener // listener of the first server
	later    net.Listener // a second listener on the same socket, for the second server
	serving  *grpc.Server // the first server, which takes connections until the drain begins
	draining *grpc.Server // the second server, which takes the connections that come during the drain

	accepting sync.WaitGroup // waits for the goroutine in which the first server accepts connections
	ends      sync.WaitGroup // waits for the goroutines of Drain
	drained   chan struct{}  // closed when the first server has no connection; nil before Drain
}

// New returns a Front that does not listen yet. It returns nil if no app has gRPC services.
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

// keepaliveTimeout is the time in which a client must answer a keepalive ping. It is equal to
// grpc's default.
const keepaliveTimeout = 20 * time.Second

// streamWorkers is the number of goroutines that grpc keeps for calls. They save the growth
// of a new goroutine's stack. If all are busy, a call starts a goroutine.
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
		_ = l.Close() // an error of Close harms no client, because no request has arrived
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

// sameSocket returns another listener on the socket of l. The socket accepts connections
// until both listeners are closed.
func sameSocket(l net.Listener) (net.Listener, error) {
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // net.FileListener makes a descriptor of its own
	return net.FileListener(file)
}

// serve accepts connections for s until l is closed.
func (f *Front) serve(s *grpc.Server, l net.Listener) {
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
		f.cfg.Failed(fmt.Errorf("serve gRPC on %s: %w", l.Addr(), err))
	}
}

// Leave makes all health checks answer NOT_SERVING from now on. Calls are still accepted.
func (f *Front) Leave() { f.builtin.health.Shutdown() }

// Drain asks the clients of open connections to connect elsewhere. The first server stops
// gracefully, and the second server accepts later connections.
func (f *Front) Drain() {
	if f.listener == nil {
		return
	}
	_ = f.listener.Close() // even if Close fails, the listener accepts no more connections
	f.accepting.Wait()     // a connection that was just accepted would otherwise be dropped by GracefulStop
	f.drained = make(chan struct{})
	f.ends.Go(func() { f.serve(f.draining, f.later) })
	f.ends.Go(func() {
		f.serving.GracefulStop()
		close(f.drained)
	})
}

// finishGrace bounds the time in which grpc sends the answers of calls that have ended.
const finishGrace = time.Second

// Stop closes the listener and the connections. Before that, it waits until the answers of
// ended calls are sent: for at most finishGrace, or CloseGrace if ctx has ended.
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

// isDrained waits until the first server has no connection, at most until ctx ends or the
// time grace has passed. It returns true if that server has no connection.
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
