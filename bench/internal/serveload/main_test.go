package serveload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestMain lets this test binary also be the processes that a case starts: as
// program bench, by their arguments, and as plugins, by their names.
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
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	var err error
	switch {
	case role == "sink":
		err = sink.Serve(context.Background(), os.Stdin, os.Stdout)
	case role == "child" && os.Args[2] == RoleServer:
		err = RunServer(context.Background(), os.Args[3:], os.Stdin, os.Stdout)
	case role == "child" && os.Args[2] == RoleLoad:
		err = RunLoad(context.Background(), os.Args[3:], os.Stdin, os.Stdout)
	default:
		// A process under the race detector pauses for a second at its end.
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // it only takes longer
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
