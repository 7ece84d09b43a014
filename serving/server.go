package serving

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

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
	http    *httpFront
	grpc    *grpcFront // nil if no app has gRPC services
	work    *work
	workers *workers
	metrics *metrics.Set
	base    context.Context         // ends when requests are cut off
	cut     context.CancelCauseFunc // ends base
	all     *deployments
	over    ending

	stop    sync.Once
	stopErr error // written in stop

	mu   sync.Mutex
	addr net.Addr // nil before Start
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
		cfg:     cfg.withDefaults(),
		log:     o.log,
		work:    newWork(),
		workers: new(workers),
		metrics: metrics.New(),
		all:     newDeployments(apps, prefixes),
		over:    ending{done: make(chan struct{})},
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
	s.http = newHTTPFront(s.base, s.cfg, s.log, front)
	s.grpc = newGRPCFront(s, apps, front.component, tracer)
	if s.grpc != nil {
		for _, set := range s.all.order {
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
	s.all.add(d, set)
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
		notReady:  s.all.notReady,
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

// Start listens and serves in the background; ctx covers the listening only.
// Call it once. It fails if the address cannot be had.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr != nil || s.work.isDraining() {
		return errors.New("start server: started or shut down before")
	}
	l, err := listenHTTP(ctx, s.cfg.HTTPAddr)
	if err != nil {
		return err
	}
	if s.grpc != nil {
		if err := s.grpc.start(ctx); err != nil {
			_ = l.Close() // no caller knows it
			return err
		}
	}
	s.runLocked(l)
	return nil
}

// runLocked serves the connections of l in the background.
func (s *Server) runLocked(l net.Listener) {
	s.addr = l.Addr()
	for _, set := range s.all.order {
		set.start() // ends by Shutdown
	}
	s.work.start()
	go s.http.serve(l, s.over.end) // ends by Shutdown, which waits for it
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
// before Start, and if no app has gRPC services.
func (s *Server) GRPCAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == nil || s.grpc == nil {
		return nil
	}
	return s.grpc.listener.Addr()
}

// Done is closed when a started server accepts no more connections: because Shutdown got
// that far, or because a listener failed, which Err then reports.
func (s *Server) Done() <-chan struct{} { return s.over.done }

// Err returns nil while the server serves and after an ordinary end, else the reason why it
// stopped accepting connections.
func (s *Server) Err() error {
	select {
	case <-s.over.done:
		return s.over.err
	default:
		return nil
	}
}

// ending is the end of a server: the moment from which it accepts no connections.
type ending struct {
	once sync.Once
	done chan struct{} // closed by end
	err  error         // a listener's; nil for an ordinary end
}

// end notes the end. The first call counts.
func (e *ending) end(err error) {
	e.once.Do(func() {
		e.err = err
		close(e.done)
	})
}

// Status returns the state of each deployment: by the order of the apps, the ingress of
// each first. It looks at them one after the other, and does not block.
func (s *Server) Status() []DeploymentStatus {
	list := make([]DeploymentStatus, len(s.all.order))
	for i, set := range s.all.order {
		list[i] = set.status()
	}
	return list
}
