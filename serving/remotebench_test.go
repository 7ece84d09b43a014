package serving_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// BenchmarkRemoteCall compares a call to another process with a call in this one, and with
// a unary call of grpc alone. It makes no spans. cpu-ns/op is of both sides.
func BenchmarkRemoteCall(b *testing.B) {
	there, _ := echoer()
	at := untraced(b, serving.CallConfig{Addr: "127.0.0.1:0", Deployments: []string{"B"}}, there)
	here, remote := echoer()
	untraced(b, serving.CallConfig{Remote: map[string]string{"B": "static:///" + at.CallAddr().String()}}, here)
	both, local := echoer()
	untraced(b, serving.CallConfig{}, both)
	for _, bc := range []struct {
		name   string
		handle *serving.Handle[string, string]
	}{{"local", local}, {"remote", remote}, {"idempotent", remote.Idempotent()}} {
		b.Run(bc.name, func(b *testing.B) {
			measure(b, func() error {
				_, err := bc.handle.Call(b.Context(), "hello")
				return err
			})
		})
	}
	b.Run("grpc", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		server := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
		go func() { _ = server.Serve(l) }() // ends by Stop
		defer server.Stop()
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		client := grpc_health_v1.NewHealthClient(conn)
		measure(b, func() error {
			_, err := client.Check(b.Context(), new(grpc_health_v1.HealthCheckRequest))
			return err
		})
	})
}

// untraced returns a started server without spans.
func untraced(b *testing.B, calls serving.CallConfig, d *serving.Deployment) *serving.Server {
	b.Helper()
	app := serving.NewApp("a", serving.NewDeployment("A", noHandler), serving.WithDeployments(d))
	s, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0", Calls: calls}, []*serving.App{app}, serving.WithLogger(discard))
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), servingtest.Patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			b.Error(err)
		}
	})
	return s
}

// measure calls f, and reports its time on the processors.
func measure(b *testing.B, f func() error) {
	if err := f(); err != nil { // it connects
		b.Fatal(err)
	}
	b.ReportAllocs()
	before := onProcessors(b)
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(onProcessors(b)-before)/float64(b.N), "cpu-ns/op")
}

// onProcessors returns the time on processors of this process, in nanoseconds.
func onProcessors(b *testing.B) int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}
