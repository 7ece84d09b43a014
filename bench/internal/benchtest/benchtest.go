// Package benchtest lets a test binary run as the child processes and the plugins of
// the benchmark.
package benchtest

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/relay"
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
	{Name: "benchprocessor", Processors: []pluginsdk.NewProcessor{pluginsdk.EachSpan("edit", func(span pluginsdk.Span) error {
		span.SetAttributes(attribute.String("team", "search"))
		return nil
	})}},
}

const relayProgram = "servetrace"

// runRelay is "servetrace relay --socket SOCKET".
func runRelay(socket string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := host.ConfigFromEnv(os.Getenv) //nolint:forbidigo // the process is a command
	if err != nil {
		return err
	}
	cfg.Environ = os.Environ() //nolint:forbidigo // the same
	h, err := host.New(cfg)
	if err != nil {
		return err
	}
	s, err := relay.New(relay.Config{Socket: socket}, h, slog.Default())
	if err != nil {
		return err
	}
	if err := errors.Join(s.Start(ctx), h.Start(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	ctx = context.WithoutCancel(ctx)
	return errors.Join(s.Shutdown(ctx), h.Shutdown(ctx), s.Close(ctx))
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
	if program == relayProgram {
		if err := runRelay(os.Args[3]); err != nil {
			slog.Error(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(roles) > 0 {
		child.Main(roles...)
	}
	// A process under the race detector pauses for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // it only takes longer
}

// Bin returns a temporary folder with the plugins and the relay, which are links to this
// binary. Its path is short enough for sockets.
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
	links := []string{relayProgram}
	for _, p := range plugins {
		links = append(links, filepath.Join("plugins", p.Name))
	}
	for _, link := range links {
		if err := os.Symlink(self, filepath.Join(dir, link)); err != nil {
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
