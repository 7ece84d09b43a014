package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// Plugins crash under load while requests ask for the status. Each answer is a snapshot
// in which the accounting balances.
func TestScrapesWhilePluginsCrashConcurrentSafe(t *testing.T) {
	log := &testplugin.Log{}
	h, err := host.New(host.Config{
		Plugins: fmt.Sprintf("crash=%s,good=%s", escape(testplugin.Install(t, "crash:3")), testplugin.Install(t, "record")),
		Environ: []string{"PATH=" + os.Getenv("PATH")}, BatchAge: 5 * time.Millisecond, BatchSpans: 16, StopTimeout: time.Second,
	}, host.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t, h.Stats)
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h)).Tracer("test")
	all.Go(func() {
		for ctx.Err() == nil {
			_, span := tracer.Start(context.Background(), "span")
			span.End()
			<-time.After(50 * time.Microsecond) // some 10,000 a second, below the capacity of a core
		}
	})
	for _, path := range []string{".json", "/../../metrics"} {
		url := strings.Replace(s.URL()+path, "/-/tracing/../../", "/", 1)
		all.Go(func() {
			for ctx.Err() == nil {
				balanced(t, url)
			}
		})
	}
	testplugin.WaitFor(t, "a plugin that crashed twice, beside one that delivers", func() bool {
		x := h.Stats().Exporters
		return x[0].Crashes >= 2 && x[1].Delivered > 0
	})
	cancel()
	all.Wait()
	_ = h.Shutdown(context.Background()) // the ledgers have its losses
	balanced(t, s.URL()+".json")
	var status Status
	_, body := fetch(t, s.URL()+".json")
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		t.Fatal(err)
	}
	for _, p := range status.Plugins {
		if p.State != "stopped" || p.Spans.Waiting != 0 {
			t.Errorf("after the host's end plugin %q is %s with %d spans waiting", p.Name, p.State, p.Spans.Waiting)
		}
	}
	if t.Failed() {
		t.Log(log)
	}
}

func escape(path string) string { return strings.ReplaceAll(path, "=", "%3D") }

// balanced requests one answer and adds up its accounting.
func balanced(t *testing.T, url string) {
	t.Helper()
	status, body := fetch(t, url)
	if status != http.StatusOK {
		t.Errorf("%s: %d %s", url, status, body)
		return
	}
	if strings.HasSuffix(url, ".json") {
		var got Status
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.BooksError != "" {
			t.Errorf("%v, %s", err, got.BooksError)
		}
		return
	}
	accepted, sum := map[string]float64{}, map[string]float64{}
	for line := range strings.Lines(body) {
		var value float64
		family, rest, _ := strings.Cut(line, "{")
		labels, number, _ := strings.Cut(rest, "} ")
		_, plugin, _ := strings.Cut(labels, `plugin="`)
		plugin, _, _ = strings.Cut(plugin, `"`)
		_, _ = fmt.Sscan(number, &value)
		switch strings.TrimPrefix(family, "servetrace_plugin_spans_") {
		case "accepted_total":
			accepted[plugin] = value
		case "delivered_total", "rejected_total", "filtered_total", "dropped_total", "waiting":
			sum[plugin] += value
		}
	}
	if len(accepted) != 2 {
		t.Errorf("%d plugins in the metrics, want 2:\n%s", len(accepted), body)
	}
	for plugin, want := range accepted {
		if sum[plugin] != want {
			t.Errorf("plugin %q: %v spans accepted, %v accounted for", plugin, want, sum[plugin])
		}
	}
}
