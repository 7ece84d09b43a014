package serving_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// Texts, keys and limits, as clients see them.
const (
	headerRequestID      = "X-Request-Id"
	metaRequestID        = "request_id"
	textHealthy          = "success"
	textDraining         = "This node is being drained."
	textNoApplication    = "Application metadata not set. " + textListApplications
	textListApplications = "Ping /ray.serve.RayServeAPIService/ListApplications for available applications."
	mostPath             = 512
	maxStatusText        = 4 << 10
	frameHeader          = 5
)

var (
	noHandler = http.NotFoundHandler()
	discard   = slog.New(slog.DiscardHandler)
	errGoexit = errors.New("handler called runtime.Goexit")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a running server with its spans and logs.
type rig struct {
	t      testing.TB
	server *serving.Server
	spans  *spanLog
	access *lineLog
	client *http.Client
	pipes  *pipes // of startFake; else nil

	wantShutdown string // the error that Shutdown gives; empty: nil
}

// start serves the handler as deployment D of app "a" at "/".
func start(t testing.TB, cfg serving.Config, h http.Handler, opts ...serving.DeploymentOption) *rig {
	t.Helper()
	return startApps(t, cfg, serving.NewApp("a", serving.NewDeployment("D", h, opts...)))
}

func startApps(t testing.TB, cfg serving.Config, apps ...*serving.App) *rig {
	t.Helper()
	r := &rig{t: t, spans: newSpanLog(), access: newLineLog()}
	tp := provider(t, r.spans)
	if cfg.HTTPAddr == "" {
		cfg.HTTPAddr = "127.0.0.1:0"
	}
	var err error
	r.server, err = serving.New(cfg, apps, serving.WithTracing(tp), serving.WithLogger(slog.New(slog.NewJSONHandler(r.access, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	r.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), servingtest.Patience)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil && err.Error() != r.wantShutdown {
			t.Errorf("Shutdown: %v, want %q", err, r.wantShutdown)
		}
		_ = tp.Shutdown(ctx)
	})
	return r
}

// provider has the default settings: everything is sampled.
func provider(t testing.TB, processor sdktrace.SpanProcessor) *tracing.Provider {
	t.Helper()
	cfg, err := tracing.ConfigFromEnv(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	tp, err := tracing.NewProvider(cfg, processor)
	if err != nil {
		t.Fatal(err)
	}
	return tp
}

func (r *rig) url(path string) string { return "http://" + r.server.Addr().String() + path }

// answer is a response as a client sees it.
type answer struct {
	Status int
	Body   string
	Cut    bool // the body did not come to its end
	header http.Header
}

// get sends a GET. After an error before the response's head, the status is 0.
func (r *rig) get(path string, header ...string) answer {
	r.t.Helper()
	return r.do(r.t.Context(), http.MethodGet, path, header...)
}

func (r *rig) do(ctx context.Context, method, path string, header ...string) answer {
	req, err := http.NewRequestWithContext(ctx, method, r.url(path), nil)
	if err != nil {
		r.t.Error(err)
		return answer{}
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{Cut: true}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{Status: resp.StatusCode, Body: string(body), Cut: err != nil, header: resp.Header}
}

// dial opens a connection and sends the text.
func (r *rig) dial(text string) net.Conn {
	r.t.Helper()
	var c net.Conn
	var err error
	if r.pipes != nil {
		c, err = r.pipes.dial(r.t.Context())
	} else {
		c, err = net.Dial("tcp", r.server.Addr().String())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// ongoing returns how many requests have a slot of a replica.
func (r *rig) ongoing() (n float64) {
	for series, value := range r.counts(r.t) {
		if strings.HasPrefix(series, "serve_num_ongoing_requests_at_replicas") {
			n += value
		}
	}
	return n
}

// queued waits until n requests wait for a replica.
func (r *rig) queued(n int) {
	r.t.Helper()
	servingtest.Await(r.t, fmt.Sprintf("%d requests queued", n), func() bool { return r.server.Status()[0].Queued == n })
}

// spanLog keeps ended spans.
type spanLog struct {
	mu    sync.Mutex
	spans []sdktrace.ReadOnlySpan
}

func newSpanLog() *spanLog { return &spanLog{} }

func (l *spanLog) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (l *spanLog) ForceFlush(context.Context) error                { return nil }
func (l *spanLog) Shutdown(context.Context) error                  { return nil }

func (l *spanLog) OnEnd(s sdktrace.ReadOnlySpan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, s)
}

func (l *spanLog) all() []sdktrace.ReadOnlySpan {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]sdktrace.ReadOnlySpan(nil), l.spans...)
}

// take waits for n spans, removes them from the log and returns them.
func (l *spanLog) take(t testing.TB, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	servingtest.Await(t, fmt.Sprintf("%d spans", n), func() bool { return len(l.all()) >= n })
	l.mu.Lock()
	defer l.mu.Unlock()
	spans := l.spans
	l.spans = nil
	return spans
}

func attr(s sdktrace.ReadOnlySpan, key string) (attribute.Value, bool) {
	for _, kv := range s.Attributes() {
		if string(kv.Key) == key {
			return kv.Value, true
		}
	}
	return attribute.Value{}, false
}

// digest returns the facts about a span that are in the status table.
func digest(s sdktrace.ReadOnlySpan) string {
	var b strings.Builder
	family, _, _ := strings.Cut(s.Name(), " ")
	b.WriteString(family)
	switch s.Status().Code {
	case codes.Ok:
		b.WriteString(" OK")
	case codes.Error:
		fmt.Fprintf(&b, " ERROR(%s)", s.Status().Description)
	}
	if v, ok := attr(s, "http.status_code"); ok {
		fmt.Fprintf(&b, " sc=%d", v.AsInt64())
	}
	if _, ok := attr(s, "http.method"); !ok {
		b.WriteString(" no-http")
	}
	for _, e := range s.Events() {
		var kind, escaped string
		for _, kv := range e.Attributes {
			switch kv.Key {
			case "exception.type":
				kind = kv.Value.AsString()
			case "exception.escaped":
				escaped = kv.Value.AsString()
			}
		}
		fmt.Fprintf(&b, " event(%s %s)", kind, escaped)
	}
	return b.String()
}

// digests returns the digests of a request's spans in the order proxy, router, replica.
func digests(spans []sdktrace.ReadOnlySpan) []string {
	var out []string
	for _, family := range []string{"proxy_http_request", "proxy_websocket_request", "route_to_replica", "replica_handle_request"} {
		for _, s := range spans {
			if strings.HasPrefix(s.Name(), family) {
				out = append(out, digest(s))
			}
		}
	}
	return out
}

// lineLog keeps log lines.
type lineLog struct{ servingtest.Log }

func newLineLog() *lineLog { return new(lineLog) }

// take waits for n entries with the message.
func (l *lineLog) take(t testing.TB, msg string, n int) []map[string]any {
	t.Helper()
	servingtest.Await(t, fmt.Sprintf("%d log lines %q", n, msg), func() bool { return len(l.Lines(t, msg)) >= n })
	return l.Lines(t, msg)
}
