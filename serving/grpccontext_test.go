package serving_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
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
	r := startGRPC(t, serving.Config{}, testService{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
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

// TestGRPCContextEndsAsked: what a handler has derived from its context, and leaves
// behind, ends as its call ends well.
func TestGRPCContextEndsAsked(t *testing.T) {
	calls, ends := make(chan context.Context, 1), make(chan struct{}, 1)
	var cancel context.CancelFunc
	r := startGRPC(t, serving.Config{}, testService{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		ctx, cancel = context.WithTimeout(ctx, time.Hour)
		context.AfterFunc(ctx, func() { ends <- struct{}{} })
		calls <- ctx
		return &pb.SimpleResponse{}, nil
	}})
	if err := r.unaryCall(); err != nil {
		t.Fatal(err)
	}
	servingtest.Receive(t, "the end of what is derived", ends)
	if inner := <-calls; context.Cause(inner) != context.Canceled {
		t.Errorf("cause of what is derived: %v, want %v", context.Cause(inner), context.Canceled)
	}
	cancel()
}

// askingError is an error of a handler that asks its call's context what it is.
type askingError struct{ ctx context.Context }

func (e *askingError) Error() string { return "asked" }
func (e *askingError) Unwrap() error { return context.Cause(e.ctx) }

// GRPCStatus is for package status.
func (e *askingError) GRPCStatus() *status.Status {
	if e.ctx.Err() != nil {
		return status.FromContextError(e.ctx.Err())
	}
	return status.New(codes.NotFound, "asked")
}

// TestGRPCErrorAsksContext: what a handler fails with may ask the context, whose
// call is just ending.
func TestGRPCErrorAsksContext(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return nil, &askingError{ctx}
	}})
	if got, want := told(r.unaryCall()), "NOT_FOUND: asked"; got != want {
		t.Errorf("client was told %q, want %q", got, want)
	}
}
