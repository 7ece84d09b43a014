package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/grpcproxy"
	"github.com/servetrace/servetrace/serving/internal/httpproxy"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/router"
	"github.com/servetrace/servetrace/tracing"
)

// Server serves apps over HTTP/1.1 and unencrypted HTTP/2 (prior knowledge). It serves the
// gRPC services of its apps at a port of their own. Its methods are safe for concurrent use.
type Server struct {
	cfg    Config
	shared *router.Shared
	cut    context.CancelCauseFunc // ends shared.Base
	http   *httpproxy.Front
	grpc   *grpcproxy.Front // nil if no app has gRPC services
	calls  *calls           // the calls from and to other processes
	// deployments has the apps with their deployments, in this process and elsewhere.
	deployments *deployments

	// over ends when the server accepts no more connections. Its cause is the error of a
	// listener that failed, or context.Canceled after Shutdown.
	over context.Context
	end  context.CancelCauseFunc // ends over

	stop    sync.Once // runs shutdown, see shutdown.go
	stopErr error     // result of shutdown; written before stop.Do returns

	mu   sync.Mutex
	addr net.Addr // nil before Start
}

// Option changes a [Server] while it is built.
type Option struct{ apply func(*options) }

type options struct {
	tracing *tracing.Provider
	log     *slog.Logger
}

// WithTracing sets the provider that makes the spans. The default is [tracing.Off]. The
// server neither flushes the provider nor shuts it down.
func WithTracing(p *tracing.Provider) Option {
	return Option{func(o *options) { o.tracing = p }}
}

// WithLogger sets the logger of the access log, which has a line for each request, and of
// the server's other log lines. The default is [slog.Default].
func WithLogger(log *slog.Logger) Option {
	return Option{func(o *options) { o.log = log }}
}

// New builds a server for one or more apps, with different names and route prefixes. It
// starts no replica that has a constructor, and does not listen. The error joins all faults
// of settings and apps.
func New(cfg Config, apps []*App, opts ...Option) (*Server, error) {
	declared, prefixes, err := declare(apps, cfg.Apps)
	if err := errors.Join(cfg.Validate(), checkApps(apps, prefixes), err); err != nil {
		return nil, err
	}
	o := options{tracing: tracing.Off(), log: slog.Default()}
	for _, opt := range opts {
		opt.apply(&o)
	}
	cfg = cfg.withDefaults()
	calls, err := newCalls(cfg.Calls, apps, o.log)
	if err != nil {
		return nil, err
	}
	base, cut := context.WithCancelCause(context.Background())
	s := &Server{
		cfg:   cfg,
		cut:   cut,
		calls: calls,
		shared: &router.Shared{
			Base:    base,
			Counter: inflight.NewCounter(),
			Workers: new(inflight.Workers),
			Metrics: metrics.New(),
			Tracer:  spans.New(o.tracing),
			Log:     accesslog.Log{Logger: o.log, Quiet: cfg.QuietAccessLog},
		},
		deployments: &deployments{apps: apps, prefixes: prefixes},
	}
	s.over, s.end = context.WithCancelCause(context.Background())
	for _, a := range apps {
		for _, d := range a.deployments() {
			s.deploy(a.name, d, declared[d])
		}
	}
	s.buildFronts()
	s.calls.serve(s.shared, s.deployments.order, s.end)
	for _, d := range s.deployments.order { // replicas without a constructor are ready at once, others begin in Start
		if len(d.locals) == 0 && !d.built.Load().Remote {
			d.replicas().Start()
		}
	}
	return s, nil
}

// deploy builds the router.Deployment of d, with replicas in this process or in others. want
// has the settings of d. deploy builds nothing for a deployment that this process neither runs
// nor calls.
func (s *Server) deploy(app string, d *Deployment, want router.Settings) {
	at := s.calls.places[d]
	d.elsewhere.Store(at.absent)
	if at.absent {
		return
	}
	pressure := cmp.Or(d.pressure, &backpressure{s.cfg.BackpressureStatus, s.cfg.BackpressureRetryAfter})
	c := router.Config{
		App:             app,
		Name:            d.name,
		Constructors:    d.locals,
		Settings:        want,
		QueueFullStatus: pressure.status,
		RetryAfter:      pressure.retryAfter,
	}
	if at.target == "" {
		d.built.Store(router.New(s.shared, c))
	} else {
		d.built.Store(s.calls.remote(s.shared, d, c))
	}
	s.deployments.order = append(s.deployments.order, d)
}

// buildFronts builds the HTTP proxy, and the gRPC proxy if an app has gRPC services.
func (s *Server) buildFronts() {
	var routes []httpproxy.Route
	var apps []grpcproxy.App
	for _, a := range s.deployments.apps {
		ingress := a.ingress.built.Load()
		if ingress == nil {
			continue // the app takes no requests in this process
		}
		app := grpcproxy.App{Ingress: ingress, Services: &a.ingress.rpcs}
		for _, d := range a.deployments() {
			if built := d.built.Load(); built != nil {
				app.All = append(app.All, built)
			}
		}
		apps = append(apps, app)
		if a.ingress.handler != nil { // else it has gRPC services only
			routes = append(routes, httpproxy.Route{
				Deployment: ingress,
				Handler:    a.ingress.handler,
				Prefix:     s.deployments.prefixes[a],
				Timeout:    *cmp.Or(a.timeout, &s.cfg.RequestTimeout),
			})
		}
	}
	component := s.shared.Tracer.NewProxy()
	s.http = httpproxy.New(httpproxy.Config{
		Shared:            s.shared,
		Component:         component,
		Routes:            routes,
		NotReady:          s.deployments.notReady,
		StallTimeout:      s.cfg.StallTimeout,
		ReadHeaderTimeout: s.cfg.ReadHeaderTimeout,
		IdleTimeout:       s.cfg.IdleTimeout,
		MaxHeaderBytes:    s.cfg.MaxHeaderBytes,
	})
	s.grpc = grpcproxy.New(grpcproxy.Config{
		Shared:    s.shared,
		Component: component,
		Apps:      apps,
		NotReady:  s.deployments.notReady,
		Failed:    s.end,
		Settings:  s.cfg.GRPC.settings(),
	})
	if s.grpc != nil {
		s.shared.Changed = s.grpc.Refresh
	}
}

// Start opens the listeners, starts the replicas, and serves in the background. It uses ctx
// only while it opens the listeners. It returns an error if it cannot listen at an address,
// or if Start or Shutdown was called before.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr != nil || s.shared.Counter.Draining() {
		return errors.New("start server: started or shut down before")
	}
	l, err := listen(ctx, "server", s.cfg.HTTPAddr, EnvHTTPHost, EnvHTTPPort, ", with --http")
	if err != nil {
		return err
	}
	err = s.calls.start(ctx)
	if err == nil {
		err = s.startGRPC(ctx)
	}
	if err != nil {
		_ = l.Close() // the error of Close can be ignored, because no connection was accepted
		s.calls.stop(ctx)
		return err
	}
	s.runLocked(l)
	return nil
}

// runLocked starts the replicas, and serves the connections of l in the background.
func (s *Server) runLocked(l net.Listener) {
	s.addr = l.Addr()
	s.deployments.start()
	s.shared.Counter.Start()
	s.http.Serve(l, s.end)
}

// startGRPC opens the listener of the gRPC proxy and serves it in the background. It does
// nothing if no app has gRPC services.
func (s *Server) startGRPC(ctx context.Context) error {
	if s.grpc == nil {
		return nil
	}
	l, err := listen(ctx, "gRPC server", s.cfg.GRPC.Addr, EnvGRPCHost, EnvGRPCPort, ", with --grpc")
	if err != nil {
		return err
	}
	return s.grpc.Start(l)
}

// listen listens at addr. server is the name of the listener in errors. An error names the
// variables of the address, hostVariable and portVariable, so that an operator can change
// it. orElse is a text with another way to change it, such as a flag, or "".
func listen(ctx context.Context, server, addr, hostVariable, portVariable, orElse string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("start %s: %w: another process listens there; choose another port with %s%s, or in the program", server, err, portVariable, orElse)
	case err != nil:
		return nil, fmt.Errorf("start %s: %w; check %s and %s", server, err, hostVariable, portVariable)
	}
	return l, nil
}

// Collector returns the metrics of the server, to be registered in a registry of the
// program. docs/reference/metrics.md lists them. Every call returns the same collector,
// which may be registered before Start, and is safe for concurrent use. The number of series
// is bounded. The latency of a sampled request may have an exemplar with its trace id, which
// a scrape in the OpenMetrics form contains.
func (s *Server) Collector() prometheus.Collector { return s.shared.Metrics }

// Addr returns the address at which the server listens, with the real port. It is nil
// before Start.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// GRPCAddr returns the address at which the gRPC proxy listens, with the real port. It is
// nil before Start, and if no app has gRPC services.
func (s *Server) GRPCAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == nil || s.grpc == nil {
		return nil
	}
	return s.grpc.Addr()
}

// CallAddr returns the address at which other processes call this process, with the real
// port. It is nil before Start, and without [CallConfig.Addr].
func (s *Server) CallAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == nil || s.calls.server == nil {
		return nil
	}
	return s.calls.server.Addr()
}

// Done is closed when a started server accepts no more connections, because of Shutdown
// or because a listener failed. Err returns the listener's error.
func (s *Server) Done() <-chan struct{} { return s.over.Done() }

// Err returns the error of the listener that failed. It returns nil while the server serves,
// and after Shutdown if no listener had failed before.
func (s *Server) Err() error {
	if err := context.Cause(s.over); err != context.Canceled { //nolint:errorlint // Shutdown ends over with this very value
		return err
	}
	return nil
}

// Status returns the status of each deployment, in the order of the apps, with the ingress
// of each app first. It reads one deployment after another, and does not wait for replicas.
func (s *Server) Status() []DeploymentStatus { return s.deployments.status() }
