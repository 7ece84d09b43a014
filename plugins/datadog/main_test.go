package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/DataDog/datadog-agent/pkg/proto/pbgo/trace"
	"github.com/tinylib/msgp/msgp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/plugins/datadog/datadogexporter"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
	"github.com/servetrace/servetrace/test/testplugin"
)

// envPlugin makes the test binary the plugin.
const envPlugin = "DATADOG_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(envPlugin) != "" {
		main() // exits
	}
	os.Exit(m.Run())
}

// agent is a Datadog agent that acts as the name of a span says.
type agent struct {
	*httptest.Server

	mu       sync.Mutex
	payloads int
	paths    []string
	ids      []string
	meta     map[string]string // of the last span
	hits     uint64            // in statistics
	// refuse is the number of a payload that is answered 503; 0: none.
	refuse int
}

func startAgent(t *testing.T) *agent {
	a := &agent{}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	return a
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.paths = append(a.paths, r.URL.Path)
	a.mu.Unlock()
	switch r.URL.Path {
	case "/info":
		_, _ = io.WriteString(w, `{"endpoints":["/v0.4/traces","/v0.6/stats","/telemetry/proxy/"],"client_drop_p0s":true,"span_events":true}`)
		return
	case "/v0.6/stats":
		a.count(w, r)
		return
	case "/v0.4/traces":
	default:
		return
	}
	body, err := io.ReadAll(r.Body)
	var traces pb.Traces
	if err == nil {
		_, err = traces.UnmarshalMsg(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch order := traces[0][0].Resource; order {
	case "permanent":
		w.WriteHeader(http.StatusBadRequest)
		return
	case "retryable":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case "slow":
		<-time.After(time.Second)
	case "stuck":
		<-r.Context().Done()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.payloads++; a.payloads == a.refuse {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	for _, chunk := range traces {
		for _, span := range chunk {
			a.ids = append(a.ids, fmt.Sprintf("%016x", span.SpanID))
			a.meta = maps.Clone(span.Meta)
		}
	}
}

// count sums up statistics.
func (a *agent) count(w http.ResponseWriter, r *http.Request) {
	var payload pb.ClientStatsPayload
	if err := msgp.Decode(r.Body, &payload); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, bucket := range payload.Stats {
		for _, group := range bucket.Stats {
			a.hits += group.Hits
		}
	}
}

// asked reports whether the agent got a request for a path with a prefix.
func (a *agent) asked(prefix string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.paths, func(path string) bool { return strings.HasPrefix(path, prefix) })
}

func (a *agent) received() ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ids), nil
}

// order makes a batch of one span whose name tells the agent how to act.
func order(name string, trace ...byte) *coltracepb.ExportTraceServiceRequest {
	id := append(make([]byte, 16-len(trace)), trace...)
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{
			Name: name, TraceId: id, SpanId: []byte{1, 2, 3, 4, 5, 6, 7, 8}, StartTimeUnixNano: 1, EndTimeUnixNano: 2,
		}}}},
	}}}
}

// TestConformance holds the plugin to every rule of the contract, as a process
// and in this one.
func TestConformance(t *testing.T) {
	for name, target := range map[string]plugintest.Target{"process": binary(t), "in-process": plugintest.InProcess(datadogexporter.Spec)} {
		t.Run(name, func(t *testing.T) {
			a := startAgent(t)
			filtered := order("dropped", 9)
			filtered.ResourceSpans = append(filtered.ResourceSpans, order("kept", 9).GetResourceSpans()...)
			plugintest.Conformance(t, target,
				plugintest.WithPatience(2*time.Minute), // its largest batch takes seconds with -race, on a busy machine
				plugintest.WithEnv("DD_TRACE_AGENT_URL="+a.URL),
				plugintest.WithConfig([]byte("processors: [{filter: {drop: [{name: dropped}]}}]")),
				plugintest.WithBadConfig([]byte("exporter: {mode: carrier-pigeon}")),
				plugintest.WithInput(plugintest.Filtered, filtered),
				plugintest.WithInput(plugintest.Permanent, order("permanent", 1)),
				plugintest.WithInput(plugintest.Retryable, order("retryable", 2)),
				plugintest.WithInput(plugintest.Slow, order("slow", 3)),
				plugintest.WithInput(plugintest.Stuck, order("stuck", 4)),
				plugintest.WithInput(plugintest.Partial, order("no low half", 5, 0, 0, 0, 0, 0, 0, 0, 0)),
				plugintest.WithReceived(a.received))
		})
	}
}

func binary(t *testing.T) plugintest.Target {
	t.Helper()
	return plugintest.Binary(os.Args[0], envPlugin+"=1", "GOCOVERDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
}

// TestUnderAHost sends batches through a real host and a real process. The agent refuses
// them at first, so the host sends them again. Each span arrives once, the statistics count
// each once, and spans that a rule omits are filtered in the ledger. The operator's
// environment has variables that would mislead a tracer.
func TestUnderAHost(t *testing.T) {
	const spans = 2000
	for name, test := range map[string]struct {
		variables []string
		delivered int // at least
		telemetry bool
	}{
		"all":  {[]string{"DD_INSTRUMENTATION_TELEMETRY_ENABLED=true"}, spans, true},
		"rule": {[]string{`DD_TRACE_SAMPLING_RULES=[{"sample_rate":0.5}]`, "DD_TRACE_RATE_LIMIT=100000"}, spans / 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAgent(t)
			a.refuse = 1
			environ := append([]string{
				envPlugin + "=1", "GOCOVERDIR=" + t.TempDir(), "GORACE=atexit_sleep_ms=0",
				"DD_TRACE_AGENT_URL=" + a.URL, "DD_CIVISIBILITY_ENABLED=true", "DD_SERVICE=fallback",
				"DD_EXPERIMENTAL_PROPAGATE_PROCESS_TAGS_ENABLED=false", // read before main
				"OTEL_TRACES_EXPORTER=none", "OTEL_SERVICE_NAME=wrong",
			}, test.variables...)
			h, err := host.New(host.Config{
				Plugins: "datadog=" + os.Args[0], Environ: environ, AllowWritable: true, BatchAge: time.Hour, BatchSpans: spans,
				ExportTimeout: 2 * time.Minute, MaxAge: 10 * time.Minute, // with -race, on a busy machine, a batch takes seconds
				StartTimeout: 2 * time.Minute,
				PluginEnv:    map[string][]string{"datadog": {envPlugin, "GOCOVERDIR", "GORACE", "OTEL_TRACES_EXPORTER", "OTEL_SERVICE_NAME"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h), sdktrace.WithResource(resource.Empty()))
			for range spans {
				_, span := provider.Tracer("t").Start(t.Context(), "work", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer))
				span.End()
			}
			if err := h.ForceFlush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := h.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			x := h.Stats().Exporters[0]
			ids, _ := a.received()
			slices.Sort(ids)
			if n := len(slices.Compact(ids)); n != len(ids) || uint64(n) != x.Delivered || n < test.delivered ||
				x.Delivered+x.Filtered["datadog.sampler"] != spans {
				t.Errorf("the agent has %d spans, %d of them distinct; %d are delivered, want %d or more; filtered are %v",
					len(ids), n, x.Delivered, test.delivered, x.Filtered)
			}
			if a.hits != spans {
				t.Errorf("statistics count %d spans, want %d", a.hits, spans)
			}
			if a.asked("/telemetry/") != test.telemetry {
				t.Errorf("telemetry was sent: %v, want %v", !test.telemetry, test.telemetry)
			}
			for _, key := range []string{"_dd.tags.process", "_dd.base_service"} {
				if value, there := a.meta[key]; there {
					t.Errorf("a span has %s=%s, which is the plugin's", key, value)
				}
			}
			if err := h.Stats().Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPinnedUnderLockdown: the running binary is a sealed copy in memory, and it gets no
// variable that is not granted.
func TestPinnedUnderLockdown(t *testing.T) {
	a := startAgent(t)
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	var log testplugin.Log
	h, err := host.New(host.Config{
		Plugins: fmt.Sprintf("datadog=%s@sha256:%x", path, hash.Sum(nil)), Lockdown: true, BatchAge: time.Hour,
		StartTimeout: time.Minute,
		Environ: []string{
			envPlugin + "=1", "GOCOVERDIR=" + t.TempDir(), "GORACE=atexit_sleep_ms=0",
			"DD_TRACE_AGENT_URL=" + a.URL, "DD_ENV=granted", "DD_VERSION=withheld",
		},
		PluginEnv: map[string][]string{"datadog": {envPlugin, "GOCOVERDIR", "GORACE", "DD_TRACE_AGENT_URL", "DD_ENV"}},
	}, host.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h), sdktrace.WithResource(resource.Empty()))
	_, span := provider.Tracer("t").Start(t.Context(), "work")
	span.End()
	if err := h.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", h.Stats().Exporters[0].PID)); err != nil || !strings.HasPrefix(exe, "/memfd:") {
			t.Errorf("it runs from %q, %v, want memory", exe, err)
		}
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a.meta["env"] != "granted" || a.meta["version"] != "" {
		t.Errorf("env is %q, version is %q", a.meta["env"], a.meta["version"])
	}
	if text := log.String(); !strings.Contains(text, "plugin is ready") {
		t.Errorf("log:\n%s", text)
	}
}

func TestDescription(t *testing.T) {
	cmd := exec.Command(os.Args[0], "--describe")
	cmd.Env = []string{envPlugin + "=1", "GOCOVERDIR=" + t.TempDir(), "GORACE=atexit_sleep_ms=0"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name": "datadog"`, `"DD_*"`, `"OTEL_EXPORTER_OTLP_ENDPOINT"`, `"env_at_start": true`, `"SERVE_RAY_CONTEXT"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("description lacks %s:\n%s", want, out)
		}
	}
}
