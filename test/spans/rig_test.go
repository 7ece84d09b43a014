package spans

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// patience bounds every wait: beyond it something is stuck.
const patience = servingtest.Patience

// jobID is Ray's job id in these tests, which every task id ends in.
const jobID = "0badc0de"

// rig is a running server with its recordings.
type rig struct {
	t       testing.TB
	server  *serving.Server
	tracing *tracing.Provider
	spans   *recorder
	access  servingtest.Log
	stop    func()

	mu      sync.Mutex
	clients []*http.Client // that have sent something
}

// serve starts a server for apps, which the end of the test stops.
func serve(t testing.TB, cfg serving.Config, apps ...*serving.App) *rig {
	t.Helper()
	return serveWith(t, newProvider, cfg, apps...)
}

// one serves h as deployment D of app "a" at "/".
func one(t testing.TB, cfg serving.Config, h http.Handler, opts ...serving.DeploymentOption) *rig {
	t.Helper()
	return serve(t, cfg, serving.NewApp("a", serving.NewDeployment("D", h, opts...)))
}

func serveWith(t testing.TB, provider func(testing.TB, *recorder) *tracing.Provider, cfg serving.Config, apps ...*serving.App) *rig {
	t.Helper()
	r := &rig{t: t, spans: newRecorder()}
	r.tracing = provider(t, r.spans)
	if cfg.HTTPAddr == "" {
		cfg.HTTPAddr = "127.0.0.1:0"
	}
	cfg.GRPC.Addr = "127.0.0.1:0"
	var err error
	r.server, err = serving.New(cfg, apps, serving.WithTracing(r.tracing), serving.WithLogger(slog.New(slog.NewJSONHandler(&r.access, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.stop = sync.OnceFunc(func() {
		r.hangUp() // else net/http gives idle HTTP/2 connections a second to close
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := r.tracing.Shutdown(ctx); err != nil {
			t.Errorf("shut tracing down: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// uses notes that c has connections to the server.
func (r *rig) uses(c *http.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, c)
}

func (r *rig) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		c.CloseIdleConnections()
	}
}

// newProvider has the default settings, which sample everything.
func newProvider(t testing.TB, spans *recorder) *tracing.Provider {
	t.Helper()
	return providerOf(t, spans, nil)
}

// providerOf has the default settings but for change.
func providerOf(t testing.TB, spans sdktrace.SpanProcessor, change func(*tracing.Config)) *tracing.Provider {
	t.Helper()
	cfg, err := tracing.ConfigFromEnv(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	cfg.JobID = jobID
	if change != nil {
		change(&cfg)
	}
	p, err := tracing.NewProvider(cfg, spans)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// check compares the trace of a request with the tables, and its line in the access log
// with the trace. It returns the root's span as it was recorded.
func (r *rig) check(id string, want *span) sdktrace.ReadOnlySpan {
	r.t.Helper()
	root, got := treeOf(r.t, r.spans.request(r.t, id))
	compare(r.t, id, got, want)
	r.checkLine(id, root)
	return root
}

// compare compares the tree of a request with the tables.
func compare(t testing.TB, id string, got, want *span) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans of request %q (-want +got):\n%s", id, diff)
	}
}

// checkLine: the request has one line in the access log, which agrees with the proxy
// span.
func (r *rig) checkLine(id string, proxy sdktrace.ReadOnlySpan) {
	r.t.Helper()
	lines := r.accessLines(r.t, id)
	if len(lines) != 1 {
		r.t.Errorf("request %q has %d lines in the access log, want 1: %v", id, len(lines), lines)
		return
	}
	line := lines[0]
	want := map[string]any{"trace_id": proxy.SpanContext().TraceID().String(), "span_id": proxy.SpanContext().SpanID().String()}
	if code, ok := attributeOf(proxy, "http.status_code"); ok {
		want["status"] = float64(code.AsInt64())
	}
	if code, ok := attributeOf(proxy, "rpc.grpc.status_code"); ok {
		want["code"] = code.AsString()
	}
	for key, value := range want {
		if line[key] != value {
			r.t.Errorf("the access log's line of request %q has %s %v, the proxy span %v", id, key, line[key], value)
		}
	}
}

// checkNoSpans stops the server, so that nothing follows, and checks that no
// span was started at all.
func (r *rig) checkNoSpans() {
	r.t.Helper()
	r.stop()
	if n := r.spans.count(); n != 0 {
		r.t.Errorf("%d spans were started, want none: %s", n, r.spans.names())
	}
}

// versions are the versions of HTTP that a scenario is tried over.
var versions = []string{"HTTP/1.1", "HTTP/2"}

// client gives a client of a version, with connections of its own.
func client(t testing.TB, version string) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	if version == "HTTP/2" {
		transport.Protocols.SetUnencryptedHTTP2(true)
	} else {
		transport.Protocols.SetHTTP1(true)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// overBoth runs a scenario over HTTP/1.1 and HTTP/2.
func overBoth(t *testing.T, scenario func(t *testing.T, c *http.Client)) {
	t.Helper()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) { scenario(t, client(t, version)) })
	}
}

// answer is the response that a client got.
type answer struct {
	Status int // 0: no response
	Body   string
	Cut    bool // it did not come to its end
}

// get sends a GET under a request id, and reads the whole answer.
func (r *rig) get(c *http.Client, id, path string, header ...string) answer {
	r.t.Helper()
	return r.do(r.t.Context(), c, http.MethodGet, id, path, header...)
}

func (r *rig) do(ctx context.Context, c *http.Client, method, id, path string, header ...string) answer {
	r.t.Helper()
	r.uses(c)
	resp, err := c.Do(r.request(ctx, method, id, path, header...))
	if err != nil {
		return answer{Cut: true}
	}
	defer func() { _ = resp.Body.Close() }()
	if got := resp.Header.Get("X-Request-Id"); got != id {
		r.t.Errorf("the response has the request id %q, the request %q", got, id)
	}
	body, err := io.ReadAll(resp.Body)
	return answer{Status: resp.StatusCode, Body: string(body), Cut: err != nil}
}

func (r *rig) request(ctx context.Context, method, id, path string, header ...string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.server.Addr().String()+path, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", id)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

// checkAnswer compares the response that a client got.
func checkAnswer(t testing.TB, got, want answer) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the client's view (-want +got):\n%s", diff)
	}
}

// accessLines waits for the lines of a request in the access log, of which there is one:
// it is written right after the proxy span has ended.
func (r *rig) accessLines(t testing.TB, id string) (found []map[string]any) {
	t.Helper()
	servingtest.Await(t, "the access log of "+id, func() bool {
		found = slices.DeleteFunc(r.access.Lines(t, "request"), func(line map[string]any) bool { return line["request_id"] != id })
		return len(found) > 0
	})
	return found
}
