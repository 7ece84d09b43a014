package supervise

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	"github.com/servetrace/servetrace/test/testplugin"
)

func TestMain(m *testing.M) {
	testplugin.Main()
	if os.Getenv(envFullDisk) != "" {
		fillDisk()
		return
	}
	goleak.VerifyTestMain(m)
}

// testPlugin returns a plugin that is not started, with a pipeline of its own.
func testPlugin(t *testing.T) *Plugin {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	p := pipeline.New(pipeline.Settings{
		QueueBytes: 32 << 20, MaxSpanBytes: 1 << 20, BatchAge: time.Hour, BatchSpans: 10, BatchBytes: 768 << 10, MaxAge: time.Minute,
	}, log)
	s := New(Settings{
		Plugins: &pluginlist.Settings{Environ: os.Environ()}, Context: &pluginv1.StaticContext{},
		ExportTimeout: 10 * time.Second, MaxAge: time.Minute, StartTimeout: 10 * time.Second,
	}, p, log)
	x := s.Plugin(pluginlist.Entry{Name: "plugin", Where: "/no/plugin"})
	p.Join(x.Queue)
	t.Cleanup(func() { x.Queue.DropRest(); x.stop(nil) })
	return x
}

// sealOne makes a batch of ten spans.
func sealOne(x *Plugin) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	for range 10 {
		_, span := tracer.Start(context.Background(), "span")
		span.End()
	}
	for _, s := range recorder.Ended() {
		if g, ok := sdkspan.GistOf(s); ok {
			x.sup.pipeline.Add(s, g)
		}
	}
	x.sup.pipeline.Flush()
}

// peerFake is a process, and its connection, which answers by answer. Nil: OK.
type peerFake struct {
	grpc.ClientConnInterface
	conn   grpc.ClientConnInterface
	answer func(ctx context.Context, method string, args any) error
	onKill func() // nil: it dies at once
	done   chan struct{}
	over   sync.Once
}

func newPeerFake(answer func(ctx context.Context, method string, args any) error) *peerFake {
	f := &peerFake{answer: answer, done: make(chan struct{})}
	f.conn = f
	return f
}

func (f *peerFake) Invoke(ctx context.Context, method string, args, _ any, _ ...grpc.CallOption) error {
	if f.answer == nil {
		return nil
	}
	return f.answer(ctx, method, args)
}

func (f *peerFake) Conn() grpc.ClientConnInterface { return f.conn }
func (f *peerFake) PID() int                       { return 1 }
func (f *peerFake) Done() <-chan struct{}          { return f.done }
func (f *peerFake) Exit() string                   { return "fake end" }
func (f *peerFake) die()                           { f.over.Do(func() { close(f.done) }) }
func (f *peerFake) Dump(context.Context)           {}
func (f *peerFake) Leaving() bool                  { return false }
func (f *peerFake) Report() launch.Report          { return launch.Report{} }
func (f *peerFake) Suppressed() uint64             { return 0 }
func (f *peerFake) Unprinted() uint64              { return 0 }
func (f *peerFake) Stop(context.Context) error     { f.die(); return nil }

func (f *peerFake) Kill(string) {
	if f.onKill != nil {
		f.onKill()
		return
	}
	f.die()
}

// wantCounts compares how often texts occur in a log.
func wantCounts(t *testing.T, log string, want map[string]int) {
	t.Helper()
	for text, n := range want {
		if got := strings.Count(log, text); got != n {
			t.Errorf("%q stands %d times in the log, want %d; log:\n%s", text, got, n, log)
		}
	}
}
