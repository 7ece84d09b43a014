package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/servetrace/servetrace/host"
)

// Limits for one client. Profiles have a longer write timeout.
const (
	readTimeout    = 5 * time.Second
	writeTimeout   = 10 * time.Second
	idleTimeout    = 90 * time.Second // longer than the minute that usually lies between two scrapes
	maxHeaderBytes = 16 << 10
	// listenTimeout bounds the lookup of a host name.
	listenTimeout = 2 * time.Second
	// grace is the time for which Shutdown waits for answers in progress, so that a
	// client cannot delay a stop.
	grace = 250 * time.Millisecond
)

// Server is a [Handler] on its own listener. Its methods are safe for concurrent use.
type Server struct {
	addr      string
	log       *slog.Logger
	additions *additions
	snapshots *snapshots
	http      *http.Server
	done      sync.WaitGroup
	stop      chan struct{} // closed to end the method sample
	once      sync.Once     // closes the channel stop

	mu      sync.Mutex
	bound   net.Addr // address of the listener; nil before Start
	started bool     // Start or Shutdown was called
}

// NewServer returns a server for cfg.Addr that is not started. For stats, see [Handler].
// Errors after the start are logged to log. NewServer returns the error of cfg.Validate,
// or an error if there is no address.
func NewServer(cfg Config, stats func() host.Stats, log *slog.Logger) (*Server, error) {
	if !cfg.Enabled() {
		return nil, fmt.Errorf("admin listener: no address: set %s", EnvPort)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	name, _, _ := net.SplitHostPort(cfg.Addr) // Validate has checked the address
	o := options{hosts: []string{name}, profiles: cfg.Profiles, additions: &additions{registry: prometheus.NewRegistry()}}
	s := &snapshots{read: stats, additions: o.additions}
	return &Server{
		addr:      cfg.Addr,
		log:       log,
		additions: o.additions,
		snapshots: s,
		stop:      make(chan struct{}),
		http: &http.Server{
			Handler:        newHandler(o, s),
			ReadTimeout:    readTimeout,
			WriteTimeout:   writeTimeout,
			IdleTimeout:    idleTimeout,
			MaxHeaderBytes: maxHeaderBytes,
			ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}, nil
}

// Start listens, and answers requests in the background. It blocks while it looks up a host
// name, until ctx ends or two seconds have passed. It returns an error if the address is not
// available, or if the server was started or shut down before.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errors.New("start admin listener: started or shut down before")
	}
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("start admin listener: %w: another process listens there; choose another port with %s, or 0 for any", err, EnvPort)
	case err != nil:
		return fmt.Errorf("start admin listener: %w; check %s and %s", err, EnvHost, EnvPort)
	}
	s.started, s.bound = true, l.Addr()
	s.done.Go(func() { // ends with Shutdown
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the admin listener has failed; the service continues without it", "error", err)
		}
	})
	s.done.Go(s.sample) // ends with Shutdown
	return nil
}

// sample takes a snapshot of the statistics every five seconds, for the history on the page.
func (s *Server) sample() {
	every := time.NewTicker(sampleEvery)
	defer every.Stop()
	for {
		s.snapshots.stats()
		select {
		case <-every.C:
		case <-s.stop:
			return
		}
	}
}

// Register adds the metrics of c to /metrics, at any time, for components that start
// after the listener. c must be safe for concurrent use. It returns an error if c
// conflicts with registered metrics, or was registered before.
func (s *Server) Register(c prometheus.Collector) error {
	if err := s.additions.registry.Register(c); err != nil {
		return fmt.Errorf("admin listener: metrics: %w", err)
	}
	return nil
}

// ShowDeployments adds the result of deployments to the status. deployments is called
// once per answer, possibly concurrently, and must not block.
func (s *Server) ShowDeployments(deployments func() []Deployment) {
	s.additions.deployments.Store(&deployments)
}

// ShowTraces adds the last traces to the page. It leaves out events, error messages and
// the values of attributes. recent returns encoded requests of OTLP, oldest first, as the
// method Batches of a [host.Recent] does. recent is called for each view of the page,
// possibly concurrently.
func (s *Server) ShowTraces(recent func() [][]byte) {
	s.additions.traces.Store(&recent)
}

// ShowSampling adds the sampler of the process to the status.
func (s *Server) ShowSampling(sampling Sampling) {
	s.additions.sampling.Store(&sampling)
}

// ShowLog adds the number of dropped log lines to the status and the metrics. dropped is
// called once per answer, possibly concurrently, and must not block. ShowLog returns an
// error if it was called before.
func (s *Server) ShowLog(dropped func() uint64) error {
	s.additions.dropped.Store(&dropped)
	return s.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "serve_log_lines_dropped_total",
		Help: "Log lines of the service that were dropped, because they came faster than they were read.",
	}, func() float64 { return float64(dropped()) }))
}

// URL returns the address of the page, with the real port, or "" before Start. If the
// server listens on every address, the host is localhost.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound == nil {
		return ""
	}
	return "http://" + reachable(s.bound.String()) + pathPage
}

// reachable returns an address for clients on this machine.
func reachable(addr string) string {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil || !ap.Addr().IsUnspecified() {
		return addr
	}
	return net.JoinHostPort("localhost", strconv.Itoa(int(ap.Port())))
}

// Shutdown stops accepting connections and waits for answers in progress until ctx
// ends, at most a quarter of a second. The server cannot be started afterwards. Further
// calls do nothing. The error is always nil.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.started = true
	s.once.Do(func() { close(s.stop) })
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		// Close cuts answers to slow clients and running profiles. No spans are lost by that.
		_ = s.http.Close()
	}
	s.done.Wait()
	return nil
}
