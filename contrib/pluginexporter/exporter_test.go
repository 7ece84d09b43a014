package pluginexporter_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/servetrace/servetrace/contrib/pluginexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// TestMain lets this test binary also be the plugins "names" and "shout", under their
// names.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "names":
		pluginsdk.Main(pluginsdk.Spec{Name: "names", Env: []string{"NAMES_EXTRA"}, Exporter: newNames})
	case "shout":
		pluginsdk.Main(pluginsdk.Spec{Name: "shout", Processors: []pluginsdk.NewProcessor{
			pluginsdk.EachSpan("shout", func(span pluginsdk.Span) error {
				span.SetName(strings.ToUpper(span.Name()))
				return nil
			}),
		}})
	}
	os.Exit(m.Run())
}

// newNames returns an exporter that appends the names of spans to a file. It refuses a
// batch with a span "bad".
func newNames(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	var cfg struct {
		Path string `yaml:"path"`
	}
	if err := s.DecodeConfig(&cfg); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(cfg.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
		for span := range b.Spans() {
			if span.Name() == "bad" {
				return pluginsdk.Permanent(errors.New("bad span"))
			}
			if _, err := file.WriteString(span.Name() + s.Getenv("NAMES_EXTRA") + "\n"); err != nil {
				return err
			}
		}
		return nil
	}), err
}

// link returns the path of a plugin in a folder of the test.
func link(t *testing.T, name string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(exe, plugin); err != nil {
		t.Fatal(err)
	}
	return plugin
}

// configuration returns the configuration that the Collector would read.
func configuration(t *testing.T, values map[string]any) (component.Config, error) {
	t.Helper()
	cfg := pluginexporter.NewFactory().CreateDefaultConfig()
	if err := confmap.NewFromStringMap(values).Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

// start starts the exporter, and returns it and a reader of its metrics.
func start(t *testing.T, values map[string]any) (exporter.Traces, *sdkmetric.ManualReader) {
	t.Helper()
	cfg, err := configuration(t, values)
	if err != nil {
		t.Fatal(err)
	}
	reader := sdkmetric.NewManualReader()
	set := exportertest.NewNopSettings(component.MustNewType(pluginexporter.Type))
	set.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	x, err := pluginexporter.NewFactory().CreateTraces(t.Context(), set, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Shutdown(context.Background()) })
	return x, reader
}

func spans(names ...string) ptrace.Traces {
	td := ptrace.NewTraces()
	list := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, name := range names {
		list.AppendEmpty().SetName(name)
	}
	return td
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// counted returns the value of the metric of spans for an outcome.
func counted(t *testing.T, reader *sdkmetric.ManualReader, outcome string) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "servetraceplugin_spans" {
				continue
			}
			for _, point := range sum.DataPoints {
				if value, _ := point.Attributes.Value("outcome"); value.AsString() == outcome {
					n += point.Value
				}
			}
		}
	}
	return n
}

func TestWaitForResult(t *testing.T) {
	t.Setenv("NAMES_EXTRA", "!")
	out := filepath.Join(t.TempDir(), "out")
	x, reader := start(t, map[string]any{
		"exporter_plugin": link(t, "names"),
		"plugins":         map[string]any{"names": map[string]any{"config": map[string]any{"path": out}}},
		"wait_for_result": true,
		"start_timeout":   "1m",
		"stop_timeout":    "1m",
	})
	if err := x.ConsumeTraces(t.Context(), spans("a", "b")); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, out); !slices.Equal(got, []string{"a!", "b!"}) {
		t.Errorf("the plugin has %q", got)
	}
	if err := x.ConsumeTraces(t.Context(), spans("bad")); !consumererror.IsPermanent(err) {
		t.Errorf("a batch that the plugin refuses: %v, want a permanent error", err)
	}
	if delivered, rejected := counted(t, reader, "delivered"), counted(t, reader, "rejected"); delivered != 2 || rejected != 1 {
		t.Errorf("the metric counts %d delivered and %d rejected spans, want 2 and 1", delivered, rejected)
	}
}

// TestProcessorPlugins: one processor in front of all plugins, and one of one plugin alone.
func TestProcessorPlugins(t *testing.T) {
	folder, shout := t.TempDir(), link(t, "shout")
	one, two := filepath.Join(folder, "one"), filepath.Join(folder, "two")
	names := link(t, "names")
	writing := func(path string) map[string]any { return map[string]any{"config": map[string]any{"path": path}} }
	second := writing(two)
	second["processors"] = []any{"again=" + shout}
	x, reader := start(t, map[string]any{
		"exporter_plugin":  []any{"one=" + names, "two=" + names},
		"processor_plugin": []any{shout},
		"plugins":          map[string]any{"one": writing(one), "two": second, "again": map[string]any{"fail": "open"}},
		"wait_for_result":  true,
		"start_timeout":    "1m",
		"stop_timeout":     "1m",
	})
	if err := x.ConsumeTraces(t.Context(), spans("a", "b")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{one, two} {
		if got := lines(t, path); !slices.Equal(got, []string{"A", "B"}) {
			t.Errorf("%s has %q", path, got)
		}
	}
	if passed, delivered := counted(t, reader, "passed"), counted(t, reader, "delivered"); passed != 4 || delivered != 4 {
		t.Errorf("the metric counts %d passed and %d delivered spans, want 4 and 4", passed, delivered)
	}
}

// Without wait_for_result the host has the spans, and Shutdown delivers them.
func TestShutdownDelivers(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	x, _ := start(t, map[string]any{
		"exporter_plugin": []any{link(t, "names")},
		"plugins":         map[string]any{"names": map[string]any{"config": map[string]any{"path": out}}},
		"start_timeout":   "1m",
		"stop_timeout":    "1m",
	})
	for range 100 {
		if err := x.ConsumeTraces(t.Context(), spans("a", "b")); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, out); len(got) != 200 {
		t.Errorf("the plugin has %d spans, want 200", len(got))
	}
}

// A host without room leaves the batch to its sender.
func TestFullHostRefuses(t *testing.T) {
	x, _ := start(t, map[string]any{"exporter_plugin": "/nowhere/plugin", "queue_bytes": 1 << 20, "stop_timeout": "1ms"})
	big := spans(slices.Repeat([]string{strings.Repeat("x", 1000)}, 300)...)
	var err error
	for range 10 {
		if err = x.ConsumeTraces(t.Context(), big); err != nil {
			break
		}
	}
	if err == nil || consumererror.IsPermanent(err) || !strings.HasPrefix(err.Error(), "Throttle (1s)") {
		t.Errorf("a full host answers %v, want an error for now", err)
	}
}

func TestConfiguration(t *testing.T) {
	t.Setenv("SERVE_TRACING_EXPORTER_PLUGIN", "")
	for text, values := range map[string]map[string]any{
		"exporter_plugin: is not set":              {},
		"exporter_plugin: 5: want a text":          {"exporter_plugin": 5},
		"queue_byte: unknown key":                  {"exporter_plugin": "a", "queue_byte": "64MiB"},
		"processor_plugin: true: want a text":      {"exporter_plugin": "a", "processor_plugin": true},
		"max_age: []: want a single value":         {"exporter_plugin": "a", "max_age": []any{}},
		`SERVE_TRACING_MAX_AGE="soon"`:             {"exporter_plugin": "a", "max_age": "soon"},
		"'plugins[a]' has invalid keys: configure": {"exporter_plugin": "a", "plugins": map[string]any{"a": map[string]any{"configure": 5}}},
	} {
		if _, err := configuration(t, values); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: got %v, want %q", values, err, text)
		}
	}
	t.Setenv("SERVE_TRACING_EXPORTER_PLUGIN", "a")
	if _, err := configuration(t, map[string]any{"max_age": "2m", "batch_spans": 100, "lockdown": false, "plugin_watch": "1s"}); err != nil {
		t.Errorf("the list of the environment: %v", err)
	}
}
