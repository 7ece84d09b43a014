// Package soak watches memory while the sink is down: it makes spans at a steady
// rate with our host, samples the memory, and compares it with bounds at the end.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/host"
)

// Soak is the configuration of a soak.
type Soak struct {
	// Length is the time during which spans are made, Rate their number in a second.
	// The sink is down for the middle 80 % of it.
	Length time.Duration
	Rate   int
	// Bin is the folder with the plugins.
	Bin string
	// Sink must get spans from the soak alone.
	Sink *sink.Sink
	Log  *slog.Logger
}

// sample is one reading of memory, in bytes.
type sample struct {
	At   time.Duration `json:"at_ns"`
	Down bool          `json:"down"` // the sink
	// Heap is the live heap of the host's process at the last collection, and Queue
	// the size of waiting spans in the host's account. PluginAnon is the plugin's heap
	// and stacks.
	HostRSS    int64 `json:"host_rss"`
	Heap       int64 `json:"host_heap"`
	Queue      int64 `json:"queue"`
	PluginRSS  int64 `json:"plugin_rss"`
	PluginAnon int64 `json:"plugin_anonymous"`
	Goroutines int64 `json:"goroutines"`
}

// Result is the result of a soak.
type Result struct {
	Soak    string   `json:"soak"`
	Samples []sample `json:"samples"`
	// Account is the host's span account after its shutdown, and Taken the sink's
	// count.
	Account host.Stats `json:"account"`
	Taken   uint64     `json:"taken"`
	// Recovered is the time from the sink's return to the next delivered span. It is
	// zero if no span was delivered.
	Recovered time.Duration `json:"recovered_ns"`
	Findings  []Finding     `json:"findings"`
}

// run is a soak in progress.
type run struct {
	Soak
	host     *host.Host
	provider *sdktrace.TracerProvider
	began    time.Time
	result   Result
}

// Run runs a soak. It returns an error only if there is no result.
func (s Soak) Run(ctx context.Context) (*Result, error) {
	h, err := host.New(host.Config{
		Plugins:       filepath.Join(s.Bin, "plugins", "otlp"),
		Environ:       []string{"PATH=/usr/bin:/bin", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + s.Sink.HTTP},
		AllowWritable: true,
	}, host.WithLogger(s.Log))
	if err != nil {
		return nil, err
	}
	if err := h.Start(ctx); err != nil {
		return nil, err
	}
	r := &run{Soak: s, host: h, began: time.Now(), provider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "soak"))))}
	r.result.Soak = fmt.Sprintf("%s at %d spans/s, the sink down for 80 %% of it", s.Length, s.Rate)
	failed := r.phases(ctx)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := errors.Join(failed, r.provider.Shutdown(stop)); err != nil {
		return nil, err
	}
	r.result.Account = h.Stats()
	r.result.Taken, err = s.Sink.Spans(ctx)
	r.result.judge()
	return &r.result, err
}

// phases makes spans and takes samples while the sink closes and opens.
func (r *run) phases(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var producing sync.WaitGroup
	producing.Go(func() { r.produce(ctx) })
	defer producing.Wait()
	defer cancel()
	if err := r.sample(ctx, false, r.Length/10); err != nil {
		return err
	}
	if err := r.Sink.SetOpen(ctx, false); err != nil {
		return err
	}
	r.Log.Info("the sink is down")
	if err := r.sample(ctx, true, r.Length*8/10); err != nil {
		return err
	}
	if err := r.recover(ctx); err != nil {
		return err
	}
	return r.sample(ctx, false, r.Length/10)
}

// recoverTime is longer than the longest pause between attempts.
const recoverTime = 45 * time.Second

// recover opens the sink, and waits for the next delivered span.
func (r *run) recover(ctx context.Context) error {
	before := r.host.Stats().Exporters[0].Delivered
	if err := r.Sink.SetOpen(ctx, true); err != nil {
		return err
	}
	r.Log.Info("the sink is up again")
	for up := time.Now(); time.Since(up) < recoverTime; {
		if r.host.Stats().Exporters[0].Delivered > before {
			r.result.Recovered = time.Since(up)
			r.Log.Info("spans are delivered again", "after", r.result.Recovered)
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// produce makes spans until ctx ends, in a burst each 10 ms.
func (r *run) produce(ctx context.Context) {
	tracer := r.provider.Tracer("soak")
	began, made := time.Now(), 0
	for pause(ctx, 10*time.Millisecond) == nil {
		for due := int(time.Since(began).Seconds() * float64(r.Rate)); made < due; made++ {
			_, span := tracer.Start(context.Background(), "proxy_http_request GET /api/{id}", trace.WithSpanKind(trace.SpanKindServer))
			span.SetAttributes(attribute.String("http.request.method", "GET"), attribute.String("http.route", "/api/{id}"),
				attribute.String("serve.request_id", "1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8"), attribute.Int("n", made))
			span.End()
		}
	}
}

// samples is the number of samples in a soak, unless sampleEvery bounds it.
const (
	samples     = 600
	sampleEvery = 200 * time.Millisecond
)

// sample takes samples for a time.
func (r *run) sample(ctx context.Context, down bool, length time.Duration) error {
	logged := time.Now()
	for end := time.Now().Add(length); time.Now().Before(end); {
		if err := pause(ctx, max(sampleEvery, r.Length/samples)); err != nil {
			return err
		}
		s, err := r.read(down)
		if err != nil {
			return err
		}
		r.result.Samples = append(r.result.Samples, s)
		if time.Since(logged) > time.Minute {
			logged = time.Now()
			r.Log.Info("soaking", "at", s.At.Round(time.Second), "down", down, "host_rss", s.HostRSS, "heap", s.Heap, "queue", s.Queue, "plugin_rss", s.PluginRSS)
		}
	}
	return nil
}

func (r *run) read(down bool) (sample, error) {
	stats := r.host.Stats()
	if err := stats.Check(); err != nil {
		return sample{}, fmt.Errorf("span account: %w", err)
	}
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	read := sample{
		At: time.Since(r.began), Down: down, Queue: stats.Bytes, Goroutines: int64(runtime.NumGoroutine()),
		Heap: int64(heap[0].Value.Uint64()), //nolint:gosec // no heap is as large
	}
	own, err := measure.Memory(os.Getpid())
	read.HostRSS = int64(own.VmRSS) //nolint:gosec // no process is as large
	if pid := stats.Exporters[0].PID; err == nil && pid != 0 {
		plugin, failed := measure.Memory(pid)
		read.PluginRSS, read.PluginAnon, err = int64(plugin.VmRSS), int64(plugin.RssAnon), failed //nolint:gosec // no process is as large
	}
	return read, err
}

// Write writes the findings as text.
func (r *Result) Write(w io.Writer) error {
	text := fmt.Sprintf("# Soak: %s\n\n| | | |\n| --- | --- | --- |\n", r.Soak)
	for _, f := range r.Findings {
		verdict := "ok"
		if !f.OK {
			verdict = "**FAILED**"
		}
		text += fmt.Sprintf("| %s | %s | %s |\n", f.Name, f.Found, verdict)
	}
	_, err := io.WriteString(w, text)
	return err
}

// pause waits for d, or returns the cause of ctx's end.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
