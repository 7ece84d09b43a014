package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/testplugin"
)

// ownPrefix marks links to the test binary that run as programs of this package's tests.
// test/testplugin has further programs.
const ownPrefix = "hosttest-"

// runAsOwn runs such a program and then does not return.
func runAsOwn() {
	mode, ok := strings.CutPrefix(filepath.Base(os.Args[0]), ownPrefix)
	if !ok {
		return
	}
	testplugin.Hurry()
	programs := map[string]func(){
		"config":    recordConfig,
		"wanting":   wantToken,
		"held":      holdCalls,
		"receiver":  runReceiver,
		"hungry":    hungryPlugin,
		"relay":     runRelay,
		"backend":   runBackEnd,
		"sender":    runSender,
		"tiny":      tinyLimits,
		"tracing":   tracePlugin,
		"spooling":  runSpooling,
		"processor": runProcessor,
		"bytes":     writeBytes,
	}
	programs[mode]()
	os.Exit(0)
}

// installOwn returns the path of an executable that runs as the program mode.
func installOwn(t *testing.T, mode string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), ownPrefix+mode)
	if err := os.Symlink(exe, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// recordConfig is a plugin that takes batches and writes down each document
// that it is configured with.
func recordConfig() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "config",
		Exporter: func(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
			if err := s.DecodeConfig(new(any)); err != nil {
				return nil, err
			}
			f, err := os.OpenFile(os.Args[0]+".configs", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			_, err = fmt.Fprintf(f, "%s\n", s.Config)
			return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), err
		},
	})
}

func configPlugin(t *testing.T) string { return installOwn(t, "config") }

// configsOf are the documents that the plugin at path has had.
func configsOf(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path + ".configs")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// wantToken is a plugin that reads a variable and does not declare it.
func wantToken() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "wanting",
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			if os.Getenv("ACME_TOKEN") == "" {
				return nil, errors.New("ACME_TOKEN: is not set")
			}
			return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), nil
		},
	})
}

// holdCalls is a plugin that reports a call by a file, and answers when the test has made
// another file. Then it records the batch.
func holdCalls() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "held",
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(ctx context.Context, b *pluginsdk.Batch) error {
				if err := os.WriteFile(os.Args[0]+".has", nil, 0o600); err != nil {
					return err
				}
				for !exists(os.Args[0] + ".go") {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(5 * time.Millisecond):
					}
				}
				var names []string
				for span := range b.Spans() {
					names = append(names, span.Name())
				}
				return writeRecord(names)
			}), nil
		},
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
