// Package benchtest lets a test binary run as the child processes and the plugins of
// the benchmark.
package benchtest

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/testplugin"
)

// benchPlugin never answers, or discards.
func benchPlugin(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	hung := s.Getenv("BENCH_PLUGIN") == "hung"
	return pluginsdk.ExportFunc(func(ctx context.Context, _ *pluginsdk.Batch) error {
		if hung {
			<-ctx.Done()
		}
		return context.Cause(ctx)
	}), nil
}

var plugins = []pluginsdk.Spec{
	{Name: "otlp", Env: otlpexporter.EnvPatterns(), Exporter: otlpexporter.New},
	{Name: "thirdparty", Env: otlpexporter.EnvPatterns(), Exporter: otlpexporter.New},
	{Name: "benchplugin", Env: []string{"BENCH_PLUGIN"}, Exporter: benchPlugin},
	{Name: "benchprocessor", Processors: []pluginsdk.NewProcessor{pluginsdk.EachSpan("edit", func(span pluginsdk.Span) error {
		span.SetAttributes(attribute.String("team", "search"))
		return nil
	})}},
}

// Main runs the plugin with the name of the binary, or a child in one of the roles.
// Otherwise it returns.
func Main(roles ...map[string]child.Role) {
	program := filepath.Base(os.Args[0])
	for _, p := range plugins {
		if program == p.Name {
			testplugin.Hurry()
			pluginsdk.Main(p)
		}
	}
	if len(roles) > 0 {
		child.Main(roles...)
	}
	// A process under the race detector pauses for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // it only takes longer
}

// Bin returns a temporary folder with the plugins, which are links to this binary. Its path
// is short enough for sockets.
func Bin(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "plugins"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range plugins {
		if err := os.Symlink(self, filepath.Join(dir, "plugins", p.Name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// CheckClaims checks that each claim can be computed from the metrics of its rows, and
// each gated claim from the metrics of quick rows, because bench gate runs only these.
// The first row of a shape is the cheapest.
func CheckClaims(t *testing.T, shapes []suite.Shape, metrics ...string) {
	t.Helper()
	for _, s := range shapes {
		if len(s.Rows) == 0 || s.Repeats == 0 || len(s.Claims) == 0 {
			t.Errorf("shape %q is incomplete", s.Name)
		}
		for _, c := range s.Claims {
			rows := s.Rows
			if c.Gate > 0 {
				rows = s.Quick
			}
			round := suite.Round{}
			for i, row := range rows {
				round[row] = suite.Sample{}
				for _, metric := range metrics {
					round[row][metric] = float64(1 + i)
				}
			}
			if math.IsNaN(c.Value(round)) {
				t.Errorf("claim %q of %q cannot be computed from %q", c.Name, s.Name, rows)
			}
		}
	}
}
