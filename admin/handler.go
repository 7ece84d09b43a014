package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/servetrace/servetrace/host"
)

// The paths that are answered.
const (
	pathPage    = "/-/tracing"
	pathJSON    = "/-/tracing.json"
	pathMetrics = "/metrics"
	pathHealth  = "/-/healthz"
)

// Option changes a [Handler], or that of a [Server].
type Option struct{ apply func(*options) }

type options struct {
	hosts    []string
	profiles bool
	later    *later // of a Server, which adds to it
}

// later is what a Server shows beside the host, once it is there.
type later struct {
	registry    *prometheus.Registry
	deployments atomic.Pointer[func() []Deployment] // nil: there are none
	dropped     atomic.Pointer[func() uint64]       // nil: the log drops no lines
}

// WithHosts has requests answered that come by these host names, without port,
// besides localhost and every IP address. Default: none.
func WithHosts(names ...string) Option {
	return Option{func(o *options) { o.hosts = append(o.hosts, names...) }}
}

// WithProfiles serves the Go runtime's profiles below /debug/pprof/, as `go
// tool pprof` reads them. Default: they are not served.
func WithProfiles() Option {
	return Option{func(o *options) { o.profiles = true }}
}

// Handler answers the paths of the package comment with what stats says, which
// is the method Stats of a [host.Host] and must be safe for concurrent use. It
// blocks for as long as that does. The handler is safe for concurrent use; it
// starts nothing and needs no end. Mount it at "/", or at its paths.
func Handler(stats func() host.Stats, opts ...Option) http.Handler {
	o := options{later: &later{registry: prometheus.NewRegistry()}}
	for _, opt := range opts {
		opt.apply(&o)
	}
	s := &snapshots{read: stats, later: o.later}
	mux := http.NewServeMux()
	mux.HandleFunc(pathPage, func(w http.ResponseWriter, r *http.Request) { servePage(w, r, s) })
	mux.HandleFunc(pathJSON, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s) })
	mux.Handle(pathMetrics, metricsHandler(o.later.registry, s))
	mux.HandleFunc(pathHealth, func(w http.ResponseWriter, _ *http.Request) {
		write(w, "text/plain; charset=utf-8", []byte("ok\n"))
	})
	mux.Handle("/{$}", http.RedirectHandler(pathPage, http.StatusFound))
	if o.profiles {
		mux.HandleFunc(pathProfiles, serveProfile)
	}
	return newGuard(o.hosts, mux)
}

// snapshots reads the books for all requests.
type snapshots struct {
	read  func() host.Stats
	later *later

	mu   sync.Mutex
	last host.Stats
	at   time.Time
}

// freshFor is how old the books may be that a request gets. It bounds what many
// requests can cost the service, whose spans wait while the books are taken.
const freshFor = 20 * time.Millisecond

// stats gives the books, which whoever calls must not change, and when they
// were taken.
func (s *snapshots) stats() (host.Stats, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.at.IsZero() || now.Sub(s.at) >= freshFor {
		s.last = s.read()
		s.at = time.Now()
	}
	return s.last, s.at
}

// status is all that the page and its JSON form show.
func (s *snapshots) status() Status {
	status := newStatus(s.stats())
	if deployments := s.later.deployments.Load(); deployments != nil {
		status.Deployments = (*deployments)()
	}
	if dropped := s.later.dropped.Load(); dropped != nil {
		status.Process.LogLinesDropped = (*dropped)()
	}
	return status
}

// servePage answers in HTML, or in JSON where that is asked for.
func servePage(w http.ResponseWriter, r *http.Request, s *snapshots) {
	w.Header().Set("Vary", "Accept")
	switch format := r.FormValue("format"); {
	case format == "json", format == "" && prefersJSON(r.Header.Values("Accept")):
		writeJSON(w, s)
	case format == "", format == "html":
		writePage(w, s, r.FormValue("refresh") != "off")
	default:
		http.Error(w, fmt.Sprintf("format=%.40q: want json or html", format), http.StatusBadRequest)
	}
}

// prefersJSON tells whether an Accept header names JSON, and rates HTML lower
// or does not name it. Whoever takes anything gets HTML.
func prefersJSON(accept []string) bool {
	rated := map[string]float64{}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q, err := strconv.ParseFloat(params["q"], 64)
		if err != nil {
			q = 1
		}
		rated[kind] = max(rated[kind], q)
	}
	return rated["application/json"] > rated["text/html"]
}

func writeJSON(w http.ResponseWriter, s *snapshots) {
	text, err := json.MarshalIndent(s.status(), "", "  ")
	if err != nil { // only by a bug: a Status always has a form
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "application/json", append(text, '\n'))
}

// write sends a whole answer. It fails only where the client has gone.
func write(w http.ResponseWriter, kind string, text []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = bytes.NewReader(text).WriteTo(w)
}

// metricsHandler serves the collector, and those of the Go runtime and the
// process, from a registry that is the listener's own: what a program registers
// elsewhere is none of it.
func metricsHandler(registry *prometheus.Registry, s *snapshots) http.Handler {
	registry.MustRegister(
		NewCollector(func() host.Stats { stats, _ := s.stats(); return stats }),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// guard lets a request through that may be answered, with the headers that keep
// a browser from making anything else of the answer.
type guard struct {
	hosts map[string]bool
	next  http.Handler
}

func newGuard(hosts []string, next http.Handler) guard {
	g := guard{hosts: map[string]bool{"": true, "localhost": true}, next: next}
	for _, name := range hosts {
		g.hosts[strings.ToLower(strings.TrimSuffix(name, "."))] = true
	}
	return g
}

// ServeHTTP implements http.Handler.
func (g guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case !g.knows(r.Host):
		http.Error(w, fmt.Sprintf("host %.80q is not a name of this listener: ask by its IP address or localhost, or set %s to the name",
			r.Host, EnvHost), http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD: nothing can be changed here", http.StatusMethodNotAllowed)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// knows tells whether a Host header is one that this listener answers to. A
// page of another site that has its own name resolve to this machine
// (DNS rebinding) comes by that name, for a browser always says it; an IP
// address can not be made to point elsewhere. No name at all is HTTP/1.0.
func (g guard) knows(hostport string) bool {
	name := hostport
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		name = host
	}
	if _, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")); err == nil {
		return true
	}
	return g.hosts[strings.ToLower(strings.TrimSuffix(name, "."))]
}
