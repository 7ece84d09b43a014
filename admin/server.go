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

// Bounds of what one client can take. Answers are small; profiles have more.
const (
	readTimeout    = 5 * time.Second
	writeTimeout   = 10 * time.Second
	idleTimeout    = 90 * time.Second // more than a minute between two scrapes
	maxHeaderBytes = 16 << 10
	// listenTimeout bounds the look-up of a host name.
	listenTimeout = 2 * time.Second
	// grace is how long answers that are on their way have once Shutdown was
	// called: a stop does not wait for whoever watches it.
	grace = 250 * time.Millisecond
)

// Server is a [Handler] on a listener of its own. Its methods are safe for
// concurrent use.
type Server struct {
	addr  string
	log   *slog.Logger
	later *later
	http  *http.Server
	done  sync.WaitGroup

	mu      sync.Mutex
	bound   net.Addr
	started bool
}

// NewServer builds a server that is not started; cfg.Addr names its address.
// What stats is for, [Handler] says. What goes wrong later is logged to log.
// The error is that of cfg.Validate, or that there is no address.
func NewServer(cfg Config, stats func() host.Stats, log *slog.Logger) (*Server, error) {
	if !cfg.Enabled() {
		return nil, fmt.Errorf("admin listener: there is no address; set %s", EnvPort)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var opts []Option
	if name, _, err := net.SplitHostPort(cfg.Addr); err == nil && name != "" {
		opts = append(opts, WithHosts(name))
	}
	if cfg.Profiles {
		opts = append(opts, WithProfiles())
	}
	l := &later{registry: prometheus.NewRegistry()}
	opts = append(opts, Option{func(o *options) { o.later = l }})
	return &Server{
		addr:  cfg.Addr,
		log:   log,
		later: l,
		http: &http.Server{
			Handler:        Handler(stats, opts...),
			ReadTimeout:    readTimeout,
			WriteTimeout:   writeTimeout,
			IdleTimeout:    idleTimeout,
			MaxHeaderBytes: maxHeaderBytes,
			ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}, nil
}

// Start listens, and answers in the background. It blocks for as long as
// listening takes, a look-up of a host name included: until ctx ends, and two
// seconds at most. It fails if the address can not be had, and if it was called
// before.
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
	s.done.Go(func() { // ends by Shutdown
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the admin listener has failed; the service goes on without it", "error", err)
		}
	})
	return nil
}

// Register adds metrics to /metrics, at any time: those of what starts after the
// listener. They are c's from then on, and c must be safe for concurrent use. It
// fails where c clashes with what is there, or was added before.
func (s *Server) Register(c prometheus.Collector) error {
	if err := s.later.registry.Register(c); err != nil {
		return fmt.Errorf("admin listener: metrics: %w", err)
	}
	return nil
}

// ShowDeployments has the status show what deployments says, from now on. It is
// called for each answer, by several goroutines at a time, and must not block.
func (s *Server) ShowDeployments(deployments func() []Deployment) {
	s.later.deployments.Store(&deployments)
}

// ShowLog has the status and the metrics show how many lines the log has dropped,
// from now on. dropped is called for each answer, by several goroutines at a time,
// and must not block. It fails if it was called before.
func (s *Server) ShowLog(dropped func() uint64) error {
	s.later.dropped.Store(&dropped)
	return s.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "serve_log_lines_dropped_total",
		Help: "Lines that the log of the service has dropped, because they came faster than they were read.",
	}, func() float64 { return float64(dropped()) }))
}

// URL is where a browser finds the page, with the real port; empty before
// Start. Where the server listens on every address it names the loopback one.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound == nil {
		return ""
	}
	return "http://" + reachable(s.bound.String()) + pathPage
}

// reachable is an address that somebody on this machine can ask.
func reachable(addr string) string {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil || !ap.Addr().IsUnspecified() {
		return addr
	}
	return net.JoinHostPort("localhost", strconv.Itoa(int(ap.Port())))
}

// Shutdown ends the server: nothing is accepted any more, and what is being
// answered has until ctx ends, and a quarter of a second at most. A server that
// was not started can not be any more. Calling it again does nothing.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.started = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		// Somebody is slow, or takes a profile: nothing is lost with them.
		_ = s.http.Close()
	}
	s.done.Wait()
	return nil
}
