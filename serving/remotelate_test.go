package serving_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	servev1 "github.com/servetrace/servetrace/internal/gen/servetrace/serve/v1"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// newSlot returns a deployment that runs one call at a time, and a handle to echo.
func newSlot() (*serving.Deployment, *serving.Handle[string, string]) {
	d := functions("B", serving.WithMaxOngoingRequests(1))
	serving.AddFunction(d, "sum", func(_ context.Context, in iter.Seq[int]) (total int, _ error) {
		for n := range in {
			total += n
		}
		return total, nil
	})
	serving.AddStream(d, "flood", func(context.Context, int) iter.Seq2[string, error] {
		item := strings.Repeat("x", 32<<10)
		return func(yield func(string, error) bool) {
			for yield(item, nil) {
				continue // until the caller has left
			}
		}
	})
	return d, serving.AddFunction(d, "echo", func(_ context.Context, text string) (string, error) { return text, nil })
}

// freezing is a connection whose reads wait for thawed once frozen is closed, as in a
// process that is stopped.
type freezing struct {
	net.Conn

	frozen, thawed <-chan struct{}
}

// Read implements [net.Conn].
func (c freezing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.frozen:
		<-c.thawed
	default:
	}
	return n, err
}

// dialCalls returns a client for calls at r. Its connection is not read once frozen is
// closed.
func dialCalls(t *testing.T, r *rig, frozen <-chan struct{}) servev1.CallsClient {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+r.server.CallAddr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			return freezing{conn, frozen, t.Context().Done()}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return servev1.NewCallsClient(c)
}

// TestNoSlotBeyondTheDeadline: a caller that sends no argument, or reads no results, has its
// slot until the deadline of its call.
func TestNoSlotBeyondTheDeadline(t *testing.T) {
	there, _ := newSlot()
	here, echo := newSlot()
	b := callee(t, there)
	callerOf(t, nil2, []*rig{b}, here)
	for _, k := range []struct {
		name, method string
		argument     string // no argument if empty
		whole        bool
		streaming    bool
		freeze       bool
	}{
		{name: "no argument", method: "echo"},
		{name: "an argument that does not end", method: "sum", argument: "1"},
		{name: "no reader", method: "flood", argument: "1", whole: true, streaming: true},
		{name: "frozen", method: "flood", argument: "1", whole: true, streaming: true, freeze: true},
	} {
		t.Run(k.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), servingtest.Patience)
			defer cancel()
			frozen := make(chan struct{})
			stream, err := dialCalls(t, b, frozen).Call(ctx)
			if err != nil {
				t.Fatal(err)
			}
			start := &servev1.CallStart{
				App: "a", Deployment: "B", Method: k.method, Codec: "proto+json", Streaming: k.streaming,
				TimeoutNs: int64(500 * time.Millisecond),
			}
			first := &servev1.CallRequest{Start: start, Whole: k.whole}
			if k.argument != "" {
				first.Value = []byte(k.argument)
			}
			if err := stream.Send(first); err != nil {
				t.Fatal(err)
			}
			// On a slow machine, the deadline passes first.
			if m, err := stream.Recv(); err == nil && m.GetReplica() == "" || err != nil && status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("the call is not accepted: %v, %v", m, err)
			}
			if k.freeze {
				close(frozen)
			}
			if out, err := echo.Call(ctx, "hello"); out != "hello" || err != nil {
				t.Errorf("call of another process: %q, %v", out, err)
			}
			if k.freeze {
				return
			}
			for err == nil { // what was sent before
				_, err = stream.Recv()
			}
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("end of the stream: %v", err)
			}
		})
	}
	servingtest.Await(t, "no call is in user code", func() bool {
		_, handlers := b.server.Counter().Counts()
		return handlers == 0
	})
}

// TestShutdownBesideAStuckCall: the context of Shutdown bounds its wait for a call of another
// process whose function does not return.
func TestShutdownBesideAStuckCall(t *testing.T) {
	runs, leave := make(chan struct{}, 1), make(chan struct{})
	deployment := func() (*serving.Deployment, *serving.Handle[string, string]) {
		d := functions("B")
		return d, serving.AddFunction(d, "stuck", func(context.Context, string) (string, error) {
			runs <- struct{}{}
			<-leave
			return "", nil
		})
	}
	there, _ := deployment()
	here, stuck := deployment()
	b := callee(t, there)
	callerOf(t, nil2, []*rig{b}, here)
	b.wantShutdown = "drain: 0 requests cut off, 1 handlers still running: context canceled"
	lost, stopped := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := stuck.Call(t.Context(), "")
		lost <- err
	}()
	servingtest.Receive(t, "begin of the call", runs)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go func() { stopped <- b.server.Shutdown(ctx) }()
	if err := servingtest.Receive(t, "end of the stop", stopped); fmt.Sprint(err) != b.wantShutdown {
		t.Errorf("stop: %v", err)
	}
	if err := servingtest.Receive(t, "end of the call", lost); !errors.Is(err, serving.ErrReplicaLost) {
		t.Errorf("call: %v", err)
	}
	close(leave)
	servingtest.Await(t, "the function has returned", func() bool {
		_, handlers := b.server.Counter().Counts()
		return handlers == 0
	})
}
