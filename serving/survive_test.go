package serving_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// breakable is a user's log and a span processor that panic once armed.
type breakable struct {
	slog.Handler
	sdktrace.SpanProcessor

	lines *lineLog
	at    atomic.Value // the message of the lines that panic
	all   atomic.Bool  // lines
	spans atomic.Bool  // as they end
}

func newBreakable() *breakable {
	b := &breakable{SpanProcessor: newSpanLog(), lines: newLineLog()}
	b.Handler = slog.NewJSONHandler(b.lines, nil)
	return b
}

func (b *breakable) mend() {
	b.at.Store("")
	b.all.Store(false)
	b.spans.Store(false)
}

func (b *breakable) Enabled(ctx context.Context, level slog.Level) bool {
	if b.all.Load() {
		panic(errBoom)
	}
	return b.Handler.Enabled(ctx, level)
}

func (b *breakable) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == b.at.Load() {
		panic(errBoom)
	}
	return b.Handler.Handle(ctx, r)
}

func (b *breakable) OnEnd(s sdktrace.ReadOnlySpan) {
	if b.spans.Load() {
		panic(errBoom)
	}
	b.SpanProcessor.OnEnd(s)
}

// serve serves the app with b. What is left when the test ends is a failure, as
// always.
func (b *breakable) serve(t *testing.T, cfg serving.Config, app *serving.App) *rig {
	t.Helper()
	r := &rig{t: t, access: b.lines, client: &http.Client{Transport: &http.Transport{}}}
	cfg.HTTPAddr = "127.0.0.1:0"
	var err error
	r.server, err = serving.New(cfg, []*serving.App{app}, serving.WithTracing(provider(t, b)), serving.WithLogger(slog.New(b)))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mend()
		r.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), servingtest.Patience)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return r
}

// idle waits until nothing is under way.
func (r *rig) idle() {
	r.t.Helper()
	servingtest.Await(r.t, "all requests to be over", func() bool {
		requests, handlers := r.server.Counter().Counts()
		return requests == 0 && handlers == 0
	})
}

// TestPanicAtATimeout of what is the user's and no handler: the client has its
// answer, the process goes on, and nothing is counted as under way.
func TestPanicAtATimeout(t *testing.T) {
	for name, arm := range map[string]func(*breakable){
		"a line of the log":   func(b *breakable) { b.at.Store("request") },
		"all of the log":      func(b *breakable) { b.all.Store(true) },
		"a span's end":        func(b *breakable) { b.spans.Store(true) },
		"the log and the end": func(b *breakable) { b.at.Store("request"); b.spans.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is the timeout, in which the handler has to be entered
			leave := make(chan struct{})
			b := newBreakable()
			r := b.serve(t, serving.Config{RequestTimeout: roomyTimeout}, serving.NewApp("a", serving.NewDeployment("D",
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					arm(b)
					<-leave
				}))))
			resp, err := http.ReadResponse(bufio.NewReader(r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusRequestTimeout {
				t.Errorf("status %d, error %v", resp.StatusCode, err)
			}
			_ = resp.Body.Close()
			servingtest.Await(t, "the request to be over", func() bool { n, _ := r.server.Counter().Counts(); return n == 0 })
			if !b.all.Load() {
				if line := b.lines.take(t, "panic around a handler", 1)[0]; line["panic"] != errBoom.Error() {
					t.Errorf("line %v", line)
				}
			}
			b.mend()
			close(leave)
			r.idle()
		})
	}
}

// TestPanicAroundAHandler that does not run on net/http's goroutine.
func TestPanicAroundAHandler(t *testing.T) {
	for name, arm := range map[string]func(*breakable){
		"a line of the log": func(b *breakable) { b.at.Store("request") },
		"a panic's line":    func(b *breakable) { b.at.Store("handler panicked") },
		"all of the log":    func(b *breakable) { b.all.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBreakable()
			r := b.serve(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("D",
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(errBoom) }))))
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetUnencryptedHTTP2(true)
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			arm(b)
			for range 2 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url("/"), nil)
				if err != nil {
					t.Fatal(err)
				}
				if resp, err := client.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			}
			r.idle()
		})
	}
}

// TestPanicAroundAHandlerOfGRPC ends its call, and no more.
func TestPanicAroundAHandlerOfGRPC(t *testing.T) {
	for name, arm := range map[string]func(*breakable){
		"a line of the log": func(b *breakable) { b.at.Store("request") },
		"a panic's line":    func(b *breakable) { b.at.Store("handler panicked") },
		"all of the log":    func(b *breakable) { b.all.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			d := serving.NewDeployment("D", nil)
			pb.RegisterTestServiceServer(d, testService{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				panic(errBoom)
			}})
			b := newBreakable()
			r := b.serve(t, serving.Config{GRPC: serving.GRPCConfig{Addr: "127.0.0.1:0"}}, serving.NewApp("a", d))
			stub := pb.NewTestServiceClient(dialGRPC(t, r.server.GRPCAddr().String()))
			arm(b)
			for range 2 {
				if _, err := stub.UnaryCall(patient(t), &pb.SimpleRequest{}); told(err) != "INTERNAL: Internal server error." {
					t.Errorf("client was told %v", err)
				}
			}
			r.idle()
		})
	}
}
