package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/supervise"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/test/testplugin"
)

// fakePlugin is a process and its connection, for tests of policy in fake time.
type fakePlugin struct {
	export func(ctx context.Context, attempt int) error
	// exportID is asked instead of export, by the id of the batch, and begin
	// before gRPC takes the bytes: its error is that there is no connection.
	begin    func(id string) error
	exportID func(ctx context.Context, id string) error
	health   func(ctx context.Context) error // nil: it is well
	flush    func(ctx context.Context) error // nil: it is done
	limits   *pluginv1.Limits
	reply    []byte // to exports that are well; nil: all delivered
	// patterns are the patterns of Describe; methods are the calls, in order.
	patterns []string
	atStart  bool // as in Describe's env_at_start
	methods  []string
	// configure is the answer to Configure; slowEnd: it ends by being killed.
	configure error
	slowEnd   bool
	slow      time.Duration // of each call but Export
	report    launch.Report // of its end
	onKill    func()        // nil: it dies at once
	dumps     atomic.Int64  // how often it was told to dump
	printed   atomic.Uint64 // lines too many

	mu    sync.Mutex
	calls []time.Duration // since start, of Export calls
	ids   []string        // of their batches
	held  []mem.Buffer    // buffers that this gRPC has not let go of
	hold  bool
	start time.Time
	done  chan struct{}
	over  sync.Once
}

func newFakePlugin(export func(context.Context, int) error) *fakePlugin {
	return &fakePlugin{export: export, start: time.Now(), done: make(chan struct{})}
}

func (f *fakePlugin) Conn() grpc.ClientConnInterface { return f }

func (f *fakePlugin) PID() int              { return 1 }
func (f *fakePlugin) Done() <-chan struct{} { return f.done }
func (f *fakePlugin) Exit() string          { return "fake end" }
func (f *fakePlugin) die()                  { f.over.Do(func() { close(f.done) }) }
func (f *fakePlugin) Dump(context.Context)  { f.dumps.Add(1) }
func (f *fakePlugin) Leaving() bool         { return false }
func (f *fakePlugin) Report() launch.Report { return f.report }
func (f *fakePlugin) Suppressed() uint64    { return f.printed.Load() }
func (f *fakePlugin) Unprinted() uint64     { return 2 * f.printed.Load() }

func (f *fakePlugin) Kill(string) {
	if f.onKill != nil {
		f.onKill()
		return
	}
	f.die()
}

func (f *fakePlugin) Stop(ctx context.Context) error {
	if f.slowEnd {
		<-ctx.Done()
	}
	f.Kill("stopped")
	return nil
}

func (f *fakePlugin) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	f.mu.Lock()
	f.methods = append(f.methods, method)
	f.mu.Unlock()
	if method != wire.ExportMethod && f.slow > 0 {
		select {
		case <-time.After(f.slow):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	switch method {
	case pluginv1.Lifecycle_Describe_FullMethodName:
		reply.(*pluginv1.DescribeResponse).Limits = f.limits
		reply.(*pluginv1.DescribeResponse).EnvPatterns = f.patterns
		reply.(*pluginv1.DescribeResponse).EnvAtStart = f.atStart
		return nil
	case wire.ExportMethod:
	case pluginv1.Lifecycle_Configure_FullMethodName:
		return f.configure
	case healthpb.Health_Check_FullMethodName:
		if f.health != nil {
			return f.health(ctx)
		}
		return nil
	case pluginv1.Lifecycle_Flush_FullMethodName:
		if f.flush != nil {
			return f.flush(ctx)
		}
		return nil
	default:
		return nil
	}
	sent, _ := metadata.FromOutgoingContext(ctx)
	if f.begin != nil {
		if err := f.begin(sent.Get(wire.MetaBatchID)[0]); err != nil {
			return err
		}
	}
	buffers := args.(*wire.Outgoing).Buffers()
	f.mu.Lock()
	f.calls = append(f.calls, time.Since(f.start))
	f.ids = append(f.ids, sent.Get(wire.MetaBatchID)...)
	n := len(f.calls)
	if f.hold {
		f.held = append(f.held, buffers...)
	} else {
		buffers.Free()
	}
	f.mu.Unlock()
	reply.(*wire.Incoming).Data = f.reply
	if f.exportID == nil {
		return f.export(ctx, n)
	}
	err := f.exportID(ctx, sent.Get(wire.MetaBatchID)[0])
	var said *saidError
	if !errors.As(err, &said) {
		return err
	}
	for _, opt := range opts {
		if o, ok := opt.(grpc.TrailerCallOption); ok {
			*o.TrailerAddr = metadata.Pairs("content-type", "application/grpc")
		}
	}
	return said.error
}

// ended reports whether the process has ended.
func (f *fakePlugin) ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// called is how many Export calls there were.
func (f *fakePlugin) called() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// saidError is an error that the plugin itself answers; others are gRPC's.
type saidError struct{ error }

func (e *saidError) Unwrap() error { return e.error }

func (f *fakePlugin) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams here")
}

// fakeHost returns a started Host with launches that are answered by launchFake.
func fakeHost(t *testing.T, launchFake func(n int) (*fakePlugin, error), change func(*host.Config), opts ...host.Option) *host.Host {
	t.Helper()
	cfg := host.Config{Plugins: "/fake/plugin"}
	if change != nil {
		change(&cfg)
	}
	h, err := host.New(cfg, append([]host.Option{host.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	var launches atomic.Int64
	h.Supervisor().Connect = func(context.Context, *supervise.Settings, supervise.Plan, *slog.Logger) (supervise.Peer, error) {
		return launchFake(int(launches.Add(1)))
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

func endSpans(h *host.Host, n int) {
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h)).Tracer("test")
	for i := range n {
		_, span := tracer.Start(context.Background(), fmt.Sprintf("s-%d", i))
		span.End()
	}
}

// within reports whether d is in the half of the pause that jitter leaves.
func within(d, pause time.Duration) bool { return d >= pause/2 && d <= pause }

func TestRetryBacksOffUntilTheBatchIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := newFakePlugin(func(context.Context, int) error { return status.Error(codes.Unavailable, "down") })
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil)
		endSpans(h, 3)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		x := h.Stats().Exporters[0]
		if diff := cmp.Diff(map[string]uint64{"max_age": 3}, x.Dropped); diff != "" || x.Waiting != 0 {
			t.Errorf("dropped (-want +got):\n%s waiting %d", diff, x.Waiting)
		}
		want := firstRetry
		for i := 1; i < len(plugin.calls); i++ {
			if pause := plugin.calls[i] - plugin.calls[i-1]; !within(pause, want) {
				t.Errorf("pause before call %d is %v, want %v with jitter", i+1, pause, want)
			}
			want = min(2*want, longestRetry)
		}
		last := plugin.calls[len(plugin.calls)-1]
		if last < host.DefaultMaxAge-longestRetry || last > host.DefaultMaxAge+host.DefaultBatchAge {
			t.Errorf("last call after %v, want just before %v", last, host.DefaultMaxAge)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestRetryAfterIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := newFakePlugin(func(_ context.Context, n int) error {
			if n == 1 {
				return wire.ToStatus(&wire.Error{Code: wire.CodeRetry, After: 7 * time.Second, Err: errors.New("later")})
			}
			return nil
		})
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil)
		endSpans(h, 1)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if pause := plugin.calls[1] - plugin.calls[0]; pause != 7*time.Second {
			t.Errorf("second call after %v, want 7s", pause)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestRestartBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Time
		h := fakeHost(t, func(int) (*fakePlugin, error) {
			starts = append(starts, time.Now())
			return nil, errors.New("no such plugin")
		}, nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		want := firstRestart
		for i := 1; i < len(starts); i++ {
			if pause := starts[i].Sub(starts[i-1]); !within(pause, want) {
				t.Errorf("pause before start %d is %v, want %v with jitter", i+1, pause, want)
			}
			want = min(2*want, longestRestart)
		}
		if len(starts) < 10 {
			t.Errorf("%d starts in 5 minutes", len(starts))
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestStartThatTakesLongIsNoLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends []time.Time
		h := fakeHost(t, func(int) (*fakePlugin, error) {
			time.Sleep(2 * steadyTime)
			ends = append(ends, time.Now())
			return nil, errors.New("no handshake")
		}, nil)
		time.Sleep(10 * time.Minute)
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		last := len(ends) - 1
		if pause := ends[last].Sub(ends[last-1]) - 2*steadyTime; pause < longestRestart/2 {
			t.Errorf("pause before start %d is %v, want %v with jitter", last+1, pause, longestRestart)
		}
	})
}

func TestWaitingForThePluginHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := fakeHost(t, func(int) (*fakePlugin, error) { return nil, errors.New("no such plugin") }, nil)
		endSpans(h, 5)
		time.Sleep(host.DefaultBatchAge + time.Second)
		synctest.Wait()
		if got := h.Stats().Exporters[0].Waiting; got != 5 {
			t.Errorf("%d spans wait, want 5", got)
		}
		time.Sleep(host.DefaultMaxAge)
		synctest.Wait()
		if got := h.Stats().Exporters[0].Dropped["max_age"]; got != 5 {
			t.Errorf("%d spans dropped for their age, want 5", got)
		}
		if got := h.Stats().Bytes; got != 0 {
			t.Errorf("%d bytes still charged", got)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestBytesThatGRPCHoldsStayCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := newFakePlugin(func(ctx context.Context, _ int) error { <-ctx.Done(); return status.FromContextError(ctx.Err()).Err() })
		plugin.hold = true
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, func(c *host.Config) { c.MaxAge = 15 * time.Second })
		endSpans(h, 100)
		time.Sleep(time.Minute)
		synctest.Wait()
		x := h.Stats().Exporters[0]
		if x.Dropped["max_age"] != 100 {
			t.Errorf("dropped %v, want all for their age", x.Dropped)
		}
		if h.Stats().Bytes == 0 {
			t.Error("nothing charged although gRPC holds the batch")
		}
		plugin.Kill("test")
		synctest.Wait()
		if got := h.Stats().Bytes; got != 0 {
			t.Errorf("%d bytes charged after the connection was closed", got)
		}
		for _, b := range plugin.held {
			b.Free() // gRPC lets go late: nothing may be freed twice
		}
		if got := h.Stats().Bytes; got != 0 {
			t.Errorf("%d bytes charged after a late release", got)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestBrokenConnectionsLeaveNothingCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := newFakePlugin(func(_ context.Context, n int) error {
			if n <= 5 {
				return status.Error(codes.Unavailable, "error reading from server: EOF")
			}
			return nil
		})
		plugin.hold = true // of what was not written to a broken connection
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil)
		endSpans(h, 100)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		plugin.held[5].Free() // the call that was answered OK
		if got := h.Stats().Bytes; got != 0 {
			t.Errorf("%d bytes charged although the batch is delivered", got)
		}
		for _, b := range plugin.held[:5] {
			b.Free() // late: nothing may be freed twice
		}
		if got := h.Stats().Bytes; got != 0 {
			t.Errorf("%d bytes charged after a late release", got)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestConcurrencyIsThePlugins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		plugin := newFakePlugin(func(context.Context, int) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		})
		plugin.limits = &pluginv1.Limits{MaxConcurrency: 2}
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, func(c *host.Config) { c.BatchSpans = 10 })
		endSpans(h, 100)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if most != 2 {
			t.Errorf("%d calls at a time, the plugin takes 2", most)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestRefusedSpansAreToldThoughNoneIsTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := newFakePlugin(func(context.Context, int) error { return nil })
		log := &testplugin.Log{}
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, func(c *host.Config) { c.MaxSpanBytes = 1 },
			host.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		endSpans(h, 5)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := strings.Count(log.String(), "spans are being refused"); got != 1 {
			t.Errorf("told %d times that spans are refused, want once; log:\n%s", got, log)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestTroubleIsToldWhenItBeginsAndWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		plugin := newFakePlugin(func(_ context.Context, n int) error {
			if !up.Load() && n%2 == 1 {
				return status.Error(codes.Aborted, "in turns")
			}
			return nil
		})
		log := &testplugin.Log{}
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil, host.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		rounds := func(n int) {
			for range n {
				endSpans(h, 10)
				time.Sleep(time.Second)
			}
		}
		rounds(60)
		up.Store(true)
		rounds(30)
		for text, want := range map[string]int{"cannot deliver": 1, "delivered again": 1} {
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("%q is told %d times, want %d; log:\n%s", text, got, want, log)
			}
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestDrainingPluginMayAnswer: a plugin that was sent SIGTERM takes no new
// connection, answers the calls that it has, shuts its exporter down and ends.
func TestDrainingPluginMayAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := status.Error(codes.Unavailable, "connection error: no such file or directory")
		var killed atomic.Bool
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			plugin := newFakePlugin(func(context.Context, int) error { return nil })
			if n > 1 {
				return plugin, nil
			}
			plugin.health = func(context.Context) error { return down }
			plugin.export = func(ctx context.Context, n int) error {
				if n > 1 {
					return down
				}
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
					killed.Store(true)
					return status.FromContextError(ctx.Err()).Err()
				}
				time.AfterFunc(time.Second, func() { // for its exporter's shutdown
					select {
					case <-plugin.done:
						killed.Store(true)
					default:
						plugin.Kill("test")
					}
				})
				return nil
			}
			return plugin, nil
		}, nil)
		for range 4 {
			endSpans(h, 10)
			time.Sleep(time.Second)
		}
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if killed.Load() {
			t.Error("the plugin was killed while it drained")
		}
		if x := h.Stats().Exporters[0]; x.Delivered != 40 || x.Starts != 2 {
			t.Errorf("%d delivered by %d processes, want 40 by 2", x.Delivered, x.Starts)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestPartialSuccessWithoutAWordIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := newFakePlugin(well)
		reply, err := proto.Marshal(&coltracepb.ExportTraceServiceResponse{
			PartialSuccess: &coltracepb.ExportTracePartialSuccess{RejectedSpans: 3},
		})
		if err != nil {
			t.Fatal(err)
		}
		plugin.reply = reply
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil)
		endSpans(h, 10)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if x := h.Stats().Exporters[0]; x.LastError == "" || x.Rejected["PARTIAL_SUCCESS"] != 3 {
			t.Errorf("last error %q, rejected %v; want an error, and three spans", x.LastError, x.Rejected)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
