package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/supervise"
	"github.com/servetrace/servetrace/internal/total"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/test/testplugin"
)

func TestAttachToAPlainReceiver(t *testing.T) {
	r := newReceiver(t, 0)
	r.start()
	h := startHost(t, nil, r.entry())
	h.spans("s", 10_000)
	h.flush()
	wantOnce(t, r.path, "s", 10_000)
	h.wantCounts(0, map[string]uint64{"delivered": 10_000})
	x := h.Stats().Exporters[0]
	if !x.Attached || x.Path != r.socket || x.PID != 0 || x.State != host.StateReady || len(x.Granted) != 0 {
		t.Errorf("%+v", x)
	}
	if want := "msg=\"plugin is ready\" plugin=p0 path=" + r.socket + " attached=true"; !strings.Contains(h.log.String(), want) {
		t.Errorf("the log does not say %s", want)
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if testplugin.Gone(r.cmd.Process.Pid) {
		t.Error("the receiver ended with the host")
	}
}

// TestAttachToAPluginOfTheSDK: it outlives its hosts, which neither configure it
// nor shut it down, and serves the next.
func TestAttachToAPluginOfTheSDK(t *testing.T) {
	r := newListener(t, "record")
	r.start()
	for n := range 2 {
		h := startHost(t, nil, r.entry())
		h.spans(fmt.Sprintf("h%d", n), 1000)
		h.flush()
		wantOnce(t, r.path, fmt.Sprintf("h%d", n), 1000)
		h.wantCounts(0, map[string]uint64{"delivered": 1000})
		if got := h.Stats().Exporters[0].Version; got != "1.2.3" {
			t.Errorf("version %q, want 1.2.3", got)
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if log := h.log.String(); strings.Contains(log, "level=WARN") {
			t.Errorf("warnings in the log:\n%s", log)
		}
	}
	if testplugin.Gone(r.cmd.Process.Pid) {
		t.Error("the plugin ended with its hosts")
	}
}

// lifecycle answers Describe and Flush. It has no other methods, so other calls get an
// error.
type lifecycle struct {
	pluginv1.UnimplementedLifecycleServer
}

func (lifecycle) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	return &pluginv1.DescribeResponse{
		Name: "attached", Version: "1.0", EnvPatterns: []string{"LANG", "SECRET_*"},
		Limits: &pluginv1.Limits{MaxBatchSpans: 30, MaxConcurrency: 1},
	}, nil
}

func (lifecycle) Flush(context.Context, *pluginv1.FlushRequest) (*pluginv1.FlushResponse, error) {
	return &pluginv1.FlushResponse{SpansLeft: 0}, nil
}

// calls keeps the methods that were called at a server, each once.
type calls struct {
	mu      sync.Mutex
	methods []string
}

func (c *calls) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	c.mu.Lock()
	if !slices.Contains(c.methods, info.FullMethod) {
		c.methods = append(c.methods, info.FullMethod)
	}
	c.mu.Unlock()
	return next(ctx, req)
}

func TestAttachNeitherConfiguresNorShutsDown(t *testing.T) {
	var (
		seen calls
		mu   sync.Mutex
		most int
	)
	socket := filepath.Join(testplugin.SocketFolder(t), "with,comma=equals@at.sock")
	testplugin.Serve(t, socket, func(s *grpc.Server) {
		pluginv1.RegisterLifecycleServer(s, lifecycle{})
		coltracepb.RegisterTraceServiceServer(s, traces{export: func(_ context.Context, names []string) error {
			mu.Lock()
			defer mu.Unlock()
			most = max(most, len(names))
			return nil
		}})
	}, grpc.UnaryInterceptor(seen.intercept))
	h := startHost(t, func(c *host.Config) {
		c.Plugins = "p0=unix://" + strings.NewReplacer(",", "%2C", "=", "%3D", "@", "%40").Replace(socket)
		c.Environ = append(c.Environ, "LANG=C")
	})
	h.spans("s", 100)
	h.flush()
	x := h.Stats().Exporters[0]
	if x.Version != "1.0" || len(x.Granted) != 0 {
		t.Errorf("%+v", x)
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	h.wantCounts(0, map[string]uint64{"delivered": 100})
	want := []string{pluginv1.Lifecycle_Describe_FullMethodName, wire.ExportMethod, pluginv1.Lifecycle_Flush_FullMethodName}
	if diff := cmp.Diff(want, seen.methods); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if most != 30 {
		t.Errorf("%d spans at a time, the plugin takes 30", most)
	}
}

func TestAttachFlushesAtTheEnd(t *testing.T) {
	var seen calls
	socket := filepath.Join(testplugin.SocketFolder(t), "p.sock")
	testplugin.Serve(t, socket, func(s *grpc.Server) { pluginv1.RegisterLifecycleServer(s, lifecycle{}) }, grpc.UnaryInterceptor(seen.intercept))
	h := startHost(t, func(c *host.Config) { c.StopTimeout = 20 * time.Second }, "unix://"+socket)
	h.waitReady(0)
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	want := []string{pluginv1.Lifecycle_Describe_FullMethodName, pluginv1.Lifecycle_Flush_FullMethodName}
	if diff := cmp.Diff(want, seen.methods); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestAttachedPluginIsKilledUnderLoad(t *testing.T) {
	t.Parallel() // it waits for processes
	for name, r := range map[string]*receiver{
		"receiver":   newReceiver(t, 5*time.Millisecond),
		"of the SDK": newListener(t, "slow:5ms"),
	} {
		t.Run(name, func(t *testing.T) { killedUnderLoad(t, r) })
	}
}

func killedUnderLoad(t *testing.T, r *receiver) {
	t.Helper()
	r.start()
	h := startHost(t, func(c *host.Config) { c.BatchSpans = 50 }, r.entry())
	for round := range uint64(3) {
		testplugin.WaitFor(t, "a connection", func() bool { return h.Stats().Exporters[0].Starts > round })
		before := h.Stats().Exporters[0].Delivered
		var load sync.WaitGroup
		load.Go(func() { h.spans(fmt.Sprintf("r%d", round), 2000) })
		testplugin.WaitFor(t, "a delivery", func() bool { return h.Stats().Exporters[0].Delivered > before })
		r.kill()
		testplugin.WaitFor(t, "the loss to be seen", func() bool { return h.Stats().Exporters[0].State != host.StateReady })
		h.balanced()
		load.Wait()
		r.start()
	}
	h.flush()
	h.wantCounts(0, map[string]uint64{"delivered": 6000})
	if got := testplugin.Spans(t, r.path); len(got) != 6000 { // at least once: the answer may have died with the plugin
		t.Errorf("%d different spans delivered, want 6000", len(got))
	}
	if text := h.log.String(); !strings.Contains(text, "cannot be reached at its socket") || !strings.Contains(text, "the plugin ended, or closed it") {
		t.Error("the log does not say what happened")
	}
}

func TestFrozenAttachedPluginIsLeftAlone(t *testing.T) {
	t.Parallel() // most of it is timeouts
	r := newReceiver(t, 0)
	r.start()
	h := startHost(t, func(c *host.Config) { c.ExportTimeout, c.StartTimeout = 200*time.Millisecond, 500*time.Millisecond }, r.entry())
	h.waitReady(0)
	pid := r.cmd.Process.Pid
	testplugin.Freeze(t, pid)
	h.spans("s", 100)
	testplugin.WaitFor(t, "the connection to be closed", func() bool { return strings.Contains(h.log.String(), "the process is left alone") })
	testplugin.WaitFor(t, "it to be dialled again", func() bool {
		return strings.Contains(h.Stats().Exporters[0].LastError, "it accepted the connection and does not answer within the start timeout")
	})
	h.balanced()
	if testplugin.Gone(pid) {
		t.Fatal("the plugin was killed")
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	h.flush()
	h.wantCounts(0, map[string]uint64{"delivered": 100})
	if got := testplugin.Spans(t, r.path); len(got) != 100 {
		t.Errorf("%d different spans delivered, want 100", len(got))
	}
}

func TestFrozenAttachedPluginDoesNotHoldShutdown(t *testing.T) {
	r := newReceiver(t, 0)
	r.start()
	h := startHost(t, nil, r.entry())
	h.waitReady(0)
	testplugin.Freeze(t, r.cmd.Process.Pid)
	// More than the socket's buffer takes.
	h.spans(strings.Repeat("x", 4000), 1000)
	begun := time.Now()
	if err := h.Shutdown(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown = %v, want its deadline", err)
	}
	if took := time.Since(begun); took > 4*time.Second { // of 1 s; the machine may be busy
		t.Errorf("Shutdown took %v", took)
	}
	h.wantCounts(0, map[string]uint64{"dropped shutdown": 1000})
	if testplugin.Gone(r.cmd.Process.Pid) {
		t.Error("the plugin was killed")
	}
}

// TestSlowReceiverWithoutHealthIsAlive: it lets calls run into their deadline,
// and does not know the health check.
func TestSlowReceiverWithoutHealthIsAlive(t *testing.T) {
	socket := filepath.Join(testplugin.SocketFolder(t), "p.sock")
	testplugin.Serve(t, socket, func(s *grpc.Server) {
		calls := 0
		var mu sync.Mutex
		coltracepb.RegisterTraceServiceServer(s, traces{export: func(ctx context.Context, _ []string) error {
			mu.Lock()
			calls++
			first := calls == 1
			mu.Unlock()
			if first {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}})
	})
	h := startHost(t, func(c *host.Config) { c.ExportTimeout = 200 * time.Millisecond }, "unix://"+socket)
	h.spans("s", 10)
	h.flush()
	h.wantCounts(0, map[string]uint64{"delivered": 10})
	if got := h.Stats().Exporters[0].Starts; got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

// TestAttachedPluginIsReplacedGracefully: the old server accepts no new call and answers
// the calls in flight. The new server has the socket by then.
func TestAttachedPluginIsReplacedGracefully(t *testing.T) {
	socket := filepath.Join(testplugin.SocketFolder(t), "p.sock")
	var (
		mu       sync.Mutex
		got      = map[string]int{}
		arrived  = make(chan struct{}, 100)
		complete = make(chan struct{})
	)
	record := func(names []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			got[name]++
		}
	}
	old := testplugin.Serve(t, socket, func(s *grpc.Server) {
		coltracepb.RegisterTraceServiceServer(s, traces{export: func(_ context.Context, names []string) error {
			arrived <- struct{}{}
			<-complete
			record(names)
			return nil
		}})
	})
	h := startHost(t, nil, "unix://"+socket)
	h.spans("before", 10)
	<-arrived
	var stopping sync.WaitGroup
	stopping.Go(old.GracefulStop)
	testplugin.WaitFor(t, "the old socket to go", func() bool { _, err := os.Lstat(socket); return err != nil })
	testplugin.Serve(t, socket, func(s *grpc.Server) {
		coltracepb.RegisterTraceServiceServer(s, traces{export: func(_ context.Context, names []string) error { record(names); return nil }})
	})
	h.spans("after", 10)
	close(complete)
	stopping.Wait()
	h.flush()
	h.wantCounts(0, map[string]uint64{"delivered": 20})
	mu.Lock()
	defer mu.Unlock()
	for name, n := range got {
		if n != 1 {
			t.Errorf("span %s was delivered %d times", name, n)
		}
	}
	if len(got) != 20 {
		t.Errorf("%d different spans delivered, want 20", len(got))
	}
}

func TestAttachedPluginThatComesLater(t *testing.T) {
	r := newReceiver(t, 0)
	h := startHost(t, nil, r.entry())
	h.spans("s", 10)
	testplugin.WaitFor(t, "the complaint", func() bool {
		return strings.Contains(h.log.String(), "attach to "+r.socket+": there is no such socket; start the plugin there (--listen), or check the path")
	})
	r.start()
	h.flush()
	h.wantCounts(0, map[string]uint64{"delivered": 10})
	if got := strings.Count(h.log.String(), "cannot be reached at its socket"); got > 2 { // not there; there without a listener
		t.Errorf("the same causes were logged %d times", got)
	}
}

// TestOnePluginOfTwoHosts: one host floods the plugin with far more than it can
// take and loses spans; the other loses none.
func TestOnePluginOfTwoHosts(t *testing.T) {
	t.Parallel() // it waits for processes
	r := newReceiver(t, 20*time.Millisecond)
	r.start()
	flooding := startHost(t, func(c *host.Config) { c.QueueBytes, c.BatchSpans = 1<<20, 100 }, r.entry())
	quiet := startHost(t, func(c *host.Config) { c.QueueBytes = 1 << 20 }, r.entry())
	flooding.waitReady(0)
	quiet.waitReady(0)
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		payload := strings.Repeat("x", 1000)
		for round := 0; ; round++ {
			select {
			case <-stop:
				return
			default:
				flooding.spans(fmt.Sprintf("%s-%d", payload, round), 100)
			}
		}
	})
	lost := func() uint64 {
		s := flooding.Stats()
		return total.Of(s.Refused) + total.Of(s.Exporters[0].Dropped)
	}
	testplugin.WaitFor(t, "a flood", func() bool { return lost() > 0 })
	for round := range 20 {
		quiet.spans(fmt.Sprintf("q%d", round), 100)
		quiet.balanced()
		flooding.balanced()
		testplugin.WaitFor(t, "the quiet host's spans", func() bool { return quiet.Stats().Exporters[0].Waiting == 0 })
	}
	close(stop)
	load.Wait()
	quiet.wantCounts(0, map[string]uint64{"delivered": 2000})
	got := testplugin.Spans(t, r.path)
	for round := range 20 {
		for i := range 100 {
			if name := fmt.Sprintf("q%d-%d", round, i); got[name] == 0 {
				t.Fatalf("span %s was not delivered", name)
			}
		}
	}
	if used := flooding.Stats().Bytes; used > 1<<20 {
		t.Errorf("%d bytes in use, the bound is %d", used, 1<<20)
	}
}

func TestInspectOfAttachedPlugins(t *testing.T) {
	var seen calls
	socket := filepath.Join(testplugin.SocketFolder(t), "p.sock")
	testplugin.Serve(t, socket, func(s *grpc.Server) { pluginv1.RegisterLifecycleServer(s, lifecycle{}) }, grpc.UnaryInterceptor(seen.intercept))
	cfg := host.Config{Plugins: "unix://" + socket + ",unix:///nowhere/x.sock", Environ: []string{"LANG=C"}, Context: host.Context{Job: "01020304"}}
	for _, launch := range []bool{false, true} {
		got := host.Inspect(t.Context(), cfg, launch)
		missing := errors.New("attach to /nowhere/x.sock: there is no such socket; start the plugin there (--listen), or check the path")
		want := []host.Inspection{
			{Name: "p", Where: "unix://" + socket, Path: socket, Attached: true},
			{Name: "x", Where: "unix:///nowhere/x.sock", Path: "/nowhere/x.sock", Attached: true, Err: missing},
		}
		if launch {
			want[0].Described = true
			want[0].About = host.About{Name: "attached", Version: "1.0", Patterns: []string{"LANG", "SECRET_*"}}
			want[0].MaxBatchSpans, want[0].MaxBatchBytes, want[0].MaxConcurrency = 30, wire.DefaultMaxBatchBytes, 1
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(host.Inspection{}), cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })); diff != "" {
			t.Errorf("launch %v (-want +got):\n%s", launch, diff)
		}
	}
	if diff := cmp.Diff([]string{pluginv1.Lifecycle_Describe_FullMethodName}, seen.methods); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestAttachingBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials []time.Time
		h := fakeHost(t, func(int) (*fakePlugin, error) {
			dials = append(dials, time.Now())
			return nil, errors.New("no listener")
		}, func(c *host.Config) { c.Plugins = "unix:///fake.sock" })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		want := firstRestart
		for i := 1; i < len(dials); i++ {
			if pause := dials[i].Sub(dials[i-1]); pause < want/2 || pause > want+want/2 {
				t.Errorf("pause before attempt %d is %v, want %v with jitter", i+1, pause, want)
			}
			want = min(2*want, longestDial)
		}
		if len(dials) < 40 {
			t.Errorf("%d attempts in 5 minutes", len(dials))
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestHungAttachedPluginIsDialledAgain: it answers no call and no health check;
// its connection ends, and batches go to the next.
func TestHungAttachedPluginIsDialledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			if n > 1 {
				return newFakePlugin(func(context.Context, int) error { return nil }), nil
			}
			hang := func(ctx context.Context) error { <-ctx.Done(); return status.FromContextError(ctx.Err()).Err() }
			p := newFakePlugin(func(ctx context.Context, _ int) error { return hang(ctx) })
			p.health = hang
			return p, nil
		}, func(c *host.Config) { c.Plugins = "unix:///fake.sock" })
		endSpans(h, 10)
		begun := time.Now()
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > host.DefaultExportTimeout+healthTime+longestRestart {
			t.Errorf("delivered after %v", took)
		}
		if x := h.Stats().Exporters[0]; x.Delivered != 10 || x.Starts != 2 {
			t.Errorf("%d delivered by %d connections, want 10 by 2", x.Delivered, x.Starts)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestReceiverThatSendsItsClientsAway: collectors end each connection after a
// while, calls in flight aside, to spread their load.
func TestReceiverThatSendsItsClientsAway(t *testing.T) {
	t.Parallel() // it waits for processes
	socket := filepath.Join(testplugin.SocketFolder(t), "p.sock")
	var mu sync.Mutex
	got := map[string]int{}
	testplugin.Serve(t, socket, func(s *grpc.Server) {
		coltracepb.RegisterTraceServiceServer(s, traces{export: func(_ context.Context, names []string) error {
			mu.Lock()
			defer mu.Unlock()
			for _, name := range names {
				got[name]++
			}
			return nil
		}})
	}, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 2 * steadyDial}))
	h := startHost(t, func(c *host.Config) { c.BatchSpans = 50 }, "unix://"+socket)
	sent := 0
	testplugin.WaitFor(t, "some connections", func() bool {
		h.spans(fmt.Sprintf("r%d", sent), 100)
		sent++ // every 5 ms
		return h.Stats().Exporters[0].Starts >= 3
	})
	h.flush()
	h.wantCounts(0, map[string]uint64{"delivered": uint64(100 * sent)})
	mu.Lock()
	defer mu.Unlock()
	twice := 0
	for _, n := range got {
		if n > 1 {
			twice++
		}
	}
	if len(got) != 100*sent || twice > 0 {
		t.Errorf("%d different spans delivered, %d of them more than once; want %d and none", len(got), twice, 100*sent)
	}
	if log := h.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		t.Error("the log speaks of trouble")
	}
}

// TestAttachedPluginThatLeavesIsNotCutOff: it wants no more calls and has two.
// One fails, which is no reason to close the connection over the other.
func TestAttachedPluginThatLeavesIsNotCutOff(t *testing.T) {
	t.Parallel() // it waits for processes
	socket := filepath.Join(testplugin.SocketFolder(t), "p.sock")
	arrived, fail, cut := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	old := testplugin.Serve(t, socket, func(s *grpc.Server) {
		coltracepb.RegisterTraceServiceServer(s, traces{export: func(ctx context.Context, names []string) error {
			arrived <- struct{}{}
			<-fail
			if strings.HasPrefix(names[0], "a-") {
				return status.Error(codes.Unavailable, "the back end is down")
			}
			select {
			case <-ctx.Done():
				cut <- true
			case <-time.After(healthTime + time.Second):
				cut <- false
			}
			return nil
		}})
	})
	h := makeHost(t, func(c *host.Config) { c.ExportTimeout = time.Minute }, "unix://"+socket)
	connect, conns := h.Supervisor().Connect, make(chan *grpc.ClientConn, 10)
	h.Supervisor().Connect = func(ctx context.Context, c *supervise.Settings, p supervise.Plan, log *slog.Logger) (supervise.Peer, error) {
		to, err := connect(ctx, c, p, log)
		if err == nil {
			conns <- to.Conn().(*grpc.ClientConn)
		}
		return to, err
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := <-conns
	for _, name := range []string{"a", "b"} {
		h.spans(name, 1)
		<-arrived
	}
	var stopping sync.WaitGroup
	stopping.Go(old.GracefulStop)
	testplugin.WaitFor(t, "the host to be told", func() bool {
		return conn.GetState() != connectivity.Ready
	})
	testplugin.Serve(t, socket, func(s *grpc.Server) {
		coltracepb.RegisterTraceServiceServer(s, traces{export: func(context.Context, []string) error { return nil }})
	})
	close(fail)
	if <-cut {
		t.Error("the connection was closed over a call")
	}
	stopping.Wait()
	h.flush()
	h.wantCounts(0, map[string]uint64{"delivered": 2})
	if strings.Contains(h.log.String(), attachedHung) {
		t.Error("the log says that the plugin hangs")
	}
}

// TestShutdownWhileAttaching: the server accepts the connection and sends nothing.
// Shutdown does not wait for it, and the log has the reason for the lost spans.
func TestShutdownWhileAttaching(t *testing.T) {
	socket := filepath.Join(testplugin.SocketFolder(t), "p.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	h := startHost(t, func(c *host.Config) { c.StartTimeout = time.Hour }, "unix://"+socket)
	h.spans("s", 10)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	begun := time.Now()
	if err := h.Shutdown(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown = %v, want its deadline", err)
	}
	if took := time.Since(begun); took > 4*time.Second { // of 1 s; the machine may be busy
		t.Errorf("Shutdown took %v", took)
	}
	h.wantCounts(0, map[string]uint64{"dropped shutdown": 10})
	want := "last_error=\"attach to " + socket + ": no answer yet: the host shuts down\""
	if !strings.Contains(h.log.String(), want) {
		t.Errorf("the log does not say %s", want)
	}
}

// kinds is a plugin that describes an unknown kind while strange is set.
type kinds struct {
	pluginv1.UnimplementedLifecycleServer
	strange atomic.Bool
}

func (k *kinds) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	if k.strange.Load() {
		return &pluginv1.DescribeResponse{Name: "kinds", Kind: 4711}, nil
	}
	return &pluginv1.DescribeResponse{Name: "kinds", Kind: pluginv1.Kind_KIND_EXPORTER}, nil
}

func (*kinds) Flush(context.Context, *pluginv1.FlushRequest) (*pluginv1.FlushResponse, error) {
	return &pluginv1.FlushResponse{}, nil
}

// TestAttachedPluginThatIsIncompatibleIsTriedAgain: another program may listen at the
// socket at any time, so the log does not ask for another file.
func TestAttachedPluginThatIsIncompatibleIsTriedAgain(t *testing.T) {
	socket := filepath.Join(testplugin.SocketFolder(t), "p.sock")
	var k kinds
	k.strange.Store(true)
	testplugin.Serve(t, socket, func(s *grpc.Server) {
		pluginv1.RegisterLifecycleServer(s, &k)
		coltracepb.RegisterTraceServiceServer(s, traces{export: func(context.Context, []string) error { return nil }})
	})
	h := startHost(t, nil, "unix://"+socket)
	h.spans("s", 10)
	testplugin.WaitFor(t, "the state", func() bool { return h.Stats().Exporters[0].State == host.StateIncompatible })
	k.strange.Store(false)
	h.flush()
	h.wantCounts(0, map[string]uint64{"delivered": 10})
	wantLines(t, h.log.String(), map[string]int{
		"is incompatible; the socket is tried again with growing pauses": 1,
		"until its file changes": 0,
	})
}
