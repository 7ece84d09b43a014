package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/testplugin"
)

// This file has the hazards of docs/internals/hazards.md that have no better place.

// copyProgram replaces the file at path by a copy of the test binary with some more
// bytes. The name of the file is the mode.
func copyProgram(t *testing.T, path, more string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", append(program, more...), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// killAndAwait kills the plugin's process and waits until another is ready.
func (r *running) killAndAwait() {
	r.t.Helper()
	pid := r.Stats().Exporters[0].PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	testplugin.WaitFor(r.t, "another process", func() bool {
		x := r.Stats().Exporters[0]
		return x.State == host.StateReady && x.PID != pid
	})
}

// The file is replaced, written to and deleted under a running plugin, which continues. A
// restart that runs another file is logged.
func TestHazard13BinaryIsReplacedWhileItRuns(t *testing.T) {
	path := testplugin.Install(t, "record")
	copyProgram(t, path, "")
	r := startHost(t, nil, path)
	r.waitReady(0)
	pid := r.Stats().Exporters[0].PID
	deliver := func(name string) {
		t.Helper()
		r.spans(name, 10)
		r.flush()
		if got := r.Stats().Exporters[0].PID; got != pid {
			t.Errorf("%s: process %d runs, want still %d", name, got, pid)
		}
		wantOnce(t, path, name, 10)
	}
	if err := os.WriteFile(path, []byte("junk"), 0o755); !errors.Is(err, syscall.ETXTBSY) {
		t.Errorf("writing into the running file: %v, want the kernel to refuse", err)
	}
	deliver("overwritten")
	copyProgram(t, path, "another version")
	deliver("replaced")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	deliver("deleted")
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	r.killAndAwait()
	testplugin.WaitFor(t, "a word about it", func() bool { return strings.Contains(r.log.String(), "executable has changed") })
}

// A call is in flight when the host shuts down: it is awaited while there is
// time, and counted when there is none.
func TestHazard22ExportInFlightAtShutdown(t *testing.T) {
	for _, answered := range []bool{true, false} {
		t.Run(fmt.Sprintf("answered=%t", answered), func(t *testing.T) {
			path := installOwn(t, "held")
			r := startHost(t, func(c *host.Config) {
				c.ExportTimeout, c.StopTimeout = time.Minute, 500*time.Millisecond
				if answered {
					c.StopTimeout = time.Minute
				}
			}, path)
			r.waitReady(0)
			r.spans("s", 10)
			testplugin.WaitFor(t, "the plugin to have the call", func() bool { return exists(path + ".has") })
			ended := make(chan error, 1)
			go func() { ended <- r.Shutdown(context.Background()) }()
			testplugin.WaitFor(t, "the shutdown", func() bool { return r.Stats().Exporters[0].State != host.StateReady })
			if answered {
				if err := os.WriteFile(path+".go", nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				r.wantCounts(0, map[string]uint64{"delivered": 10})
				wantOnce(t, path, "s", 10)
				return
			}
			if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown = %v, want its deadline", err)
			}
			r.wantCounts(0, map[string]uint64{"dropped shutdown": 10})
		})
	}
}

// A host that was killed left a plugin: the next host starts its own, and
// never meets the old one.
func TestHazard27NextHostStartsItsOwnPlugin(t *testing.T) {
	c := newChain(t, pointReceived)
	dying := exec.Command(filepath.Join(c.dir, ownPrefix+"sender"), c.relay)
	dying.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+c.dir)
	out, err := dying.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dying.Start(); err != nil {
		t.Fatal(err)
	}
	var old int
	if _, err := fmt.Fscan(out, &old); err != nil {
		t.Fatal(err)
	}
	c.await() // the old plugin is in the middle of a call, and stays there
	_ = dying.Process.Kill()
	_ = dying.Wait() // killed, as wanted
	r := startHost(t, func(cfg *host.Config) { cfg.Environ = append(cfg.Environ, "XDG_RUNTIME_DIR="+c.dir) }, c.relay)
	r.waitReady(0)
	if got := r.Stats().Exporters[0].PID; got == old {
		t.Errorf("process %d is the old plugin", got)
	}
	r.spans("second", spansOfKill)
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": spansOfKill})
	testplugin.WaitFor(t, "the old plugin's end", func() bool { return testplugin.Gone(old) })
}

// Plugins of other versions of the contract: an older plugin describes only its name, a
// newer one has fields that this host does not know.
func TestHazard28PluginsOfOtherVersions(t *testing.T) {
	for _, mode := range []string{"older", "newer", "stock"} {
		t.Run(mode, func(t *testing.T) {
			path := testplugin.Install(t, mode)
			r := startHost(t, nil, path)
			r.spans("s", 100)
			r.flush()
			r.wantCounts(0, map[string]uint64{"delivered": 100})
			wantOnce(t, path, "s", 100)
		})
	}
}

// The host is the program's tracer provider, and a plugin traces itself: nothing
// that either does makes spans of its own.
func TestHazard30NoSpansAboutSpans(t *testing.T) {
	path := installOwn(t, "tracing")
	r := startHost(t, func(c *host.Config) { c.BatchSpans = 10 }, path)
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.Host)))
	t.Cleanup(func() { otel.SetTracerProvider(noop.NewTracerProvider()) })
	for range 10 {
		r.spans("s", 100)
		r.flush()
	}
	r.wantCounts(0, map[string]uint64{"delivered": 1000})
	if got := r.Stats().Ended; got != 1000 {
		t.Errorf("%d spans ended, want the program's 1000", got)
	}
	said, err := os.ReadFile(path + ".recording")
	if err != nil || bytes.Contains(said, []byte("true")) || !bytes.Contains(said, []byte("false")) {
		t.Errorf("the plugin's own spans are recorded: %.80q, %v; want none to be", said, err)
	}
}

// tracePlugin is a plugin that makes spans by OpenTelemetry's globals, and records
// whether they are recorded.
func tracePlugin() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "tracing",
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(ctx context.Context, _ *pluginsdk.Batch) error {
				_, span := otel.Tracer("plugin").Start(ctx, "export")
				defer span.End()
				f, err := os.OpenFile(os.Args[0]+".recording", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err != nil {
					return err
				}
				_, err = io.WriteString(f, fmt.Sprintln(span.IsRecording()))
				return errors.Join(err, f.Close())
			}), nil
		},
	})
}

// hungryPlugin takes 256 MiB for each batch, more than the limit of its test.
func hungryPlugin() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "hungry",
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
				meal := make([]byte, 256<<20)
				for i := 0; i < len(meal); i += 4096 {
					meal[i] = byte(b.Attempt())
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

// Many plugins start at once: all become ready, and none is given up for being
// slow.
func TestHazard32ManyStartsAtOnce(t *testing.T) {
	paths := make([]string, cyclesOf(t, 100))
	for i := range paths {
		paths[i] = testplugin.Install(t, "record")
	}
	r := startHost(t, func(c *host.Config) { c.StartTimeout, c.StopTimeout = time.Minute, 20*time.Second }, paths...)
	r.spans("s", 100)
	for i := range paths {
		r.waitReady(i)
	}
	r.flush()
	for i, path := range paths {
		r.wantCounts(i, map[string]uint64{"delivered": 100})
		wantOnce(t, path, "s", 100)
	}
}

// A plugin answers nonsense, or counts more spans than it was sent. No span is counted
// twice or lost, and the log has the fault. No answer can change a span of another
// plugin, because an answer has only counts.
func TestHazard29AnswersThatAreGarbage(t *testing.T) {
	for mode, want := range map[string]map[string]uint64{
		"garbled":  {"delivered": 100},
		"boaster":  {"rejected PARTIAL_SUCCESS": 100},
		"miscount": {"delivered": 100},
	} {
		t.Run(mode, func(t *testing.T) {
			good := testplugin.Install(t, "record")
			r := startHost(t, func(c *host.Config) { c.BatchAge = time.Second }, testplugin.Install(t, mode), good)
			r.spans("s", 100)
			r.flush()
			r.wantCounts(0, want)
			r.wantCounts(1, map[string]uint64{"delivered": 100})
			wantOnce(t, good, "s", 100)
			if !strings.Contains(r.log.String(), "level=WARN") {
				t.Error("the log does not say it")
			}
		})
	}
}
