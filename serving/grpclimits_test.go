package serving_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// TestGRPCMessageLimit: a message beyond the limit fails its call, either way,
// also where it is small on the wire.
func TestGRPCMessageLimit(t *testing.T) {
	const limit = 4096
	r := startGRPC(t, serving.Config{GRPC: serving.GRPCConfig{MaxMessageBytes: limit}}, testService{})
	stream := func() error {
		s, err := r.stub.StreamingOutputCall(patient(t), &pb.StreamingOutputCallRequest{
			ResponseParameters: []*pb.ResponseParameters{{Size: 1}, {Size: limit}},
		})
		if err != nil {
			return err
		}
		_, err = drainSizes(s)
		return err
	}
	for name, call := range map[string]func() error{
		"request":    func() error { return r.send(limit) },
		"compressed": func() error { return r.send(limit, useGzip) },
		"response":   stream,
	} {
		r.spans.take(t, 0)
		err := call()
		if code := codeName(status.Code(err)); code != "RESOURCE_EXHAUSTED" {
			t.Errorf("%s: %v, want RESOURCE_EXHAUSTED", name, err)
		}
		if got := rpcDigests(r.spans.take(t, 3)); len(got) != 3 || !strings.HasPrefix(got[0], "proxy_grpc_request code=RESOURCE_EXHAUSTED ERROR(rpc error") {
			t.Errorf("%s: spans %q", name, got)
		}
	}
	if err := r.send(limit - 100); err != nil {
		t.Errorf("a message within the limit: %v", err)
	}
}

// TestGRPCWrongMessages: a call that does not have the messages of its kind, or
// none that can be read, fails as INTERNAL.
func TestGRPCWrongMessages(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{})
	for name, send := range map[string]func(*rawGRPC){
		"none": func(c *rawGRPC) { c.ok(c.framer.WriteData(c.stream, true, nil)) },
		"two":  func(c *rawGRPC) { c.message(0, false); c.message(0, true) },
		"not to be read": func(c *rawGRPC) {
			c.ok(c.framer.WriteData(c.stream, true, []byte{0, 0, 0, 0, 1, 0xff}))
		},
	} {
		for _, method := range []string{"UnaryCall", "StreamingOutputCall"} {
			c := r.raw()
			c.open("/grpc.testing.TestService/" + method)
			send(c)
			if got := c.end(c.stream); got != "13" {
				t.Errorf("%s, %s: %s, want 13 (INTERNAL)", method, name, got)
			}
			if got := rpcDigests(r.spans.take(t, 3)); !strings.HasPrefix(got[0], "proxy_grpc_request code=INTERNAL ERROR") {
				t.Errorf("%s, %s: spans %q", method, name, got)
			}
		}
	}
}

// TestGRPCHeaderLimit: a call with too much metadata never begins.
func TestGRPCHeaderLimit(t *testing.T) {
	r := startGRPC(t, serving.Config{GRPC: serving.GRPCConfig{MaxHeaderBytes: 2048}}, testService{})
	c := r.raw()
	many := make([]string, 0, 40)
	for range cap(many) / 2 {
		many = append(many, "x-many", strings.Repeat("x", 100))
	}
	c.open("/grpc.testing.TestService/UnaryCall", many...)
	if got := c.end(c.stream); got != http2.ErrCodeFrameSize.String() {
		t.Errorf("the stream ended with %s, want FRAME_SIZE_ERROR", got)
	}
	c.open("/grpc.testing.TestService/UnaryCall", "x-small", strings.Repeat("x", 100))
	c.message(0, true)
	if got := c.end(c.stream); got != "0" {
		t.Errorf("a call within the limit ended with %s, want 0", got)
	}
	c.open("/grpc.testing.TestService/UnaryCall", "x-huge", strings.Repeat("x", 5000))
	c.closed()
}

// TestGRPCStreamLimit: a connection that opens more calls than it may has them
// refused, one that opens and resets them at once cannot have the server run
// more handlers than it has slots, and others are served all the while.
func TestGRPCStreamLimit(t *testing.T) {
	d := newDeaf()
	r := startGRPC(t, serving.Config{GRPC: serving.GRPCConfig{MaxStreams: 4}}, d.service(), serving.WithMaxOngoingRequests(4))
	c := r.raw()
	for range 4 {
		c.open("/grpc.testing.TestService/FullDuplexCall")
		servingtest.Receive(t, "a handler", d.entered)
	}
	c.open("/grpc.testing.TestService/FullDuplexCall")
	if got := c.end(c.stream); got != http2.ErrCodeRefusedStream.String() {
		t.Errorf("the fifth call ended with %s, want REFUSED_STREAM", got)
	}
	for stream := uint32(1); stream < c.stream; stream += 2 {
		c.ok(c.framer.WriteRSTStream(stream, http2.ErrCodeCancel))
	}
	for range 100 {
		c.open("/grpc.testing.TestService/FullDuplexCall")
		c.ok(c.framer.WriteRSTStream(c.stream, http2.ErrCodeCancel))
	}
	select {
	case <-d.entered:
		t.Error("a fifth handler runs")
	default:
	}
	close(d.release)
	for range 4 {
		servingtest.Receive(t, "a handler's end", d.after)
	}
	if _, err := r.stub.EmptyCall(patient(t), &pb.Empty{}); codeName(status.Code(err)) != "UNIMPLEMENTED" {
		t.Errorf("another client was told %v", err)
	}
	_ = c.conn.Close()
	r.slotsFree()
}

// TestGRPCStall: a client that holds up its call by doing nothing loses it, and
// with it the slot; one that streams may pause.
func TestGRPCStall(t *testing.T) {
	large := func(_ *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
		for {
			if err := stream.Send(&pb.StreamingOutputCallResponse{Payload: payload(32 << 10)}); err != nil {
				return err
			}
		}
	}
	r := startGRPC(t, serving.Config{GRPC: serving.GRPCConfig{StallTimeout: soon}}, testService{server: large}, serving.WithMaxOngoingRequests(3))
	pausing, err := r.stub.FullDuplexCall(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	c := r.raw()
	c.open("/grpc.testing.TestService/UnaryCall")
	if got := c.end(c.stream); got != "4" {
		t.Errorf("a call without its message ended with %s, want 4 (DEADLINE_EXCEEDED)", got)
	}
	slow := r.raw() // it never opens its window
	slow.open("/grpc.testing.TestService/StreamingOutputCall")
	slow.message(0, true)
	for range 2 {
		r.spans.has(t, "proxy_grpc_request code=DEADLINE_EXCEEDED ERROR(client stalled) event(*serving.causeError True)")
		r.spans.has(t, "replica_handle_request event(*serving.causeError False)")
		r.spans.drop("causeError")
	}
	if err := pausing.Send(&pb.StreamingOutputCallRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pausing.Recv(); err != nil {
		t.Errorf("the stream that paused: %v", err)
	}
	_ = pausing.CloseSend()
	if _, err := pausing.Recv(); err != io.EOF {
		t.Errorf("the stream that paused ended with %v", err)
	}
	r.slotsFree()
}

// drop forgets one proxy and one replica span whose digest has the text.
func (l *spanLog) drop(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped := map[string]bool{}
	kept := l.spans[:0]
	for _, s := range l.spans {
		family, _, _ := strings.Cut(s.Name(), " ")
		if strings.Contains(rpcDigest(s), text) && !dropped[family] {
			dropped[family] = true
			continue
		}
		kept = append(kept, s)
	}
	l.spans = kept
}

// TestGRPCKeepalive: a client that pings without end is cut off.
func TestGRPCKeepalive(t *testing.T) {
	r := startGRPC(t, serving.Config{GRPC: serving.GRPCConfig{KeepaliveMinTime: time.Hour}}, testService{})
	c := r.raw()
	for range 5 {
		c.ok(c.framer.WritePing(false, [8]byte{}))
	}
	if got := c.end(1); got != "GOAWAY "+http2.ErrCodeEnhanceYourCalm.String() {
		t.Errorf("the connection ended with %s, want ENHANCE_YOUR_CALM", got)
	}
	c.closed()
}

// TestGRPCConnectionTimeout: who connects and says nothing is cut off.
func TestGRPCConnectionTimeout(t *testing.T) {
	r := startGRPC(t, serving.Config{GRPC: serving.GRPCConfig{ConnectionTimeout: soon}}, testService{})
	c := &rawGRPC{t: t, conn: r.dialTCP()}
	c.framer = http2.NewFramer(c.conn, c.conn)
	c.closed()
}

// TestGRPCSlotsAfterChaos: calls of all kinds that are given up at once leave
// nothing behind.
func TestGRPCGivenUpConcurrentSafe(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{}, serving.WithMaxOngoingRequests(2))
	const callers, rounds = 8, 10
	done := make(chan struct{}, callers)
	for caller := range callers {
		go func() {
			defer func() { done <- struct{}{} }()
			for round := range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				stream, err := r.stub.FullDuplexCall(ctx)
				if err == nil && (caller+round)%3 > 0 {
					_ = stream.Send(&pb.StreamingOutputCallRequest{Payload: payload(round << 10)}) // it may be over
				}
				if err == nil && (caller+round)%3 > 1 {
					_, _ = stream.Recv() // likewise
				}
				cancel()
			}
		}()
	}
	for range callers {
		servingtest.Receive(t, "a caller", done)
	}
	r.slotsFree()
	r.queuedRPCs(0)
	if err := r.unaryCall(); err != nil {
		t.Errorf("a call afterwards: %v", err)
	}
}
