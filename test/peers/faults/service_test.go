package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/peers/peer"
	"github.com/servetrace/servetrace/test/testplugin"
)

// service is a program with a host, its plugins and the operators' listener.
type service struct {
	t       *testing.T
	host    *host.Host
	log     *testplugin.Log
	tracer  trace.Tracer
	handler http.Handler

	mu    sync.Mutex
	ended map[string]bool // ids of spans
}

// startService starts the plugins of a list, with these variables.
func startService(t *testing.T, plugins string, env map[string]string) *service {
	t.Helper()
	env = maps.Clone(env)
	env[host.EnvPlugins] = plugins
	cfg, err := host.ConfigFromEnv(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	cfg.Environ = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	for name, value := range env {
		cfg.Environ = append(cfg.Environ, name+"="+value)
	}
	s := &service{t: t, log: &testplugin.Log{}, ended: map[string]bool{}}
	s.host, err = host.New(cfg, host.WithLogger(slog.New(slog.NewTextHandler(s.log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.host.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(idsOf{s}), sdktrace.WithSpanProcessor(s.host))
	s.tracer, s.handler = provider.Tracer("faults"), admin.Handler(s.host.Stats)
	t.Cleanup(func() {
		_ = provider.Shutdown(t.Context()) // the remaining spans are lost, and counted
		if err := s.host.Stats().Check(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", s.log)
		}
	})
	return s
}

// idsOf keeps the ids of ended spans.
type idsOf struct{ *service }

func (s idsOf) OnEnd(span sdktrace.ReadOnlySpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[span.SpanContext().SpanID().String()] = true
}

func (idsOf) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (idsOf) ForceFlush(context.Context) error                { return nil }
func (idsOf) Shutdown(context.Context) error                  { return nil }

// request ends the spans of one: proxy, router, replica and the user's own.
func (s *service) request() {
	c, root := s.tracer.Start(s.t.Context(), "proxy_http_request", trace.WithSpanKind(trace.SpanKindServer))
	for _, name := range []string{"route_request", "replica_handle_request", "application_span"} {
		_, span := s.tracer.Start(c, name, trace.WithAttributes(attribute.String("deployment", "Shop"), attribute.Int("n", 42)))
		span.End()
	}
	root.End()
}

// load ends spans until stop is called.
func (s *service) load() (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.request()
			case <-done:
				return
			}
		}
	})
	return func() { close(done); running.Wait() }
}

// status returns the status that operators see.
func (s *service) status() admin.Status {
	s.t.Helper()
	var status admin.Status
	if err := json.Unmarshal([]byte(s.get("/-/tracing.json")), &status); err != nil {
		s.t.Fatal(err)
	}
	if status.BooksError != "" {
		s.t.Fatal(status.BooksError)
	}
	return status
}

func (s *service) get(path string) string {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil))
	if w.Code != http.StatusOK {
		s.t.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

func (s *service) plugin(name string) admin.Plugin {
	s.t.Helper()
	p, _ := s.pluginAt(name)
	return p
}

// pluginAt gives a plugin's status and when it was so, which may be some time ago.
func (s *service) pluginAt(name string) (admin.Plugin, time.Time) {
	s.t.Helper()
	status := s.status()
	for _, p := range status.Plugins {
		if p.Name == name {
			return p, status.Time
		}
	}
	s.t.Fatalf("no plugin %q", name)
	return admin.Plugin{}, time.Time{}
}

// await blocks until the status of a plugin is as ok wants it.
func (s *service) await(name, what string, ok func(admin.Plugin) bool) {
	s.t.Helper()
	testplugin.WaitFor(s.t, name+": "+what, func() bool { return ok(s.plugin(name)) })
}

// settled blocks until no span that has ended waits.
func (s *service) settled(name string) {
	s.t.Helper()
	now := time.Now()
	testplugin.WaitFor(s.t, name+": the end of what waits", func() bool {
		p, at := s.pluginAt(name)
		return at.After(now) && p.Spans.Waiting == 0
	})
}

// delivers blocks until more was delivered than by now.
func (s *service) delivers(name string) {
	s.t.Helper()
	before := s.plugin(name).Spans.Delivered
	s.await(name, "another delivery", func(p admin.Plugin) bool { return p.Spans.Delivered > before })
}

// wantAt compares the ledger of a plugin, for which nothing waits, with the span ids of its
// back end and their counts. twice: spans that it did not acknowledge may be there.
func (s *service) wantAt(name string, has map[string]int, twice bool) {
	s.t.Helper()
	p := s.plugin(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(p.Spans.Accepted) != len(s.ended) {
		s.t.Errorf("%s: %d spans accepted, %d have ended", name, p.Spans.Accepted, len(s.ended))
	}
	again := 0
	for id, times := range has {
		if !s.ended[id] {
			s.t.Errorf("%s: the back end has span %s, which nobody ended", name, id)
		}
		again += times - 1
	}
	lost := p.Spans.Lost()
	switch {
	case again > 0 && !twice:
		s.t.Errorf("%s: %d spans came twice", name, again)
	case len(has) < int(p.Spans.Delivered):
		s.t.Errorf("%s: %d spans are at the back end, and %d count as delivered", name, len(has), p.Spans.Delivered)
	case len(has) > int(p.Spans.Delivered) && (!twice || lost == 0):
		s.t.Errorf("%s: %d spans are at the back end, and only %d count as delivered", name, len(has), p.Spans.Delivered)
	case p.Spans.Delivered+lost != p.Spans.Accepted:
		s.t.Errorf("%s: %d delivered and %d lost of %d", name, p.Spans.Delivered, lost, p.Spans.Accepted)
	}
	if s.t.Failed() {
		s.t.Logf("%s: %d at the back end, %d again, books %+v", name, len(has), again, p.Spans)
	}
}

// tellings are the lines that have a reason.
var tellings = []string{
	"plugin cannot deliver, batches are sent again", "plugin refuses a batch for good", "back end took only a part of a batch",
}

// numbers are the parts of a reason that change.
var numbers = regexp.MustCompile(`[0-9]+`)

// wantReason fails unless a reason is once in the log, in the status, and its
// code in the metrics.
func (s *service) wantReason(name, code, reason string) {
	s.t.Helper()
	told := map[string]int{}
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, "plugin="+name+" ") && strings.Contains(line, reason) &&
			slices.ContainsFunc(tellings, func(text string) bool { return strings.Contains(line, text) }) {
			_, words, _ := strings.Cut(line, " error=")
			told[numbers.ReplaceAllString(words, "#")]++
		}
	}
	if len(told) == 0 {
		s.t.Errorf("%q does not stand in the log", reason)
	}
	for words, n := range told {
		if n > 1 {
			s.t.Errorf("%d times in the log: %s", n, words)
		}
	}
	p := s.plugin(name)
	if !slices.ContainsFunc(p.Failures, func(f admin.Failure) bool { return f.Code == code && strings.Contains(f.Reason, reason) }) {
		s.t.Errorf("the status has no %s with %q: %+v", code, reason, p.Failures)
	}
	metrics := s.get("/metrics")
	calls := fmt.Sprintf("servetrace_plugin_calls_total{answer=%q,plugin=%q} ", code, name)
	spans := fmt.Sprintf("servetrace_plugin_spans_rejected_total{code=%q,plugin=%q} ", code, name)
	if !strings.Contains(metrics, calls) && !strings.Contains(metrics, spans) {
		s.t.Errorf("the metrics have no %s", code)
	}
}

// otlp is bin/plugins/otlp, and the variables for one endpoint.
func otlp(t *testing.T, protocol, endpoint string, more ...string) (list string, env map[string]string) {
	t.Helper()
	env = map[string]string{
		"OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
		"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
	}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return "otlp=" + peer.Plugin(t, "otlp"), env
}
