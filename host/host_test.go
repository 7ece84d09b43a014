package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

func TestMain(m *testing.M) {
	testplugin.Main()
	runAsHost()
	runAsOwn()
	goleak.VerifyTestMain(m)
}

// running is a started Host with a tracer in front of it.
type running struct {
	*host.Host
	tracer trace.Tracer
	log    *testplugin.Log
	t      *testing.T
}

// startHost starts a Host with plugins of the given modes. At the end of the test it
// shuts the Host down and checks the accounting.
func startHost(t *testing.T, change func(*host.Config), paths ...string) *running {
	t.Helper()
	r := makeHost(t, change, paths...)
	if err := r.Start(t.Context()); err != nil {
		t.Fatalf("Start: %v", err)
	}
	return r
}

// makeHost does the same and does not start the Host.
func makeHost(t *testing.T, change func(*host.Config), paths ...string) *running {
	t.Helper()
	cfg := host.Config{
		Plugins:     pluginList(paths),
		BatchAge:    20 * time.Millisecond,
		StopTimeout: time.Second,
		Environ:     []string{"PATH=" + os.Getenv("PATH"), "SECRET_CANARY=canary-in-the-mine"},
	}
	if change != nil {
		change(&cfg)
	}
	log := &testplugin.Log{}
	h, err := host.New(cfg, host.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h))
	r := &running{Host: h, tracer: provider.Tracer("test"), log: log, t: t}
	t.Cleanup(func() {
		_ = h.Shutdown(context.Background()) // the accounting has the lost spans
		r.balanced()
		for _, x := range h.Stats().Exporters {
			if x.Waiting != 0 || x.State != host.StateStopped {
				t.Errorf("after Shutdown plugin %q is %v with %d spans waiting", x.Name, x.State, x.Waiting)
			}
		}
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return r
}

// pluginList names the plugins p0, p1 and so on.
func pluginList(paths []string) string {
	var list []string
	for i, path := range paths {
		list = append(list, fmt.Sprintf("p%d=%s", i, strings.ReplaceAll(path, "=", "%3D")))
	}
	return strings.Join(list, ",")
}

// spans ends n spans with unique names.
func (r *running) spans(prefix string, n int) {
	for i := range n {
		_, span := r.tracer.Start(context.Background(), fmt.Sprintf("%s-%d", prefix, i))
		span.End()
	}
}

func (r *running) balanced() {
	r.t.Helper()
	if err := r.Stats().Check(); err != nil {
		r.t.Errorf("accounting: %v", err)
	}
}

func (r *running) flush() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	if err := r.ForceFlush(ctx); err != nil {
		r.t.Errorf("ForceFlush: %v", err)
	}
}

// counts returns the counts of one exporter that tests compare.
func (r *running) counts(i int) map[string]uint64 {
	r.balanced()
	x := r.Stats().Exporters[i]
	got := map[string]uint64{}
	add := func(prefix string, counts map[string]uint64) {
		for key, n := range counts {
			got[prefix+key] = n
		}
	}
	add("", map[string]uint64{"delivered": x.Delivered})
	add("rejected ", x.Rejected)
	add("filtered ", x.Filtered)
	add("dropped ", x.Dropped)
	maps.DeleteFunc(got, func(_ string, n uint64) bool { return n == 0 })
	return got
}

func (r *running) wantCounts(i int, want map[string]uint64) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.counts(i)); diff != "" {
		r.t.Errorf("counts of plugin %d (-want +got):\n%s", i, diff)
	}
}

// wantOnce checks that the plugin at path has delivered exactly n spans of a
// prefix, each once.
func wantOnce(t *testing.T, path, prefix string, n int) {
	t.Helper()
	got := testplugin.Spans(t, path)
	for i := range n {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if got[name] != 1 {
			t.Fatalf("span %s was delivered %d times, want once; %d different spans in all", name, got[name], len(got))
		}
	}
}

func (r *running) waitReady(i int) {
	r.t.Helper()
	testplugin.WaitFor(r.t, "a ready plugin", func() bool { return r.Stats().Exporters[i].State == host.StateReady })
}

func TestDelivers(t *testing.T) {
	path := testplugin.Install(t, "record")
	r := startHost(t, nil, path)
	r.spans("s", 10_000)
	r.flush()
	wantOnce(t, path, "s", 10_000)
	r.wantCounts(0, map[string]uint64{"delivered": 10_000})
	if got := r.Stats().Ended; got != 10_000 {
		t.Errorf("Ended = %d, want 10000", got)
	}
}

func TestLoneSpanIsSentByAge(t *testing.T) {
	path := testplugin.Install(t, "record")
	r := startHost(t, nil, path)
	r.spans("s", 1)
	testplugin.WaitFor(t, "the span", func() bool { return testplugin.Spans(t, path)["s-0"] == 1 })
}

func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		mode string
		want map[string]uint64
	}{
		{"permanent", map[string]uint64{"rejected INVALID_ARGUMENT": 100}},
		{"panic", map[string]uint64{"rejected INTERNAL": 100}},
		{"partial:3", map[string]uint64{"delivered": 97, "rejected PARTIAL_SUCCESS": 3}},
		{"filter:s-1", map[string]uint64{"delivered": 89, "filtered by-name": 11}},
		{"flaky:2", map[string]uint64{"delivered": 100}},
		{"small:30", map[string]uint64{"delivered": 100}},
		{"flood:300", map[string]uint64{"delivered": 100}},
		{"noise:70000", map[string]uint64{"delivered": 100}},
		{"stock", map[string]uint64{"delivered": 100}}, // plain OTLP, without Lifecycle
	} {
		t.Run(test.mode, func(t *testing.T) {
			r := startHost(t, func(c *host.Config) { c.BatchAge = time.Second }, testplugin.Install(t, test.mode))
			r.spans("s", 100)
			r.flush()
			r.wantCounts(0, test.want)
		})
	}
}

func TestRetryIsTheSameBatch(t *testing.T) {
	path := testplugin.Install(t, "flaky:2")
	r := startHost(t, func(c *host.Config) { c.BatchAge = time.Second }, path)
	r.spans("s", 10)
	r.flush()
	got := testplugin.Received(t, path)
	if len(got) != 1 || got[0].Attempt != 3 || !strings.HasSuffix(got[0].ID, "-1") {
		t.Errorf("received %+v, want one batch at its third attempt", got)
	}
}

func TestSplitForSmallPlugin(t *testing.T) {
	path := testplugin.Install(t, "small:30")
	r := startHost(t, func(c *host.Config) { c.BatchAge = time.Second }, path)
	r.spans("s", 100)
	r.flush()
	wantOnce(t, path, "s", 100)
	for _, b := range testplugin.Received(t, path) {
		if len(b.Spans) > 30 {
			t.Errorf("a batch of %d spans, the plugin takes 30", len(b.Spans))
		}
	}
}

func TestExportersDoNotHurtEachOther(t *testing.T) {
	good, bad := testplugin.Install(t, "record"), testplugin.Install(t, "permanent")
	r := startHost(t, nil, good, bad, testplugin.Install(t, "exit"))
	r.spans("s", 5000)
	testplugin.WaitFor(t, "both answers", func() bool {
		return r.counts(0)["delivered"] == 5000 && r.counts(1)["rejected INVALID_ARGUMENT"] == 5000
	})
	wantOnce(t, good, "s", 5000)
	if got := r.Stats().Exporters[2]; got.Waiting != 5000 || got.State == host.StateReady {
		t.Errorf("the plugin that does not start: %+v, want 5000 waiting", got)
	}
}

func TestKilledPluginComesBackWithoutLoss(t *testing.T) {
	path := testplugin.Install(t, "slow:5ms")
	r := startHost(t, func(c *host.Config) { c.BatchSpans = 50 }, path)
	r.waitReady(0)
	for round := range 3 {
		pid := r.Stats().Exporters[0].PID
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.spans(fmt.Sprintf("r%d", round), 2000)
		}()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-done
		r.balanced()
		testplugin.WaitFor(t, "another process", func() bool {
			x := r.Stats().Exporters[0]
			return x.State == host.StateReady && x.PID != pid
		})
		r.flush() // a batch that was alone in flight at two kills would be quarantined
	}
	r.wantCounts(0, map[string]uint64{"delivered": 6000})
	got := testplugin.Spans(t, path) // at least once: the answer may have died with the plugin
	if len(got) != 6000 {
		t.Errorf("%d different spans delivered, want 6000", len(got))
	}
}

func TestCrashIsLoggedWithItsPanic(t *testing.T) {
	r := startHost(t, func(c *host.Config) { c.BatchAge = time.Second }, testplugin.Install(t, "crash:1"))
	r.spans("s", 1)
	testplugin.WaitFor(t, "the log", func() bool { return strings.Contains(r.log.String(), "panic: testplugin: crash") })
	testplugin.WaitFor(t, "the cause", func() bool {
		return strings.Contains(r.log.String(), "plugin ended: exit status 2; its last line: panic: testplugin: crash")
	})
	first, _, _ := strings.Cut(r.log.String(), "plugin ended")
	wantLines(t, first, map[string]int{"level=ERROR": 1, "level=ERROR msg=\"plugin has crashed\"": 1, "level=INFO msg=\"panic: ": 1})
}

func TestFrozenPluginIsReplaced(t *testing.T) {
	t.Parallel() // it waits for processes
	path := testplugin.Install(t, "record")
	r := startHost(t, func(c *host.Config) { c.ExportTimeout = 200 * time.Millisecond }, path)
	r.waitReady(0)
	pid := r.Stats().Exporters[0].PID
	testplugin.Freeze(t, pid)
	r.spans("s", 100)
	r.flush()
	if got := testplugin.Spans(t, path); len(got) != 100 {
		t.Errorf("%d different spans delivered, want 100", len(got))
	}
	if !testplugin.Gone(pid) {
		t.Errorf("the frozen process %d is still there", pid)
	}
}

func TestPluginThatComesLater(t *testing.T) {
	path := testplugin.Install(t, "record")
	hidden := path + ".hidden"
	if err := os.Rename(path, hidden); err != nil {
		t.Fatal(err)
	}
	r := startHost(t, nil, path)
	r.spans("s", 10)
	testplugin.WaitFor(t, "the complaint", func() bool {
		return strings.Contains(r.log.String(), "there is no such file; check the path, or build the plugin")
	})
	if err := os.Rename(hidden, path); err != nil {
		t.Fatal(err)
	}
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": 10})
	if got := strings.Count(r.log.String(), "plugin is not running"); got != 1 {
		t.Errorf("the same cause was logged %d times, want once", got)
	}
}

func TestNoUsePlugins(t *testing.T) {
	for mode, want := range map[string]string{
		"refuse":     "configuration refused: TESTPLUGIN_TOKEN is empty: set it",
		"version:99": "the plugin speaks protocol version 99, this host version 1",
		"hello":      "it ended before the handshake (exit status 0)",
		"stock:empty": "describe: the plugin is incompatible: it serves neither servetrace.plugin.v1.Lifecycle nor OTLP's TraceService; " +
			"build it with pluginsdk, or register the TraceService",
	} {
		t.Run(mode, func(t *testing.T) {
			r := startHost(t, nil, testplugin.Install(t, mode))
			r.spans("s", 10)
			testplugin.WaitFor(t, "the cause", func() bool { return strings.Contains(r.Stats().Exporters[0].LastError, want) })
			// It is noted before it is logged.
			testplugin.WaitFor(t, "a line of the log", func() bool { return strings.Contains(r.log.String(), "the program is not affected") })
			if err := r.Shutdown(t.Context()); err == nil || !strings.Contains(err.Error(), `plugin "p0": 10 spans not delivered`) {
				t.Errorf("Shutdown = %v, want 10 spans not delivered", err)
			}
			r.wantCounts(0, map[string]uint64{"dropped shutdown": 10})
		})
	}
}

func TestCauseIsLoggedWhileTheHostShutsDown(t *testing.T) {
	r := startHost(t, nil, "/nowhere/plugin")
	r.spans("s", 1)
	_ = r.Shutdown(t.Context()) // the counts have the lost spans
	if got := strings.Count(r.log.String(), "there is no such file"); got < 1 {
		t.Errorf("the cause stands in the log %d times", got)
	}
}

func TestStartDoesNotWait(t *testing.T) {
	r := startHost(t, nil, testplugin.Install(t, "lateready:300ms"))
	if got := r.Stats().Exporters[0].State; got != host.StateStarting {
		t.Errorf("state %v right after Start, want starting", got)
	}
	r.spans("s", 100)
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": 100})
}

func TestShutdownIsBounded(t *testing.T) {
	for _, mode := range []string{"hang", "deaf", "silent:1m", "lateready:1m"} {
		t.Run(mode, func(t *testing.T) {
			r := startHost(t, nil, testplugin.Install(t, mode))
			r.spans("s", 10)
			if mode == "hang" || mode == "deaf" {
				r.waitReady(0)
			}
			begun := time.Now()
			if err := r.Shutdown(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown = %v, want its deadline", err)
			}
			// Generous: the deadline is 1 s, and the machine may be busy.
			if took := time.Since(begun); took > 4*time.Second {
				t.Errorf("Shutdown took %v", took)
			}
			r.wantCounts(0, map[string]uint64{"dropped shutdown": 10})
		})
	}
}

func TestFrozenPluginDoesNotHoldShutdown(t *testing.T) {
	r := startHost(t, nil, testplugin.Install(t, "record"))
	r.waitReady(0)
	pid := r.Stats().Exporters[0].PID
	testplugin.Freeze(t, pid)
	r.spans("s", 10)
	_ = r.Shutdown(t.Context()) // the counts have the lost spans
	r.wantCounts(0, map[string]uint64{"dropped shutdown": 10})
	if !testplugin.Gone(pid) {
		t.Errorf("process %d is still there", pid)
	}
}

func TestShutdownDelivers(t *testing.T) {
	path := testplugin.Install(t, "slow:100ms")
	r := startHost(t, func(c *host.Config) { c.BatchSpans, c.StopTimeout = 100, 20*time.Second }, path)
	r.spans("s", 1000)
	if err := r.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	wantOnce(t, path, "s", 1000)
	r.spans("late", 5)
	if diff := cmp.Diff(map[string]uint64{"shutdown": 5}, r.Stats().Refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

func TestForceFlushSaysWhatIsLeft(t *testing.T) {
	r := startHost(t, nil, testplugin.Install(t, "hang"))
	r.spans("s", 10)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := r.ForceFlush(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `plugin "p0": 10 spans not delivered`) {
		t.Errorf("ForceFlush = %v, want 10 spans not delivered", err)
	}
}

func TestBoundAndTheOtherExporter(t *testing.T) {
	good := testplugin.Install(t, "record")
	r := startHost(t, func(c *host.Config) {
		c.QueueBytes, c.MaxSpanBytes, c.BatchBytes = 4<<20, 1<<20, 64<<10
	}, good, testplugin.Install(t, "exit"))
	r.waitReady(0)
	var most int64
	payload := strings.Repeat("x", 1000)
	for round := range 100 {
		r.spans(fmt.Sprintf("%s-%d", payload, round), 100)
		most = max(most, r.Stats().Bytes)
		r.balanced()
		testplugin.WaitFor(t, "the good exporter", func() bool { return r.Stats().Exporters[0].Waiting == 0 })
	}
	if most > 4<<20 {
		t.Errorf("%d bytes in use, the bound is %d", most, 4<<20)
	}
	r.wantCounts(0, map[string]uint64{"delivered": 10_000})
	dead := r.Stats().Exporters[1]
	if dead.Dropped["queue_full"] == 0 || dead.Dropped["queue_full"]+dead.Waiting != 10_000 {
		t.Errorf("the dead exporter: dropped %v, waiting %d; want its oldest dropped", dead.Dropped, dead.Waiting)
	}
	if got := strings.Count(r.log.String(), "spans are being dropped"); got != 1 {
		t.Errorf("the loss was logged %d times, want once", got)
	}
}

func TestHungExporterCostsNoOther(t *testing.T) {
	t.Parallel() // it waits for processes
	good := testplugin.Install(t, "record")
	r := startHost(t, func(c *host.Config) { c.QueueBytes = 1 << 20 }, good, testplugin.Install(t, "hang"))
	r.waitReady(0)
	r.waitReady(1)
	payload := strings.Repeat("x", 1000)
	for round := range 100 {
		r.spans(fmt.Sprintf("%s-%d", payload, round), 100)
		r.balanced()
		testplugin.WaitFor(t, "the good exporter", func() bool { return r.Stats().Exporters[0].Waiting == 0 })
	}
	r.wantCounts(0, map[string]uint64{"delivered": 10_000})
}

func TestPluginThatServesNoMoreIsReplaced(t *testing.T) {
	path := testplugin.Install(t, "closed")
	r := startHost(t, nil, path)
	r.spans("s", 10)
	testplugin.WaitFor(t, "another process", func() bool { return r.Stats().Exporters[0].Starts > 1 })
	if got := r.Stats().Exporters[0].State; got == host.StateStopped {
		t.Errorf("state %v", got)
	}
}

func TestSignalledPluginFinishesItsCalls(t *testing.T) {
	path := installOwn(t, "held")
	r := startHost(t, func(c *host.Config) { c.ExportTimeout = time.Minute }, path)
	r.waitReady(0)
	first := r.Stats().Exporters[0].PID
	r.spans("before", 10)
	testplugin.WaitFor(t, "the plugin to have the call", func() bool { return exists(path + ".has") })
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testplugin.WaitFor(t, "the plugin's end", func() bool { return strings.Contains(r.log.String(), "asked to end") })
	r.spans("after", 10)
	if err := os.WriteFile(path+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": 20})
	batches := testplugin.Received(t, path)
	if len(batches) != 2 || batches[0].PID != first {
		t.Errorf("%+v delivered, want two batches, the first by process %d: it was killed over its call", batches, first)
	}
}

func TestOneSpanABatch(t *testing.T) {
	path := testplugin.Install(t, "record")
	r := startHost(t, func(c *host.Config) { c.BatchSpans, c.QueueBytes = 1, 1<<20 }, path, testplugin.Install(t, "exit"))
	r.spans("s", 3000)
	r.balanced()
	testplugin.WaitFor(t, "the good exporter", func() bool { return r.Stats().Exporters[0].Waiting == 0 })
	dead := r.Stats().Exporters[1]
	if dead.Dropped["queue_full"] == 0 {
		t.Errorf("the dead exporter dropped nothing: %+v", dead)
	}
	if got := r.Stats().Bytes; got > 1<<20 {
		t.Errorf("%d bytes in use", got)
	}
}

func TestVariablesAreGrantedAsDeclared(t *testing.T) {
	path := testplugin.Install(t, "record")
	r := startHost(t, func(c *host.Config) {
		c.Environ = append(c.Environ, "TESTPLUGIN_CANARY=tweet", "TESTPLUGINX=no")
		c.Context.ServiceName = "shop"
	}, path)
	r.waitReady(0)
	if diff := cmp.Diff([]string{"TESTPLUGIN_CANARY"}, r.Stats().Exporters[0].Granted); diff != "" {
		t.Errorf("granted (-want +got):\n%s", diff)
	}
	testplugin.WaitFor(t, "the plugin's own word", func() bool {
		return strings.Contains(r.log.String(), "canary=tweet") && strings.Contains(r.log.String(), "service=shop")
	})
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", r.Stats().Exporters[0].PID))
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	if bytes.Contains(environ, []byte("canary")) {
		t.Errorf("a variable that was not declared is in the plugin's environment: %q", environ)
	}
}

func TestAccountingBalancesAtEveryMoment(t *testing.T) {
	r := startHost(t, func(c *host.Config) {
		c.BatchSpans, c.QueueBytes, c.MaxSpanBytes, c.BatchBytes = 64, 1<<20, 64<<10, 64<<10
	},
		testplugin.Install(t, "slow:1ms"), testplugin.Install(t, "crash:5"), testplugin.Install(t, "filter:w0"))
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() { r.spans(fmt.Sprintf("w%d", w), 5000) })
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for looks := 0; ; looks++ {
		select {
		case <-done:
			if looks == 0 {
				t.Error("the accounting was never read")
			}
			if got := r.Stats().Ended; got != 20_000 {
				t.Errorf("Ended = %d, want 20000", got)
			}
			return
		default:
			r.balanced()
		}
	}
}

func TestNotEnabled(t *testing.T) {
	h, err := host.New(host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Start(t.Context()), h.ForceFlush(t.Context()), h.Shutdown(t.Context())); err != nil {
		t.Error(err)
	}
	if h.Enabled() {
		t.Error("enabled without a plugin")
	}
}

func TestShutdownWithoutStart(t *testing.T) {
	h, err := host.New(host.Config{Plugins: "./p"}, host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h))
	_, span := provider.Tracer("test").Start(t.Context(), "s")
	span.End()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	s := h.Stats()
	if s.Check() != nil || s.Exporters[0].Dropped["shutdown"] != 1 {
		t.Errorf("accounting: %+v", s)
	}
	if err := h.Start(t.Context()); err == nil {
		t.Error("started after Shutdown")
	}
}
