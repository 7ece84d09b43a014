package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
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

const (
	pathPage    = "/-/tracing"
	pathJSON    = "/-/tracing.json"
	pathMetrics = "/metrics"
	pathHealth  = "/-/healthz"
	pathCapture = "/-/capture"
)

// Option configures a [Handler].
type Option struct{ apply func(*options) }

type options struct {
	hosts     []string
	profiles  bool
	additions *additions // filled by the methods of a Server; empty if there is no Server
}

// additions are the parts of the status that the methods of a Server add. Each may be added
// while the Server runs.
type additions struct {
	registry    *prometheus.Registry
	deployments atomic.Pointer[func() []Deployment]                        // nil if there are no deployments
	dropped     atomic.Pointer[func() uint64]                              // nil if the log never drops lines
	relay       atomic.Pointer[func() Relay]                               // nil if there is no relay
	sampling    atomic.Pointer[Sampling]                                   // nil if the process does not sample
	capture     atomic.Pointer[func(plugin string) (*host.Capture, error)] // nil if captures are not allowed
	traces      atomic.Pointer[func() [][]byte]                            // nil if the page shows no traces
}

// WithHosts adds host names, without port, that requests may have in their Host header.
// localhost and IP addresses are always allowed. Default: no names.
func WithHosts(names ...string) Option {
	return Option{func(o *options) { o.hosts = append(o.hosts, names...) }}
}

// WithProfiles serves the Go runtime's profiles below /debug/pprof/, in the format of
// `go tool pprof`. Default: they are not served.
func WithProfiles() Option {
	return Option{func(o *options) { o.profiles = true }}
}

// Handler returns a handler for the paths in the package comment. stats is the method
// Stats of a [host.Host] and must be safe for concurrent use. A request blocks while stats
// blocks. The handler is safe for concurrent use. It starts no goroutines and needs no
// Close. Mount it at "/", or at its paths.
func Handler(stats func() host.Stats, opts ...Option) http.Handler {
	o := options{additions: &additions{registry: prometheus.NewRegistry()}}
	for _, opt := range opts {
		opt.apply(&o)
	}
	return newHandler(o, &snapshots{read: stats, additions: o.additions})
}

func newHandler(o options, s *snapshots) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(pathPage, func(w http.ResponseWriter, r *http.Request) { servePage(w, r, s) })
	mux.HandleFunc(pathJSON, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s) })
	mux.Handle(pathMetrics, metricsHandler(o.additions.registry, s))
	mux.HandleFunc(pathHealth, func(w http.ResponseWriter, _ *http.Request) {
		write(w, "text/plain; charset=utf-8", []byte("ok\n"))
	})
	mux.HandleFunc(pathCapture, func(w http.ResponseWriter, r *http.Request) { serveCapture(w, r, o.additions) })
	mux.Handle("/{$}", http.RedirectHandler(pathPage, http.StatusFound))
	if o.profiles {
		mux.HandleFunc(pathProfiles, serveProfile)
	}
	return newGuard(o.hosts, mux)
}

// snapshots shares snapshots of the statistics between requests.
type snapshots struct {
	read      func() host.Stats
	additions *additions

	mu   sync.Mutex
	last host.Stats // the last snapshot
	at   time.Time  // its time; zero before the first snapshot
	past history
}

// freshFor is the maximum age of a snapshot. It bounds the cost of many requests,
// because ending spans wait while a snapshot is taken.
const freshFor = 20 * time.Millisecond

// stats returns a snapshot and its time. The caller must not change the snapshot.
func (s *snapshots) stats() (host.Stats, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.at.IsZero() || now.Sub(s.at) >= freshFor {
		s.last = s.read()
		s.at = time.Now()
		s.past.add(s.at, s.last)
	}
	return s.last, s.at
}

// history returns the kept samples. The caller must not change them.
func (s *snapshots) history() history {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.past)
}

// status returns the status with the additions.
func (s *snapshots) status() Status {
	status := newStatus(s.stats())
	if deployments := s.additions.deployments.Load(); deployments != nil {
		status.Deployments = (*deployments)()
	}
	if dropped := s.additions.dropped.Load(); dropped != nil {
		status.Process.LogLinesDropped = (*dropped)()
	}
	if relay := s.additions.relay.Load(); relay != nil {
		now := (*relay)()
		status.Relay = &now
	}
	status.Sampling = s.additions.sampling.Load()
	return status
}

// servePage answers in HTML, or in JSON if the request asks for it.
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

// prefersJSON reports whether the values of an Accept header prefer JSON to HTML. It returns
// false for a client that accepts anything, because that client gets HTML.
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
	if err != nil { // cannot happen: a Status is always valid JSON
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "application/json", append(text, '\n'))
}

// write sends a whole answer with a media type (kind). It ignores errors, because a write fails
// only if the client has disconnected.
func write(w http.ResponseWriter, kind string, text []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = bytes.NewReader(text).WriteTo(w)
}

// metricsHandler serves the metrics of the host, of the Go runtime and of the process. It uses
// a registry of its own, so the answer does not contain metrics that the program registers
// elsewhere.
func metricsHandler(registry *prometheus.Registry, s *snapshots) http.Handler {
	registry.MustRegister(
		NewCollector(func() host.Stats { stats, _ := s.stats(); return stats }),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// guard refuses requests for foreign host names and requests with other methods than
// GET and HEAD. It sets headers that restrict how a browser may use the answer.
type guard struct {
	hosts map[string]bool // allowed names in lower case; an empty name allows requests without a Host header
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
	case !g.allowsHost(r.Host):
		http.Error(w, fmt.Sprintf("host %.80q is not a name of this listener: use its IP address or localhost, or set %s to the name",
			r.Host, EnvHost), http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed: want GET or HEAD", http.StatusMethodNotAllowed)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// allowsHost reports whether a request with this Host header may be answered. In a DNS
// rebinding attack, the name of a foreign web site resolves to this machine, and the browser
// sends that name in the header. An IP address in the header cannot come from such an attack.
// An empty header is allowed, because clients of HTTP/1.0 send none.
func (g guard) allowsHost(hostport string) bool {
	name := hostport
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		name = host
	}
	if _, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")); err == nil {
		return true
	}
	return g.hosts[strings.ToLower(strings.TrimSuffix(name, "."))]
}
