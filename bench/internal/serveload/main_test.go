package serveload

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestMain runs the child processes of a case, and plugins by the name of the binary.
func TestMain(m *testing.M) {
	hung := func(ctx context.Context, _ *pluginsdk.Batch) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	switch filepath.Base(os.Args[0]) {
	case "otlp":
		testplugin.Hurry()
		pluginsdk.Main(pluginsdk.Spec{Name: "otlp", Env: otlpexporter.EnvPatterns(), Exporter: otlpexporter.New})
	case "hung":
		testplugin.Hurry()
		pluginsdk.Main(pluginsdk.Spec{Name: "hung", Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(hung), nil
		}})
	}
	child.Main(sink.Roles, Roles)
	// A process under the race detector pauses for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // it only takes longer
	os.Exit(m.Run())
}
