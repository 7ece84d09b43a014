package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/supervise"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestOutputOfFailedStartsIsToldOncePerCause: three starts fail by one cause,
// three by another, the seventh is ready.
func TestOutputOfFailedStartsIsToldOncePerCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testplugin.Log{}
		h, err := host.New(host.Config{Plugins: "/fake/plugin"}, host.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		if err != nil {
			t.Fatal(err)
		}
		plugin := newFakePlugin(func(context.Context, int) error { return nil })
		n := 0
		h.Supervisor().Connect = func(_ context.Context, _ *supervise.Settings, _ supervise.Plan, log *slog.Logger) (supervise.Peer, error) {
			n++
			log.With("pid", 100+n).WithGroup("g").Info("plugin's word", "n", n)
			if n == 7 {
				for range 2 * linesHeld {
					log.Info("much")
				}
				return plugin, nil
			}
			return nil, fmt.Errorf("cause %d", (n-1)/3)
		}
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		wantLines(t, log.String(), map[string]int{
			"plugin's word":         3,
			"pid=101 g.n=1":         1,
			"pid=104 g.n=4":         1,
			"pid=107 g.n=7":         1,
			"cause=\"cause":         2,
			"msg=much":              linesHeld - 1,
			"suppressed=101":        1,
			"msg=\"plugin is ready": 1,
		})
		if words := strings.Index(log.String(), "n=7"); words > strings.Index(log.String(), "plugin is ready") {
			t.Error("what the plugin said at its start stands after that it is ready")
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestCausesWithARandomNumberAreToldOnce: each start fails at a folder with another
// name, and each process crashes with other addresses in its stack.
func TestCausesWithARandomNumberAreToldOnce(t *testing.T) {
	for name, test := range map[string]struct {
		launch func(n int) (*fakePlugin, error)
		want   map[string]int
	}{
		"at start": {func(n int) (*fakePlugin, error) {
			return nil, fmt.Errorf("mkdir /tmp/servetrace-17-%d: read-only file system", 1_000_000+n)
		}, map[string]int{"level=ERROR": 1, "read-only file system": 1}},
		"crash": {func(n int) (*fakePlugin, error) {
			f := newFakePlugin(well)
			f.report = crashOf(n)
			f.report.Stack = fmt.Sprintf("panic: no\n\ngoroutine %d [running]:\nmain.main()\n\t/main.go:12 +0x%x", n, n)
			time.AfterFunc(time.Millisecond, func() { f.Kill("") })
			return f, nil
		}, map[string]int{"level=ERROR": 2, "plugin has crashed": 1, "plugin is broken": 1}},
		"another status": {func(n int) (*fakePlugin, error) {
			return nil, fmt.Errorf("it ended before the handshake (exit status %d)", min(n, 2))
		}, map[string]int{"level=ERROR": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, test.launch, nil, func(l *lived) {
				l.pass(10 * time.Minute)
				wantLines(t, l.log.String(), test.want)
			})
		})
	}
}

// TestPluginsOfNoUseSayItOnce, real ones: one that refuses its configuration,
// and a program that is no plugin and prints.
func TestPluginsOfNoUseSayItOnce(t *testing.T) {
	for mode, line := range map[string]string{
		"refuse": `msg="plugin stops"`,
		"hello":  `msg="hello, world"`,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel() // most of it is pauses between starts
			log := &testplugin.Log{}
			h, err := host.New(host.Config{Plugins: pluginList([]string{testplugin.Install(t, mode)}), StartTimeout: time.Minute},
				host.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			if err != nil {
				t.Fatal(err)
			}
			var starts atomic.Int64
			connect := h.Supervisor().Connect
			h.Supervisor().Connect = func(ctx context.Context, c *supervise.Settings, p supervise.Plan, log *slog.Logger) (supervise.Peer, error) {
				starts.Add(1)
				return connect(ctx, c, p, log)
			}
			if err := h.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			testplugin.WaitFor(t, "four starts", func() bool { return starts.Load() >= 4 })
			wantLines(t, log.String(), map[string]int{"plugin is not running": 1})
			if cause, _, _ := strings.Cut(log.String(), "plugin is not running"); strings.Contains(cause, "plugin stops") {
				t.Errorf("that the host ends it stands before the cause; log:\n%s", log)
			}
			if got := strings.Count(log.String(), line); got > 1 { // on a busy machine it is killed before it says so
				t.Errorf("%s stands %d times in the log, want once; log:\n%s", line, got, log)
			}
			if err := h.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRefusedFileIsNamed: a real plugin that reads no document gets one.
func TestRefusedFileIsNamed(t *testing.T) {
	document := file(t, "c.yaml", "a: 1")
	r := startHost(t, func(c *host.Config) { c.PluginConfigs = map[string]host.PluginConfig{"p0": {File: document}} }, testplugin.Install(t, "record"))
	want := fmt.Sprintf("configuration refused (file %q): the plugin reads no configuration", document)
	testplugin.WaitFor(t, want, func() bool { return strings.Contains(r.Stats().Exporters[0].LastError, want) })
}

func TestStartTimeoutSaysWhichAndHowLong(t *testing.T) {
	silent := testplugin.Install(t, "silent:5m")
	r := startHost(t, func(c *host.Config) { c.StartTimeout = 200 * time.Millisecond }, silent)
	const want = "no handshake within the start timeout, without output; is it a servetrace plugin? Run it by hand to see (SERVE_TRACING_START_TIMEOUT=200ms)"
	testplugin.WaitFor(t, want, func() bool { return strings.HasSuffix(r.Stats().Exporters[0].LastError, want) })
	got := host.Inspect(t.Context(), host.Config{Plugins: pluginList([]string{silent}), StartTimeout: 200 * time.Millisecond}, true,
		host.WithLogger(slog.New(slog.DiscardHandler)))
	if err := fmt.Sprint(got[0].Err); !strings.HasSuffix(err, want) {
		t.Errorf("Inspect: %s, want %s", err, want)
	}
}

// TestFlushOfASlowPluginWaits: it is asked whether it lives, and it does.
func TestFlushOfASlowPluginWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := newFakePlugin(func(context.Context, int) error { return nil })
		var checks atomic.Int32 // heartbeats and the flush ask side by side
		plugin.health = func(context.Context) error { checks.Add(1); return nil }
		plugin.flush = func(context.Context) error { time.Sleep(time.Minute + time.Second); return nil }
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil)
		synctest.Wait()
		if err := h.ForceFlush(context.Background()); err != nil || checks.Load() < 6 {
			t.Errorf("ForceFlush = %v after %d health checks, want nil after 6 or more", err, checks.Load())
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestFlushOfASilentPluginEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := newFakePlugin(func(context.Context, int) error { return nil })
		silence := func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			case <-plugin.done:
				return status.Error(codes.Unavailable, "the process has ended")
			}
		}
		plugin.health, plugin.flush = silence, silence
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			if n == 1 {
				return plugin, nil
			}
			return nil, errors.New("enough")
		}, nil)
		synctest.Wait()
		begun := time.Now()
		err := h.ForceFlush(context.Background())
		if took := time.Since(begun); took < host.DefaultExportTimeout+healthTime || took > host.DefaultExportTimeout+2*healthTime || // a heartbeat may come between
			fmt.Sprint(err) != `flush plugin "plugin": the process has ended` {
			t.Errorf("ForceFlush = %v after %v", err, took)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestFlushOfAFrozenPluginEnds uses a real process. The stack dump before the kill
// continues the process, so it may still answer Flush before it ends.
func TestFlushOfAFrozenPluginEnds(t *testing.T) {
	t.Parallel() // it waits for processes
	r := startHost(t, func(c *host.Config) { c.ExportTimeout = 100 * time.Millisecond }, testplugin.Install(t, "record"))
	r.waitReady(0)
	pid := r.Stats().Exporters[0].PID
	testplugin.Freeze(t, pid)
	if err := r.ForceFlush(context.Background()); err != nil && !strings.HasPrefix(err.Error(), `flush plugin "p0": `) {
		t.Errorf("ForceFlush = %v, want nil or the error of the killed plugin", err)
	}
	testplugin.WaitFor(t, "the end of the process by this host", func() bool {
		return testplugin.Gone(pid) && strings.Contains(r.Stats().Exporters[0].LastError, "(by this host: ")
	})
}
