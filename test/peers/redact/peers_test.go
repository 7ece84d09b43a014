package redact

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/peers/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is what the host logs, and through it the plugin.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// own are secrets of the plugin's configuration.
const (
	ofHeader = "hdr-5f1c9b7e0a2d4466"
	ofKey    = "0123key-89ab4cdef012345678"
	ofValue  = "doc-77aa01f3c9e24d58"
)

// running is a host with one plugin.
type running struct {
	*host.Host
	t       *testing.T
	log     *log
	crashes string
}

// start starts a host with a plugin of bin/ and a document.
func start(t *testing.T, plugin, document string, environ ...string) *running {
	t.Helper()
	r := &running{t: t, log: &log{}, crashes: filepath.Join(t.TempDir(), "crashes")}
	h, err := host.New(host.Config{
		Plugins: "p=" + peer.Plugin(t, plugin), CrashDir: r.crashes, AllowWritable: true,
		PluginConfigs: map[string]host.PluginConfig{"p": {Document: []byte(document)}},
		Environ:       append([]string{"PATH=" + os.Getenv("PATH"), "DOCUMENT_VALUE=" + ofValue}, environ...),
	}, host.WithLogger(slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = h
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.Shutdown(context.WithoutCancel(t.Context())) // the accounting has the lost spans
		if t.Failed() {
			t.Logf("the host's log:\n%s", r.log)
		}
	})
	return r
}

// waitFor asks until something is so, for a minute.
func (r *running) waitFor(what string, so func() bool) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !so(); <-tick.C {
		if time.Now().After(end) {
			r.t.Fatalf("no sign of %s within a minute: %+v", what, r.stats())
		}
	}
}

func (r *running) stats() host.ExporterStats { return r.Stats().Exporters[0] }

// send sends spans, and waits until the plugin has answered for all of them.
func (r *running) send(all []planted) (filtered uint64) {
	r.t.Helper()
	for _, p := range all {
		r.OnEnd(p.span)
	}
	r.waitFor("an answer for all spans", func() bool {
		b := r.stats()
		return b.Accepted == uint64(len(all)) && b.Waiting == 0 && b.InFlight == 0
	})
	b := r.stats()
	if len(b.Rejected)+len(b.Dropped) > 0 {
		r.t.Errorf("rejected %v, dropped %v: %s", b.Rejected, b.Dropped, b.LastError)
	}
	for _, n := range b.Filtered {
		filtered += n
	}
	return filtered
}

// keepsItsSecrets looks for the plugin's own in all that the host shows, the
// report of a crash too.
func (r *running) keepsItsSecrets() {
	r.t.Helper()
	pid := r.stats().PID
	if err := syscall.Kill(pid, syscall.SIGABRT); err != nil {
		r.t.Fatal(err)
	}
	report := ""
	r.waitFor("a crash report", func() bool {
		report = ""
		_ = filepath.WalkDir(r.crashes, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				data, _ := os.ReadFile(name) // looked at again
				report += string(data)
			}
			return nil
		})
		return strings.Contains(report, "SIGABRT")
	})
	texts := map[string]string{"log": r.log.String(), "crash report": report}
	for _, path := range []string{"/-/tracing", "/-/tracing.json", "/metrics"} {
		answer := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodGet, "http://localhost"+path, http.NoBody)
		admin.Handler(r.Stats).ServeHTTP(answer, request)
		if answer.Code != http.StatusOK {
			r.t.Errorf("%s answers %d", path, answer.Code)
		}
		texts[path] = answer.Body.String()
	}
	for where, text := range texts {
		for _, secret := range []string{ofHeader, ofKey, ofValue} {
			if strings.Contains(text, secret) {
				r.t.Errorf("the %s shows %s", where, secret)
			}
		}
	}
}

const (
	plain    = "exporter: {%}\n"
	redacted = "processors: [redact: {}]\n" + plain
)

// TestCollectorGetsNoSecret: none of any kind from any field, and without
// "redact" all of them.
func TestCollectorGetsNoSecret(t *testing.T) {
	for name, document := range map[string]string{"redact": redacted, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			c := peer.StartCollector(t)
			r := start(t, "otlp", strings.Replace(document, "%", `headers: {x-doc: "${env:DOCUMENT_VALUE}"}`, 1),
				"OTEL_EXPORTER_OTLP_ENDPOINT="+c.HTTP(), "OTEL_EXPORTER_OTLP_HEADERS=x-key="+ofHeader)
			all := plant(t)
			filtered := r.send(all)
			c.WaitSpans(len(all) - int(filtered))
			raw := c.Raw()
			for _, p := range all {
				if there := bytes.Contains(raw, []byte(p.marker)); there != (name == "plain") {
					t.Errorf("%s: the Collector has it: %v", p.what, there)
				}
			}
			if filtered != 0 {
				t.Errorf("%d spans are filtered, want none", filtered)
			}
			r.keepsItsSecrets()
		})
	}
}

// TestDatadogAgentGetsNoSecret: likewise in both modes. Datadog has no place for
// some fields, and some names are cut: of the rest a token is there without
// "redact".
func TestDatadogAgentGetsNoSecret(t *testing.T) {
	for name, mode := range map[string]string{"redact": "agent", "redact, by OTLP": "otlp", "plain": "agent"} {
		t.Run(name, func(t *testing.T) {
			a := peer.StartDatadogAgent(t)
			document := redacted
			if name == "plain" {
				document = plain
			}
			where := "DD_TRACE_AGENT_URL=" + a.URL()
			if mode == "otlp" {
				where = "OTEL_EXPORTER_OTLP_ENDPOINT=" + a.OTLPHTTP()
			}
			r := start(t, "datadog", strings.Replace(document, "%", "", 1), where, "SERVE_DATADOG_MODE="+mode, "DD_API_KEY="+ofKey)
			all := plant(t)
			filtered := r.send(all)
			a.WaitSpans(len(all) - int(filtered))
			raw := a.Raw()
			for _, p := range all {
				there := bytes.Contains(raw, []byte(p.marker))
				if name != "plain" && there {
					t.Errorf("%s: the agent has it", p.what)
				}
				if sure := strings.HasPrefix(p.what, "token in ") && strings.Contains("value list event's value link's value status resource telling key", p.field); name == "plain" && sure && !there {
					t.Errorf("%s: without redact the agent does not have it: the test shows nothing", p.what)
				}
			}
			r.keepsItsSecrets()
		})
	}
}
