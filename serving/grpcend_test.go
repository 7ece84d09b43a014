package serving_test

import (
	"context"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// deaf is a handler that ignores its context until it is let go; then it tells
// what its context and its stream say.
type deaf struct {
	entered chan context.Context
	release chan struct{}
	after   chan deafNote
}

type deafNote struct {
	Cause      error
	Send, Recv string
	Header     bool // whether SetHeader failed
}

func newDeaf() *deaf {
	return &deaf{make(chan context.Context, 256), make(chan struct{}), make(chan deafNote, 256)}
}

func (d *deaf) service() testService {
	return testService{
		unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			d.entered <- ctx
			<-d.release
			return &pb.SimpleResponse{}, nil
		},
		bidi: func(stream pb.TestService_FullDuplexCallServer) error {
			d.entered <- stream.Context()
			<-d.release
			stream.SetTrailer(metadata.Pairs("late", "1"))
			err := stream.Send(&pb.StreamingOutputCallResponse{})
			_, recvErr := stream.Recv()
			d.after <- deafNote{
				Cause:  context.Cause(stream.Context()),
				Send:   told(err),
				Recv:   told(recvErr),
				Header: stream.SetHeader(metadata.Pairs("late", "1")) != nil,
			}
			return nil
		},
	}
}

// TestGRPCTimeout is G5, our own timeout: the client has its answer while the
// handler still runs, and the handler can do no harm afterwards.
func TestGRPCTimeout(t *testing.T) {
	d := newDeaf()
	r := startGRPC(t, serving.Config{GRPC: serving.GRPCConfig{RequestTimeout: soon}}, d.service(), onlyOne()...)
	stream, err := r.stub.FullDuplexCall(with(patient(t), metaRequestID, "mine"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if got, want := told(err), "DEADLINE_EXCEEDED: Request mine timed out after 0.3s."; got != want {
		t.Errorf("client was told %q, want %q", got, want)
	}
	if got := stream.Trailer()[metaRequestID]; len(got) != 1 || got[0] != "mine" {
		t.Errorf("trailer %v, want the request id", stream.Trailer())
	}
	r.spans.has(t, "proxy_grpc_request code=DEADLINE_EXCEEDED ERROR() event(context.DeadlineExceeded True)")
	if n := len(r.spans.all()); n != 2 { // the replica's is open
		t.Errorf("%d spans while the handler runs, want 2", n)
	}
	close(d.release)
	want := deafNote{
		Cause:  serving.ErrRequestTimeout,
		Send:   "DEADLINE_EXCEEDED: request timed out",
		Recv:   "DEADLINE_EXCEEDED: request timed out",
		Header: true,
	}
	if diff := cmp.Diff(want, servingtest.Receive(t, "the handler's end", d.after), cmp.Comparer(sameError)); diff != "" {
		t.Errorf("after the timeout (-want +got):\n%s", diff)
	}
	r.spans.has(t, "replica_handle_request event(context.DeadlineExceeded False)")
	r.slotsFree()
}

func sameError(a, b error) bool { return a == b }

// TestGRPCTimeoutInQueue is G5 for a call that no replica has taken yet.
func TestGRPCTimeoutInQueue(t *testing.T) {
	d := newDeaf()
	r := startGRPC(t, serving.Config{}, d.service(), onlyOne()...)
	defer close(d.release)
	go func() { _ = r.unaryCall() }()
	servingtest.Receive(t, "the first call", d.entered)
	c := r.raw() // whose deadline begins when the server has the call
	c.open("/grpc.testing.TestService/UnaryCall", "grpc-timeout", "300m")
	c.message(0, true)
	if got := c.end(c.stream); got != "4" && got != http2.ErrCodeCancel.String() { // grpc resets the stream at the deadline
		t.Errorf("client was told %s, want 4 (DEADLINE_EXCEEDED)", got)
	}
	r.spans.has(t, "proxy_grpc_request code=DEADLINE_EXCEEDED ERROR() event(context.DeadlineExceeded True)")
	r.spans.has(t, "route_to_replica event(context.DeadlineExceeded True)")
}

// TestGRPCClientGivesUp is G5 with the client's own deadline, and G6, a client
// that cancels, or whose connection breaks.
func TestGRPCClientGivesUp(t *testing.T) {
	for name, test := range map[string]struct {
		giveUp func(r *grpcRig, cancel func())
		ctx    func() (context.Context, context.CancelFunc)
		proxy  string
		cause  error // of the handler's context
	}{
		"deadline": {
			func(*grpcRig, func()) {},
			// An eighth of it is what the request may take to arrive, see clientEnded.
			func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 5*soon) },
			"code=DEADLINE_EXCEEDED ERROR() event(context.DeadlineExceeded True)",
			serving.ErrClientDeadline,
		},
		"cancel": {
			func(_ *grpcRig, cancel func()) { cancel() },
			func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
			"code=CANCELLED ERROR() event(context.Canceled True)",
			serving.ErrClientGone,
		},
		"connection": {
			func(r *grpcRig, _ func()) { _ = r.conn.Close() },
			func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
			"code=CANCELLED ERROR() event(context.Canceled True)",
			serving.ErrClientGone,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			entered := make(chan struct{})
			r := startGRPC(t, serving.Config{}, testService{bidi: func(stream pb.TestService_FullDuplexCallServer) error {
				close(entered)
				_, err := stream.Recv() // ends with the call
				<-stream.Context().Done()
				ended <- context.Cause(stream.Context())
				return err
			}}, onlyOne()...)
			ctx, cancel := test.ctx()
			defer cancel()
			stream, err := r.stub.FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			servingtest.Receive(t, "the handler", entered)
			test.giveUp(r, cancel)
			if _, err := stream.Recv(); err == nil {
				t.Error("the client heard nothing of the end")
			}
			if got := servingtest.Receive(t, "the handler's end", ended); !sameError(got, test.cause) {
				t.Errorf("cause of the handler's context: %v, want %v", got, test.cause)
			}
			r.spans.has(t, "proxy_grpc_request "+test.proxy)
			r.spans.has(t, "replica_handle_request"+proxyEvent(test.proxy))
			r.slotsFree()
		})
	}
}

// TestGRPCClientGivesUpUnheeded: a client that leaves does not wait for a handler
// that has asked its context for nothing, and that one's context has ended.
func TestGRPCClientGivesUpUnheeded(t *testing.T) {
	d := newDeaf()
	r := startGRPC(t, serving.Config{}, d.service())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, test := range map[string]struct {
		call, giveUp func()
		proxy        string
		err, cause   error // of the handler's context
	}{
		"cancel": {
			func() { _, _ = r.stub.FullDuplexCall(ctx) }, cancel,
			"code=CANCELLED ERROR() event(context.Canceled True)", context.Canceled, serving.ErrClientGone,
		},
		"deadline": {
			func() { r.raw().open("/grpc.testing.TestService/FullDuplexCall", "grpc-timeout", "300m") }, func() {},
			"code=DEADLINE_EXCEEDED ERROR() event(context.DeadlineExceeded True)", context.DeadlineExceeded, serving.ErrClientDeadline,
		},
	} {
		test.call()
		handler := servingtest.Receive(t, "the handler", d.entered)
		test.giveUp()
		r.spans.has(t, "proxy_grpc_request "+test.proxy)
		if err, cause := handler.Err(), context.Cause(handler); err != test.err || cause != test.cause {
			t.Errorf("%s: the handler's context: %v, %v, want %v, %v", name, err, cause, test.err, test.cause)
		}
	}
	close(d.release)
	r.slotsFree()
}

// proxyEvent is the event of a proxy's digest, as the replica has it.
func proxyEvent(digest string) string {
	at := len(digest) - 1
	for digest[at] != 'e' || digest[at:min(len(digest), at+6)] != "event(" {
		at--
	}
	return " " + digest[at:len(digest)-len("True)")] + "False)"
}

// TestGRPCQueueFull is G7.
func TestGRPCQueueFull(t *testing.T) {
	d := newDeaf()
	r := startGRPC(t, serving.Config{}, d.service(), append(onlyOne(), serving.WithMaxQueuedRequests(1))...)
	defer close(d.release)
	for range 2 {
		go func() { _ = r.unaryCall() }()
	}
	servingtest.Receive(t, "the first call", d.entered)
	r.queuedRPCs(1)
	const text = "Request dropped due to backpressure (num_queued_requests=1, max_queued_requests=1)."
	if got, want := told(r.unaryCall()), "RESOURCE_EXHAUSTED: "+text; got != want {
		t.Errorf("client was told %q, want %q", got, want)
	}
	r.spans.has(t, "proxy_grpc_request code=RESOURCE_EXHAUSTED ERROR("+text+") event(*serving.QueueFullError True)")
	line := r.access.take(t, "request", 1)[0]
	if line["code"] != "RESOURCE_EXHAUSTED" || line["level"] != "INFO" || line["replica"] != nil {
		t.Errorf("access log: %v", line)
	}
}

// TestGRPCCancelWhileQueued is G6 for a call that waits: it leaves the queue.
func TestGRPCCancelWhileQueued(t *testing.T) {
	d := newDeaf()
	r := startGRPC(t, serving.Config{}, d.service(), onlyOne()...)
	defer close(d.release)
	go func() { _ = r.unaryCall() }()
	servingtest.Receive(t, "the first call", d.entered)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = r.stub.UnaryCall(ctx, &pb.SimpleRequest{}) }()
	r.queuedRPCs(1)
	cancel()
	r.queuedRPCs(0)
	r.spans.has(t, "proxy_grpc_request code=CANCELLED ERROR() event(context.Canceled True)")
	r.spans.has(t, "route_to_replica event(context.Canceled True)")
}

// TestGRPCShutdownWaits: a drain lets a stream go on, turns new calls away, and
// tells health checks.
func TestGRPCShutdownWaits(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{})
	stream, err := r.stub.FullDuplexCall(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	echo := func() {
		t.Helper()
		if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	echo()
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), servingtest.Patience)
		defer cancel()
		ended <- r.server.Shutdown(ctx)
	}()
	servingtest.Await(t, "the drain", r.server.Counter().Draining)
	echo()
	for range 3 { // on new connections too
		other := pb.NewTestServiceClient(r.dialGRPC())
		_, err = other.UnaryCall(patient(t), &pb.SimpleRequest{})
		if got, want := told(err), "UNAVAILABLE: This node is being drained."; got != want {
			t.Errorf("client was told %q, want %q", got, want)
		}
	}
	echo()
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the stream ended with %v, want io.EOF", err)
	}
	if err := servingtest.Receive(t, "the end of the drain", ended); err != nil {
		t.Error(err)
	}
	if got := rpcDigests(r.spans.take(t, 3)); len(got) != 3 || got[0] != "proxy_grpc_request code=OK OK" {
		t.Errorf("spans %q, want those of the stream alone", got)
	}
}

// TestGRPCShutdownCuts: when there is no more time, calls end with UNAVAILABLE,
// running and waiting ones, and their contexts say why.
func TestGRPCShutdownCuts(t *testing.T) {
	entered, causes := make(chan struct{}), make(chan error, 1)
	r := startGRPC(t, serving.Config{}, testService{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		close(entered)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}}, onlyOne()...)
	r.wantShutdown = "drain: 2 requests cut off, 0 handlers still running: context canceled"
	answers := make(chan error, 2)
	go func() { answers <- r.unaryCall() }()
	servingtest.Receive(t, "the handler", entered)
	go func() { answers <- r.unaryCall() }()
	r.queuedRPCs(1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.server.Shutdown(ctx); err == nil || err.Error() != r.wantShutdown {
		t.Errorf("Shutdown: %v, want %q", err, r.wantShutdown)
	}
	for range 2 {
		if got, want := told(servingtest.Receive(t, "an answer", answers)), "UNAVAILABLE: This node is being drained."; got != want {
			t.Errorf("client was told %q, want %q", got, want)
		}
	}
	if cause := servingtest.Receive(t, "the handler's end", causes); !sameError(cause, serving.ErrShuttingDown) {
		t.Errorf("cause of the handler's context: %v, want ErrShuttingDown", cause)
	}
	r.spans.has(t, "replica_handle_request event(*serving.causeError False)")
}

// TestGRPCShutdownLeaves: a handler that ignores all of this does not hold up the
// end for longer than the grace.
func TestGRPCShutdownLeaves(t *testing.T) {
	d := newDeaf()
	r := startGRPC(t, serving.Config{}, d.service())
	r.wantShutdown = "drain: 1 requests cut off, 1 handlers still running: context canceled"
	answer := make(chan error, 1)
	go func() { answer <- r.unaryCall() }()
	handler := servingtest.Receive(t, "the handler", d.entered)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.server.Shutdown(ctx); err == nil || err.Error() != r.wantShutdown {
		t.Errorf("Shutdown: %v, want %q", err, r.wantShutdown)
	}
	if got, want := told(servingtest.Receive(t, "the answer", answer)), "UNAVAILABLE: This node is being drained."; got != want {
		t.Errorf("client was told %q, want %q", got, want)
	}
	if cause := context.Cause(handler); !sameError(cause, serving.ErrShuttingDown) {
		t.Errorf("cause of the handler's context: %v, want ErrShuttingDown", cause)
	}
	close(d.release)
	r.slotsFree()
}

// TestGRPCShutdownCutsLater: a call that was let in before the end, and comes to
// its app after that, ends at once.
func TestGRPCShutdownCutsLater(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		<-ctx.Done()
		if cause := context.Cause(ctx); !sameError(cause, serving.ErrShuttingDown) {
			t.Errorf("cause of the handler's context: %v, want ErrShuttingDown", cause)
		}
		return nil, ctx.Err()
	}})
	r.server.Cut(serving.ErrShuttingDown)
	if got, want := told(r.unaryCall()), "UNAVAILABLE: This node is being drained."; got != want {
		t.Errorf("client was told %q, want %q", got, want)
	}
}

// has waits for a span with the digest.
func (l *spanLog) has(t testing.TB, digest string) {
	t.Helper()
	servingtest.Await(t, "a span "+digest, func() bool {
		return slices.ContainsFunc(l.all(), func(s sdktrace.ReadOnlySpan) bool { return rpcDigest(s) == digest })
	})
}

// TestGRPCServerKeepsDeadline is G5 for a client that sets a deadline and does
// nothing when it has passed.
func TestGRPCServerKeepsDeadline(t *testing.T) {
	causes := make(chan error, 1)
	r := startGRPC(t, serving.Config{}, testService{bidi: func(stream pb.TestService_FullDuplexCallServer) error {
		ctx := stream.Context()
		<-ctx.Done()
		if ctx.Err() != context.DeadlineExceeded {
			t.Errorf("the handler's context ended with %v", ctx.Err())
		}
		if _, limited := ctx.Deadline(); !limited {
			t.Error("the handler's context has no deadline")
		}
		causes <- context.Cause(ctx)
		return nil
	}}, onlyOne()...)
	c := r.raw()
	c.open("/grpc.testing.TestService/FullDuplexCall", "grpc-timeout", "300m")
	if cause := servingtest.Receive(t, "the handler's end", causes); !sameError(cause, serving.ErrClientDeadline) {
		t.Errorf("cause of the handler's context: %v, want ErrClientDeadline", cause)
	}
	r.spans.has(t, "proxy_grpc_request code=DEADLINE_EXCEEDED ERROR() event(context.DeadlineExceeded True)")
	r.spans.has(t, "replica_handle_request event(context.DeadlineExceeded False)")
	r.slotsFree()
}

// TestGRPCReplicaStopped: a call whose replica is stopped under it ends.
func TestGRPCReplicaStopped(t *testing.T) {
	d := newDeaf()
	var sick atomic.Bool
	p := &probe{Probe: servingtest.Probe{Check: func(_ context.Context, n int) error {
		if n == 1 && sick.Load() {
			return errBoom
		}
		return nil
	}}}
	deployment := serving.NewDeployment("D", nil, serving.WithHealthCheck(time.Millisecond, time.Minute), serving.WithGracefulShutdown(time.Millisecond, time.Millisecond))
	serving.PerReplica(deployment, p.make)
	pb.RegisterTestServiceServer(deployment, d.service())
	r := startGRPCApps(t, serving.Config{}, serving.NewApp("a", deployment))
	answer := make(chan error, 1)
	go func() { answer <- r.unaryCall() }()
	handler := servingtest.Receive(t, "the handler", d.entered)
	sick.Store(true)
	if got, want := told(servingtest.Receive(t, "the answer", answer)), "UNAVAILABLE: The replica was stopped."; got != want {
		t.Errorf("client was told %q, want %q", got, want)
	}
	if cause := context.Cause(handler); !sameError(cause, serving.ErrReplicaStopped) {
		t.Errorf("cause of the handler's context: %v, want ErrReplicaStopped", cause)
	}
	r.spans.has(t, "proxy_grpc_request code=UNAVAILABLE ERROR(replica was stopped) event(*serving.causeError True)")
	close(d.release)
	r.spans.has(t, "replica_handle_request event(*serving.causeError False)")
}

// TestGRPCLingers: while the server leaves, health says so, and calls are served.
func TestGRPCLingers(t *testing.T) {
	r := startGRPC(t, serving.Config{MinDrainingPeriod: time.Hour}, testService{})
	heard := r.watching("")
	if got := heard(); got != "SERVING" {
		t.Errorf("watch: %s, want SERVING", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.server.Shutdown(ctx) }()
	if got := heard(); got != "NOT_SERVING" {
		t.Errorf("watch: %s, want NOT_SERVING", got)
	}
	other := pb.NewTestServiceClient(r.dialGRPC())
	for _, stub := range []pb.TestServiceClient{r.stub, other} {
		if _, err := stub.UnaryCall(patient(t), &pb.SimpleRequest{}); err != nil {
			t.Errorf("a call while the server leaves: %v", err)
		}
	}
	cancel() // there is no more time
	if err := servingtest.Receive(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

// TestGRPCConnectAroundTheDrain: clients that connect before, during or after the
// beginning of the drain are answered: they never find the port closed.
func TestGRPCConnectAroundTheDrain(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{})
	stream, err := r.stub.FullDuplexCall(patient(t)) // keeps the server from its end
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil { // so the server has it
		t.Fatal(err)
	}
	call := func() string {
		conn := r.dialGRPC()
		defer func() { _ = conn.Close() }()
		_, err := pb.NewTestServiceClient(conn).UnaryCall(patient(t), &pb.SimpleRequest{}, grpc.WaitForReady(true))
		return told(err)
	}
	const served, away = "OK: ", "UNAVAILABLE: This node is being drained."
	ended := make(chan error, 1)
	go func() { ended <- r.server.Shutdown(patient(t)) }()
	for range 20 {
		if got := call(); got != served && got != away {
			t.Errorf("a client that connects around the drain was told %q", got)
		}
	}
	servingtest.Await(t, "the drain", r.server.Counter().Draining)
	if got := call(); got != away {
		t.Errorf("a client that connects after the drain was told %q, want %q", got, away)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := servingtest.Receive(t, "the end of the drain", ended); err != nil {
		t.Error(err)
	}
}
