// Package benchtest lets a test binary run as the child processes and the plugins of
// the benchmark.
package benchtest

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/testplugin"
)

func hung(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
	return pluginsdk.ExportFunc(func(ctx context.Context, _ *pluginsdk.Batch) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}), nil
}

var plugins = []pluginsdk.Spec{
	{Name: "otlp", Env: otlpexporter.EnvPatterns(), Exporter: otlpexporter.New},
	{Name: "thirdparty", Env: otlpexporter.EnvPatterns(), Exporter: otlpexporter.New},
	{Name: "benchplugin", Exporter: hung},
}

// Main runs the plugin with the name of the binary, or a child in one of the roles.
// Otherwise it returns.
func Main(roles ...map[string]child.Role) {
	for _, p := range plugins {
		if filepath.Base(os.Args[0]) == p.Name {
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

// Bin returns a temporary folder with the plugins, which are links to this binary. Its path is short enough for sockets.
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
