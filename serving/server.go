package serving

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/tracing"
)

// Server serves apps over HTTP/1.1 and unencrypted HTTP/2 (prior knowledge), and
// on a port of its own the gRPC services of those that have some.
// Its methods are safe for concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	http    *http.Server
	grpc    *grpcFront // nil where no app has gRPC services
	work    *work
	workers *workers
	conns   *conns
	metrics *metrics.Set
	base    context.Context         // ends when requests are cut off
	cut     context.CancelCauseFunc // ends base
	ended   chan struct{}           // closed when HTTP accepts nothing any more
	over    sync.Once
	done    chan struct{} // closed by over

	apps     []*App
	prefixes map[*App]string // the route prefixes in force; New sets them
	order    []*replicaSet   // by the order of the apps, the ingress of each first
	sets     map[*Deployment]*replicaSet

	stop    sync.Once
	stopErr error // written in stop

	mu      sync.Mutex
	addr    net.Addr
	err     error // written before done is closed
	started bool
}

// Option changes a [Server] as it is built.
type Option struct{ apply func(*options) }

type options struct {
	tracing *tracing.Provider
	log     *slog.Logger
}

// WithTracing sets what makes the spans; the default is [tracing.Off]. The
// server neither flushes nor shuts it down.
func WithTracing(p *tracing.Provider) Option {
	return Option{func(o *options) { o.tracing = p }}
}

// WithLogger sets where the access log (one line per request) and the server's
// own reports go; the default is [slog.Default].
func WithLogger(log *slog.Logger) Option {
	return Option{func(o *options) { o.log = log }}
}

// New builds a server for apps, one or more, with distinct names and route
// prefixes. It starts nothing. The error tells every fault at once.
func New(cfg Config, apps []*App, opts ...Option) (*Server, error) {
	said, prefixes, err := declare(apps, cfg.Apps)
	if err := errors.Join(cfg.Validate(), checkApps(apps, prefixes), err); err != nil {
		return nil, err
	}
	o := options{tracing: tracing.Off(), log: slog.Default()}
	for _, opt := range opts {
		opt.apply(&o)
	}
	s := &Server{
		cfg:      cfg.withDefaults(),
		log:      o.log,
		work:     newWork(),
		workers:  new(workers),
		conns:    newConns(),
		metrics:  metrics.New(),
		ended:    make(chan struct{}),
		done:     make(chan struct{}),
		apps:     apps,
		prefixes: prefixes,
		sets:     map[*Deployment]*replicaSet{},
	}
	s.base, s.cut = context.WithCancelCause(context.Background())
	tracer := spans.New(o.tracing)
	var routes []*route
	for _, a := range apps {
		for _, d := range a.deployments() {
			d.target.Store(s.deploy(a.name, d, said[d], tracer))
		}
		if a.ingress.handler == nil {
			continue // it has gRPC services only
		}
		routes = append(routes, &route{
			target:  a.ingress.target.Load(),
			prefix:  prefixes[a],
			timeout: *cmp.Or(a.timeout, &s.cfg.RequestTimeout),
			pattern: patternOf(a.ingress.handler),
		})
	}
	front := newProxy(s, routes, tracer)
	s.http = s.newHTTPServer(front)
	s.grpc = newGRPCFront(s, apps, front.component, tracer)
	if s.grpc != nil {
		for _, set := range s.order {
			set.changed = s.grpc.builtin.refresh
		}
	}
	return s, nil
}

// checkApps returns every fault of every app; prefixes are those in force.
func checkApps(apps []*App, prefixes map[*App]string) error {
	var faults []error
	if len(apps) == 0 {
		faults = append(faults, errors.New("no apps"))
	}
	names, taken, owners := map[string]bool{}, map[string]string{}, map[*Deployment]string{}
	for i, a := range apps {
		if a == nil {
			faults = append(faults, fmt.Errorf("app %d is nil", i))
			continue
		}
		if err := a.check(); err != nil {
			faults = append(faults, fmt.Errorf("app %q: %w", a.name, err))
		}
		if names[a.name] {
			faults = append(faults, fmt.Errorf("app %q: name used twice", a.name))
		}
		names[a.name] = true
		if prefix := prefixes[a]; a.overHTTP() {
			if other, is := taken[prefix]; is {
				faults = append(faults, fmt.Errorf("app %q: route prefix %q is that of app %q", a.name, prefix, other))
			}
			taken[prefix] = a.name
		}
		for _, d := range a.deployments() {
			if other, taken := owners[d]; taken && d != nil && other != a.name {
				faults = append(faults, fmt.Errorf("app %q: deployment %q is that of app %q: build one for each", a.name, d.name, other))
			}
			owners[d] = a.name
		}
	}
	return errors.Join(faults...)
}

// deploy builds the deployment's replicas and the router over them.
func (s *Server) deploy(app string, d *Deployment, want settings, tp *spans.Tracer) *target {
	router := newRouter(s.base, d.name, want.maxQueued)
	set := newReplicaSet(app, d, want, router, s.log)
	set.make = func() *replica { return newReplica(app, d, s, router, tp) }
	s.sets[d], s.order = set, append(s.order, set)
	if len(d.locals) == 0 {
		set.start()
	}
	return &target{
		app:        app,
		deployment: d.name,
		router:     router,
		pressure:   *cmp.Or(d.pressure, &backpressure{s.cfg.BackpressureStatus, s.cfg.BackpressureRetryAfter}),
		metrics:    s.metrics.Router(app, d.name, router.load),
		tracing:    tp,
		work:       s.work,
		log:        s.log,
	}
}

// access is the access log.
func (s *Server) access() accessLog { return accessLog{log: s.log, quiet: s.cfg.QuietAccessLog} }

func newProxy(s *Server, routes []*route, tp *spans.Tracer) *proxy {
	counts := s.metrics.Proxy(metrics.HTTP)
	apps := make(map[string]string, len(routes))
	for _, rt := range routes {
		rt.ingress = counts.Ingress(rt.app, rt.deployment)
		apps[rt.prefix] = rt.app
	}
	listing, _ := json.Marshal(apps) // a map of strings always has a form
	return &proxy{
		routes:    newRouteTable(routes),
		listing:   listing,
		notReady:  s.notReady,
		work:      s.work,
		workers:   s.workers,
		stall:     s.cfg.StallTimeout,
		base:      s.base,
		metrics:   counts,
		unrouted:  counts.Ingress("", ""),
		component: tp.NewProxy(),
		tracing:   tp,
		access:    s.access(),
	}
}

func (s *Server) newHTTPServer(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.cfg.ReadHeaderTimeout,
		IdleTimeout:       s.cfg.IdleTimeout,
		MaxHeaderBytes:    s.cfg.MaxHeaderBytes,
		ConnState:         s.conns.onState,
		ConnContext:       s.conns.onContext,
		ErrorLog:          slog.NewLogLogger(unbreakable{s.log.Handler()}, slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return s.base },
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: max(0, s.cfg.StallTimeout)},
	}
}

// Start listens and serves in the background; ctx covers the listening only.
// Call it once. It fails if the address cannot be had.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.work.isDraining() {
		return errors.New("start server: started or shut down before")
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.HTTPAddr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("start server: %w: another process listens there; choose another port with %s, or where the program sets its address", err, EnvHTTPPort)
	case err != nil:
		return fmt.Errorf("start server: %w; check %s and %s", err, EnvHTTPHost, EnvHTTPPort)
	}
	if s.grpc != nil {
		if err := s.grpc.start(ctx); err != nil {
			_ = l.Close() // nobody was told of it
			return err
		}
	}
	s.runLocked(l)
	return nil
}

// runLocked serves the connections of l in the background.
func (s *Server) runLocked(l net.Listener) {
	s.started, s.addr = true, l.Addr()
	for _, set := range s.order {
		set.start() // ends by Shutdown
	}
	s.work.start()
	go s.serve(l) // ends by Shutdown, which waits for it
}

func (s *Server) serve(l net.Listener) {
	defer close(s.ended)
	err := s.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		s.end(nil)
		return
	}
	s.end(fmt.Errorf("serve %s: %w", l.Addr(), err))
}

// end tells that connections are no longer accepted; err is a listener's. The
// first call counts.
func (s *Server) end(err error) {
	s.over.Do(func() {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		close(s.done)
	})
}

// Collector gives the metrics of the server, for a registry of the program's own;
// docs/reference/metrics.md lists them. It is always the same, may be registered before
// Start and scraped at any time, and is safe for concurrent use. The number of
// series is bounded. Latencies of sampled requests carry their trace as exemplar,
// which registries show in the OpenMetrics form.
func (s *Server) Collector() prometheus.Collector { return s.metrics }

// Addr is the address that the server listens on, with the real port; nil
// before Start.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// GRPCAddr is the address that the gRPC proxy listens on, with the real port; nil
// before Start, and where no app has gRPC services.
func (s *Server) GRPCAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.grpc == nil {
		return nil
	}
	return s.grpc.listener.Addr()
}

// Done is closed when a started server accepts no more connections: because
// Shutdown got that far, or because a listener failed, which Err then tells.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is nil while the server serves and after an ordinary end, else why it
// stopped accepting connections.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
