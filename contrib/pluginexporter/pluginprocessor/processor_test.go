package pluginprocessor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/contrib/pluginexporter/pluginprocessor"
	"github.com/servetrace/servetrace/pluginsdk"
)

// TestMain lets this test binary also be the plugin "suffix", under its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "suffix" {
		pluginsdk.Main(pluginsdk.Spec{Name: "suffix", Processors: []pluginsdk.NewProcessor{newSuffix}})
	}
	goleak.VerifyTestMain(m)
}

// newSuffix returns a processor that appends a text to the names of spans, drops spans
// "secret", and kills itself in its first process at a span "crash".
func newSuffix(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
	var cfg struct {
		Text    string `yaml:"text"`
		Crashed string `yaml:"crashed"` // a file that a crash leaves
	}
	if err := s.DecodeConfig(&cfg); err != nil {
		return nil, err
	}
	return pluginsdk.EachSpan("suffix", func(span pluginsdk.Span) error {
		switch span.Name() {
		case "secret":
			span.Drop()
		case "crash":
			if file, err := os.OpenFile(cfg.Crashed, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
				_ = file.Close()
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		span.SetName(span.Name() + cfg.Text)
		return nil
	})(ctx, s)
}

// rest is the rest of a pipeline. It returns the next of its answers, and no error after
// them.
type rest struct {
	mu      sync.Mutex
	answers []error
	names   []string
}

func (*rest) Capabilities() consumer.Capabilities { return consumer.Capabilities{MutatesData: true} }

func (r *rest) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answers) > 0 {
		err := r.answers[0]
		r.answers = r.answers[1:]
		return err
	}
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				r.names = append(r.names, span.Name())
				span.SetName("changed by the next processor")
			}
		}
	}
	return nil
}

// configuration returns the configuration that the Collector would read.
func configuration(values map[string]any) (component.Config, error) {
	cfg := pluginprocessor.NewFactory().CreateDefaultConfig()
	if err := confmap.NewFromStringMap(values).Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

// start starts a processor in front of the rest of a pipeline, and returns it and a reader
// of its metrics.
func start(t *testing.T, next *rest, values map[string]any) (processor.Traces, *sdkmetric.ManualReader) {
	t.Helper()
	cfg, err := configuration(values)
	if err != nil {
		t.Fatal(err)
	}
	reader := sdkmetric.NewManualReader()
	set := processortest.NewNopSettings(component.MustNewType(pluginprocessor.Type))
	set.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	p, err := pluginprocessor.NewFactory().CreateTraces(t.Context(), set, cfg, next)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := p.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	return p, reader
}

// withSuffixes returns settings with the plugin under two names.
func withSuffixes(t *testing.T) map[string]any {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	plugin := filepath.Join(folder, "suffix")
	if err := os.Symlink(exe, plugin); err != nil {
		t.Fatal(err)
	}
	config := func(text string) map[string]any {
		return map[string]any{"config": map[string]any{"text": text, "crashed": filepath.Join(folder, "crashed"+text)}}
	}
	return map[string]any{
		"processor_plugin": []any{"a=" + plugin, "b=" + plugin},
		"plugins":          map[string]any{"a": config("-a"), "b": config("-b")},
		"start_timeout":    "1m", "stop_timeout": "1m",
	}
}

func spans(names ...string) ptrace.Traces {
	td := ptrace.NewTraces()
	list := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, name := range names {
		list.AppendEmpty().SetName(name)
	}
	return td
}

// counted returns the values of the metric of spans, by plugin and outcome.
func counted(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "servetraceplugin_spans" {
				continue
			}
			for _, point := range sum.DataPoints {
				plugin, _ := point.Attributes.Value("plugin")
				outcome, _ := point.Attributes.Value("outcome")
				counts[plugin.AsString()+" "+outcome.AsString()] += point.Value
			}
		}
	}
	return counts
}

// TestPluginsInAPipeline: batches go through both plugins before the rest of the pipeline
// gets them, also while one of them crashes. The answers of the rest are those of the
// processor.
func TestPluginsInAPipeline(t *testing.T) {
	next := &rest{}
	p, reader := start(t, next, withSuffixes(t))
	batch := spans("x", "secret", "y")
	if err := p.ConsumeTraces(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if err := p.ConsumeTraces(t.Context(), spans("secret")); err != nil || batch.SpanCount() != 3 {
		t.Errorf("a batch without rest: %v; the first batch has %d spans, want 3", err, batch.SpanCount())
	}
	if err := p.ConsumeTraces(t.Context(), spans("crash")); err != nil {
		t.Errorf("a batch during a crash: %v", err)
	}
	next.mu.Lock()
	next.answers = []error{errors.New("back end is away"), consumererror.NewPermanent(errors.New("back end refuses"))}
	next.mu.Unlock()
	if err := p.ConsumeTraces(t.Context(), spans("refused")); !consumererror.IsPermanent(err) {
		t.Errorf("a batch that the rest refuses at the second call: %v, want a permanent error", err)
	}
	want := []string{"x-a-b", "y-a-b", "crash-a-b"}
	if !slices.Equal(next.names, want) {
		t.Errorf("the rest of the pipeline got %q, want %q", next.names, want)
	}
	counts := counted(t, reader)
	if got := fmt.Sprint(counts["a passed"], counts["a filtered"], counts["b passed"], counts["b filtered"]); got != "4 2 4 0" {
		t.Errorf("the metrics count %v", counts)
	}
	for key := range counts {
		if !strings.HasPrefix(key, "a ") && !strings.HasPrefix(key, "b ") {
			t.Errorf("the metrics count %s", key)
		}
	}
}

// TestConcurrentSafe: batches at a time.
func TestConcurrentSafe(t *testing.T) {
	next := &rest{}
	p, _ := start(t, next, withSuffixes(t))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for k := range 20 {
				if err := p.ConsumeTraces(t.Context(), spans(fmt.Sprint(i, "-", k))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	slices.Sort(next.names)
	if got := len(slices.Compact(next.names)); got != 160 {
		t.Errorf("the rest of the pipeline got %d spans, want 160", got)
	}
}

// TestDeadPlugin: without a plugin no span passes, and the sender keeps the batch.
func TestDeadPlugin(t *testing.T) {
	next := &rest{}
	p, _ := start(t, next, map[string]any{"processor_plugin": "/nowhere/plugin", "max_age": "300ms", "stop_timeout": "1s"})
	if err := p.ConsumeTraces(t.Context(), spans("x")); err == nil || consumererror.IsPermanent(err) || len(next.names) > 0 {
		t.Errorf("a batch without its plugin: %v, and %q have passed; want an error for now", err, next.names)
	}
}

func TestConfiguration(t *testing.T) {
	t.Setenv("SERVE_TRACING_EXPORTER_PLUGIN", "otlp")
	t.Setenv("SERVE_TRACING_EXPORTER_PROCESSORS", "otlp:sampler")
	for text, values := range map[string]map[string]any{
		"processor_plugin: is not set":                            {},
		"processor_plugin: 5: want a text":                        {"processor_plugin": 5},
		"exporter_plugin: unknown key: want processor_plugin, pl": {"processor_plugin": "a", "exporter_plugin": "b"},
		`plugins.a.fail: "ajar": want open or closed`:             {"processor_plugin": "a", "plugins": map[string]any{"a": map[string]any{"fail": "ajar"}}},
		`there is no plugin "a"`:                                  {"processor_plugin": "a", "plugins": map[string]any{"a": map[string]any{"processors": "b"}}},
	} {
		if _, err := configuration(values); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: got %v, want %q", values, err, text)
		}
	}
	t.Setenv("SERVE_TRACING_PROCESSOR_PLUGIN", "a")
	if _, err := configuration(map[string]any{"plugins": map[string]any{"a": map[string]any{"fail": "open"}}}); err != nil {
		t.Errorf("the list of the environment: %v", err)
	}
}
