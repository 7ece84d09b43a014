package serving_test

import (
	"context"
	"log/slog"
	"net"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/tracing"
)

// BenchmarkGRPC measures a unary call over the loopback, client and all: to a
// grpc.Server, and to ours without tracing, with a trace that is not sampled and
// with one that is, whose spans nobody takes. The difference is what the runtime
// costs.
func BenchmarkGRPC(b *testing.B) {
	answer := &pb.SimpleResponse{}
	service := testService{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { return answer, nil }}
	b.Run("native", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		s := grpc.NewServer()
		pb.RegisterTestServiceServer(s, service)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		benchmarkCalls(b, l.Addr().String(), "")
		s.Stop()
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	none := func(testing.TB) *tracing.Provider { return tracing.Off() }
	on := func(tb testing.TB) *tracing.Provider { return provider(tb, nowhere{}) }
	for name, c := range map[string]struct {
		provider    func(testing.TB) *tracing.Provider
		traceparent string
	}{
		"off":       {none, ""},
		"unsampled": {on, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"},
		"sampled":   {on, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
	} {
		b.Run(name, func(b *testing.B) {
			d := serving.NewDeployment("D", nil, serving.WithMaxOngoingRequests(1000))
			pb.RegisterTestServiceServer(d, service)
			cfg := serving.Config{HTTPAddr: "127.0.0.1:0", GRPC: serving.GRPCConfig{Addr: "127.0.0.1:0"}, QuietAccessLog: true}
			s, err := serving.New(cfg, []*serving.App{serving.NewApp("a", d)}, serving.WithTracing(c.provider(b)), serving.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			benchmarkCalls(b, s.GRPCAddr().String(), c.traceparent)
			if err := s.Shutdown(context.Background()); err != nil {
				b.Error(err)
			}
		})
	}
}

func benchmarkCalls(b *testing.B, addr, traceparent string) {
	conn := dialGRPC(b, addr)
	stub := pb.NewTestServiceClient(conn)
	ctx := b.Context()
	if traceparent != "" {
		ctx = with(ctx, "traceparent", traceparent)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := stub.UnaryCall(ctx, &pb.SimpleRequest{}); err != nil {
			b.Fatal(err)
		}
	}
	_ = conn.Close() // else the server waits for it
}

// nowhere takes spans and drops them.
type nowhere struct{}

func (nowhere) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (nowhere) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (nowhere) ForceFlush(context.Context) error                { return nil }
func (nowhere) Shutdown(context.Context) error                  { return nil }
