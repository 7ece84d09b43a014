package serving

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "google.golang.org/grpc/interop/grpc_testing"
)

// TestGRPCContextEndsConcurrentSafe has goroutines that a handler leaves behind ask
// its context for its end, for the first time: as the call ends, and once it has.
func TestGRPCContextEndsConcurrentSafe(t *testing.T) {
	asks := map[string]func(context.Context) error{
		"Err":   context.Context.Err,
		"Cause": context.Cause,
		"Done":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"derived": func(ctx context.Context) error {
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			<-inner.Done()
			return context.Cause(inner)
		},
		"AfterFunc": func(ctx context.Context) error {
			over := make(chan struct{})
			context.AfterFunc(ctx, func() { close(over) })
			<-over
			return ctx.Err()
		},
	}
	var ask func(context.Context) error
	ends, calls := make(chan error, 1), make(chan context.Context, 1)
	r := startGRPC(t, Config{}, testService{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		if err := ctx.Err(); err != nil {
			t.Errorf("in the handler: %v", err)
		}
		if f := ask; f != nil {
			go func() { ends <- f(ctx) }() // ends with the call
		}
		calls <- ctx
		return &pb.SimpleResponse{}, nil
	}})
	for name, f := range asks {
		ask = nil
		if err := r.unaryCall(); err != nil {
			t.Fatal(err)
		}
		if err := f(<-calls); !errors.Is(err, context.Canceled) {
			t.Errorf("%s after the call: %v, want %v", name, err, context.Canceled)
		}
		if name == "Err" || name == "Cause" {
			continue // these do not wait
		}
		ask = f
		if err := r.unaryCall(); err != nil {
			t.Fatal(err)
		}
		if err := <-ends; !errors.Is(err, context.Canceled) {
			t.Errorf("%s at the end of the call: %v, want %v", name, err, context.Canceled)
		}
		if ctx := <-calls; ctx.Err() == nil {
			t.Errorf("%s: the call's context has not ended with it", name)
		}
	}
}

// TestGRPCContextPrinted: to print the context of a call reads nothing that changes.
func TestGRPCContextPrinted(t *testing.T) {
	c := &rpc{full: "/s/m"}
	if got := fmt.Sprint(context.WithValue((*rpcContext)(c), runningKey{}, 1)); !strings.HasPrefix(got, "gRPC call /s/m.") {
		t.Errorf("printed as %q", got)
	}
}
