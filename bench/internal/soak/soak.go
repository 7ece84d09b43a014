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
	// Length is for how long spans are made, Rate how many a second. The sink is
	// down for the middle 80 % of it.
	Length time.Duration
	Rate   int
	// Bin is the folder with the plugins.
	Bin string
	// Sink is one of its own: nobody else may send to it.
	Sink *sink.Sink
	Log  *slog.Logger
}

// The phases of a soak.
const (
	phaseBefore = "before"
	phaseDown   = "down"
	phaseAfter  = "after"
)

// soakSample is what is read again and again.
type soakSample struct {
	At    time.Duration `json:"at_ns"`
	Phase string        `json:"phase"`
	// In bytes. Heap is what lived on the heap of the host's process when it was
	// collected last; Queue what its books say of spans that wait. Anonymous memory of the plugin is its heap and its stacks.
	HostRSS    int64  `json:"host_rss"`
	Heap       int64  `json:"host_heap"`
	Queue      int64  `json:"queue"`
	PluginRSS  int64  `json:"plugin_rss"`
	PluginAnon int64  `json:"plugin_anonymous"`
	Waiting    uint64 `json:"waiting_spans"`
	Goroutines int    `json:"goroutines"`
}

// Result is what came of it.
type Result struct {
	Soak    string       `json:"soak"`
	Samples []soakSample `json:"samples"`
	// Books are those at the end, when the host had shut down, and Taken the spans
	// that the sink counted.
	Books host.Stats `json:"books"`
	Taken uint64     `json:"taken"`
	// Recovered is how long after the sink was up again the first span was
	// delivered; zero: none was.
	Recovered time.Duration `json:"recovered_ns"`
	Findings  []Finding     `json:"findings"`
}

// soakHost is a host under load.
type soakHost struct {
	Soak
	host     *host.Host
	provider *sdktrace.TracerProvider
	began    time.Time
	result   Result
}

// Run makes a soak. The error is that it could not be made; what it found is in
// the result.
func (s Soak) Run(ctx context.Context) (_ *Result, err error) {
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
	run := &soakHost{Soak: s, host: h, began: time.Now(), provider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "soak"))))}
	run.result.Soak = fmt.Sprintf("%s at %d spans/s, the sink down for 80 %% of it", s.Length, s.Rate)
	failed := run.phases(ctx)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := errors.Join(failed, run.provider.Shutdown(stop)); err != nil {
		return nil, err
	}
	run.result.Books = h.Stats()
	counts, err := s.Sink.Counts(ctx)
	run.result.Taken = counts.Spans
	run.result.judge()
	return &run.result, err
}

// phases has spans made and samples taken while the sink goes and comes.
func (r *soakHost) phases(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var producing sync.WaitGroup
	producing.Go(func() { r.produce(ctx) })
	defer producing.Wait()
	defer cancel()
	if err := r.sample(ctx, phaseBefore, r.Length/10); err != nil {
		return err
	}
	if err := r.Sink.SetOpen(ctx, false); err != nil {
		return err
	}
	r.Log.Info("the sink is down")
	if err := r.sample(ctx, phaseDown, r.Length*8/10); err != nil {
		return err
	}
	before := r.host.Stats().Exporters[0].Delivered
	if err := r.Sink.SetOpen(ctx, true); err != nil {
		return err
	}
	r.Log.Info("the sink is up again")
	up := time.Now()
	return errors.Join(r.recover(ctx, up, before), r.sample(ctx, phaseAfter, r.Length/10))
}

// recoverTime is longer than the longest pause between tries.
const recoverTime = 45 * time.Second

func (r *soakHost) recover(ctx context.Context, up time.Time, before uint64) error {
	for time.Since(up) < recoverTime {
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

// produce makes spans at the rate until ctx ends, in a burst each 10 ms.
func (r *soakHost) produce(ctx context.Context) {
	tracer := r.provider.Tracer("soak")
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	began, made := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		for due := int(time.Since(began).Seconds() * float64(r.Rate)); made < due; made++ {
			_, span := tracer.Start(context.Background(), "proxy_http_request GET /api/{id}", trace.WithSpanKind(trace.SpanKindServer))
			span.SetAttributes(attribute.String("http.request.method", "GET"), attribute.String("http.route", "/api/{id}"),
				attribute.String("serve.request_id", "1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8"), attribute.Int("n", made))
			span.End()
		}
	}
}

// samples is how many there are of a soak, and sampleEvery the least time
// between two.
const (
	samples     = 600
	sampleEvery = 200 * time.Millisecond
)

// sample reads until length is over.
func (r *soakHost) sample(ctx context.Context, phase string, length time.Duration) error {
	every := max(sampleEvery, r.Length/samples)
	said := time.Now()
	for end := time.Now().Add(length); time.Now().Before(end); {
		if err := pause(ctx, every); err != nil {
			return err
		}
		s, err := r.read(phase)
		if err != nil {
			return err
		}
		r.result.Samples = append(r.result.Samples, s)
		if time.Since(said) > time.Minute {
			said = time.Now()
			r.Log.Info("soaking", "at", s.At.Round(time.Second), "phase", phase, "host_rss", s.HostRSS, "heap", s.Heap, "queue", s.Queue, "plugin_rss", s.PluginRSS, "waiting", s.Waiting)
		}
	}
	return nil
}

func (r *soakHost) read(phase string) (soakSample, error) {
	stats := r.host.Stats()
	if err := stats.Check(); err != nil {
		return soakSample{}, fmt.Errorf("books: %w", err)
	}
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	s := soakSample{
		At: time.Since(r.began), Phase: phase, Heap: int64(heap[0].Value.Uint64()), Queue: stats.Bytes, //nolint:gosec // no heap is that large
		Waiting: stats.Exporters[0].Waiting, Goroutines: runtime.NumGoroutine(),
	}
	var err1, err2, err3 error
	s.HostRSS, err1 = measure.RSS(os.Getpid())
	if pid := stats.Exporters[0].PID; pid != 0 {
		s.PluginRSS, err2 = measure.RSS(pid)
		s.PluginAnon, err3 = measure.AnonymousRSS(pid)
	}
	return s, errors.Join(err1, err2, err3)
}

// Write puts the findings into w as text.
func (r *Result) Write(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "# Soak: %s\n\n| | | |\n| --- | --- | --- |\n", r.Soak); err != nil {
		return err
	}
	for _, f := range r.Findings {
		verdict := "ok"
		if !f.OK {
			verdict = "**FAILED**"
		}
		if _, err := fmt.Fprintf(w, "| %s | %s | %s |\n", f.What, f.Found, verdict); err != nil {
			return err
		}
	}
	return nil
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
