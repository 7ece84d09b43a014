package servetrace

import (
	"context"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const echoMethod = "/test.Echo/Say"

// echoService answers with the request, under a span of its own.
var echoService = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Say",
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			_, span := otel.Tracer("service").Start(ctx, "user")
			defer span.End()
			said := new(wrapperspb.StringValue)
			return said, decode(said)
		},
	}},
}

// calls counts the results of gRPC clients under load.
type calls struct {
	served atomic.Int64
	away   atomic.Int64 // UNAVAILABLE: turned away, or no connection

	mu    sync.Mutex
	other []error
}

// loadRPC runs clients that make calls until each was refused or more returns false. The
// channel is closed then.
func loadRPC(t *testing.T, p *proc, clients int, more func() bool) (*calls, <-chan struct{}) {
	t.Helper()
	found := regexp.MustCompile(`\bgrpc=(\S+)`).FindStringSubmatch(p.log.String())
	if found == nil {
		t.Fatalf("the log does not say where gRPC is:\n%s", p.log)
	}
	seen, done := new(calls), make(chan struct{})
	var group sync.WaitGroup
	for range clients {
		conn, err := grpc.NewClient("passthrough:///"+found[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			defer func() { _ = conn.Close() }()
			for more() && seen.one(conn) {
			}
		})
	}
	go func() { // ends with the clients
		group.Wait()
		close(done)
	}()
	return seen, done
}

func (c *calls) one(conn *grpc.ClientConn) bool {
	var answer wrapperspb.StringValue
	err := conn.Invoke(context.Background(), echoMethod, wrapperspb.String("hello"), &answer)
	switch {
	case err == nil && answer.GetValue() == "hello":
		c.served.Add(1)
		return true
	case status.Code(err) == codes.Unavailable:
		c.away.Add(1)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.other = append(c.other, err)
	}
	return false
}
