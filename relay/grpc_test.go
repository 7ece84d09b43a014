package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/relay"
)

// TestStockGRPCExporter sends spans with OpenTelemetry's exporter, over both transports,
// plain and compressed.
func TestStockGRPCExporter(t *testing.T) {
	socket := startRig(t, "record")
	tcp := startRig(t, "record", overTCP)
	for _, c := range []struct {
		name string
		r    *rig
		opts []otlptracegrpc.Option
	}{
		{"socket", socket, nil},
		{"socket-gzip", socket, []otlptracegrpc.Option{otlptracegrpc.WithCompressor("gzip")}},
		{"tcp", tcp, nil},
		{"tcp-gzip", tcp, []otlptracegrpc.Option{otlptracegrpc.WithCompressor("gzip")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			exporter, err := otlptracegrpc.New(t.Context(), append(c.opts, otlptracegrpc.WithGRPCConn(c.r.dial(t)))...)
			if err != nil {
				t.Fatal(err)
			}
			endSpans(t, exporter, c.name, 3000)
			c.r.wantSpans(t, c.name, 3000)
		})
	}
}

// endSpans ends n spans with a batch processor in front of an exporter.
func endSpans(t *testing.T, exporter sdktrace.SpanExporter, prefix string, n int) {
	t.Helper()
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(n)))
	for i := range n {
		_, span := provider.Tracer("test").Start(t.Context(), fmt.Sprintf("%s-%d", prefix, i))
		span.End()
	}
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Errorf("shutdown of the provider: %v", err)
	}
}

func TestGRPCAnswers(t *testing.T) {
	r := startRig(t, "record", func(h *host.Config, c *relay.Config) {
		h.QueueBytes, h.MaxSpanBytes, h.BatchBytes = 1<<20, 10_000, 100_000
		c.MaxRequestBytes = 600_000
	})
	conn := r.dial(t)
	for _, c := range []struct {
		name     string
		request  *coltracepb.ExportTraceServiceRequest
		wait     string
		gzip     bool
		code     codes.Code
		text     string
		rejected int64
	}{
		{name: "accepted", request: requestOf("a", 3, 10)},
		{name: "empty", request: &coltracepb.ExportTraceServiceRequest{}},
		{name: "delivered", request: requestOf("b", 3, 10), wait: "delivered"},
		{name: "chosen to be accepted", request: requestOf("c", 3, 10), wait: "accepted"},
		{name: "large spans", request: requestOf("d", 2, 20_000), rejected: 2, text: "2 spans are larger than SERVE_TRACING_MAX_SPAN_BYTES"},
		{
			name: "unknown wait", request: requestOf("e", 1, 10), wait: "soon",
			code: codes.InvalidArgument, text: `servetrace-wait: "soon": want delivered or accepted`,
		},
		{name: "larger than a sender's room", request: requestOf("f", 500, 1000), code: codes.ResourceExhausted, text: "request"},
		{name: "larger than the limit", request: requestOf("g", 700, 1000), code: codes.ResourceExhausted, text: "received message larger than max"},
		{
			name: "larger after decompression", request: requestOf("h", 700, 1000), gzip: true,
			code: codes.ResourceExhausted, text: "the request is larger than 600000 bytes (SERVE_RELAY_MAX_REQUEST_BYTES)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			if c.wait != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, relay.HeaderWait, c.wait)
			}
			var opts []grpc.CallOption
			if c.gzip {
				opts = append(opts, grpc.UseCompressor(gzip.Name))
			}
			response, err := coltracepb.NewTraceServiceClient(conn).Export(ctx, c.request, opts...)
			st := status.Convert(err)
			text := st.Message() + response.GetPartialSuccess().GetErrorMessage()
			if st.Code() != c.code || !strings.Contains(text, c.text) || len(st.Details()) > 0 {
				t.Errorf("answer %v %q with details %v, want %v %q and none", st.Code(), text, st.Details(), c.code, c.text)
			}
			if got := response.GetPartialSuccess().GetRejectedSpans(); got != c.rejected {
				t.Errorf("%d spans rejected, want %d", got, c.rejected)
			}
		})
	}
	r.wantSpans(t, "a", 3)
	r.wantSpans(t, "b", 3)
	r.wantSpans(t, "c", 3)
}

func TestMalformedRequest(t *testing.T) {
	r := startRig(t, "record")
	conn := r.dial(t)
	call := func(body []byte, opts ...grpc.CallOption) error {
		return conn.Invoke(t.Context(), coltracepb.TraceService_Export_FullMethodName, &body, new([]byte), append(opts, grpc.ForceCodecV2(rawCodec{}))...)
	}
	err := call([]byte("\x0a\xff\xff\xff\xff\x0f"))
	if st := status.Convert(err); st.Code() != codes.InvalidArgument || !strings.Contains(st.Message(), "malformed") {
		t.Errorf("no OTLP: %v", err)
	}
	if _, err := r.client(t).Export(t.Context(), requestOf("after", 1, 10)); err != nil {
		t.Errorf("a good request afterwards: %v", err)
	}
}

func TestOtherSignalsAreUnimplemented(t *testing.T) {
	conn := startRig(t, "record").dial(t)
	_, metrics := colmetricspb.NewMetricsServiceClient(conn).Export(t.Context(), &colmetricspb.ExportMetricsServiceRequest{})
	_, logs := collogspb.NewLogsServiceClient(conn).Export(t.Context(), &collogspb.ExportLogsServiceRequest{})
	for _, err := range []error{metrics, logs} {
		if st := status.Convert(err); st.Code() != codes.Unimplemented || !strings.Contains(st.Message(), "this relay takes traces only") {
			t.Errorf("answer %v, want UNIMPLEMENTED", err)
		}
	}
}

func TestFullHostPushesBack(t *testing.T) {
	r := startRig(t, "hang", func(h *host.Config, _ *relay.Config) {
		h.QueueBytes, h.MaxSpanBytes, h.BatchBytes = 1<<20, 10_000, 100_000
	})
	client := r.client(t)
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		_, err = client.Export(t.Context(), requestOf(fmt.Sprint(i), 50, 1000))
	}
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted || len(st.Details()) != 1 {
		t.Fatalf("answer %v with details %v, want RESOURCE_EXHAUSTED with RetryInfo", err, st.Details())
	}
	if info, ok := st.Details()[0].(*errdetails.RetryInfo); !ok || info.GetRetryDelay().AsDuration() <= 0 {
		t.Errorf("details %v, want a RetryInfo", st.Details())
	}
	if s := r.host.Stats(); s.PushedBack != 50 {
		t.Errorf("%d spans pushed back, want 50", s.PushedBack)
	}
}

func TestWaitForDelivery(t *testing.T) {
	for _, c := range []struct {
		mode     string
		byConfig bool
		code     codes.Code
		rejected int64
	}{
		{mode: "slow:200ms"},
		{mode: "slow:200ms", byConfig: true},
		{mode: "partial:2", rejected: 2},
		{mode: "permanent", rejected: 5},
		{mode: "flaky:2"},
		{mode: "filter:w-1"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			r := startRig(t, c.mode, func(_ *host.Config, cfg *relay.Config) { cfg.WaitForResult = c.byConfig })
			ctx := t.Context()
			if !c.byConfig {
				ctx = metadata.AppendToOutgoingContext(ctx, relay.HeaderWait, relay.WaitDelivered)
			}
			response, err := r.client(t).Export(ctx, requestOf("w", 5, 10))
			if status.Code(err) != c.code || response.GetPartialSuccess().GetRejectedSpans() != c.rejected {
				t.Errorf("answer %v, %v; want %v and %d rejected", response, err, c.code, c.rejected)
			}
			x := r.host.Stats().Exporters[0]
			if x.Waiting != 0 {
				t.Errorf("%d spans wait after the answer", x.Waiting)
			}
		})
	}
}

func TestWaitEndsWithTheDeadline(t *testing.T) {
	r := startRig(t, "hang")
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), relay.HeaderWait, relay.WaitDelivered), 300*time.Millisecond)
	defer cancel()
	_, err := r.client(t).Export(ctx, requestOf("w", 5, 10))
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("answer %v, want DEADLINE_EXCEEDED", err)
	}
	if x := r.host.Stats().Exporters[0]; x.Waiting != 5 {
		t.Errorf("%d spans wait, want 5: the relay keeps them", x.Waiting)
	}
}

// TestStopAnswersWaitingSenders stops a relay whose plugin never answers. A sender that
// waits for the delivery must hear that its spans were dropped.
func TestStopAnswersWaitingSenders(t *testing.T) {
	r := startRig(t, "hang", func(h *host.Config, _ *relay.Config) { h.StopTimeout = 200 * time.Millisecond })
	answer := make(chan error, 1)
	client := r.client(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), relay.HeaderWait, relay.WaitDelivered)
	go func() {
		_, err := client.Export(ctx, requestOf("w", 5, 10))
		answer <- err
	}()
	waitForWaiting(t, r, 5)
	over, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(over); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown with a waiting sender: %v, want a deadline", err)
	}
	_ = r.host.Shutdown(t.Context()) // the spans are lost
	if err := r.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-answer; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "5 of 5 spans were dropped") {
		t.Errorf("answer %v, want UNAVAILABLE and 5 of 5", err)
	}
}

func TestHealth(t *testing.T) {
	r := startRig(t, "record")
	client := grpc_health_v1.NewHealthClient(r.dial(t))
	for _, service := range []string{"", "opentelemetry.proto.collector.trace.v1.TraceService"} {
		response, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service}, grpc.UseCompressor(gzip.Name))
		if err != nil || response.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, response, err)
		}
	}
	watch, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || first.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("watch: %v, %v", first, err)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown waits for a watch: %v", err)
	}
}

func TestSecondRelay(t *testing.T) {
	r := startRig(t, "record")
	path := strings.TrimPrefix(r.endpoint(t, "grpc"), "unix://")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want mode 0600", info, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v; want mode 0700", info, err)
	}
	second, err := relay.New(relay.Config{Socket: path}, r.host, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = second.Start(t.Context())
	var running *relay.RunningError
	if !errors.As(err, &running) || *running != (relay.RunningError{Socket: path, PID: os.Getpid()}) {
		t.Errorf("second relay: %v, want a RunningError", err)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket after Shutdown: %v", err)
	}
	third := startRig(t, "record", func(_ *host.Config, c *relay.Config) { c.Socket = path })
	if _, err := third.client(t).Export(t.Context(), requestOf("t", 1, 10)); err != nil {
		t.Errorf("the next relay: %v", err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := socketPath(t)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	r := startRig(t, "record", func(_ *host.Config, c *relay.Config) { c.Socket = path })
	if _, err := r.client(t).Export(t.Context(), requestOf("s", 1, 10)); err != nil {
		t.Error(err)
	}
}

func TestLinger(t *testing.T) {
	r := startRig(t, "slow:300ms", func(_ *host.Config, c *relay.Config) { c.Linger = 50 * time.Millisecond })
	conn, err := grpc.NewClient(r.endpoint(t, "grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), requestOf("l", 1, 10)); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	<-r.Done()
	if reason, err := r.Err(); reason != "no connection for 50ms" || err != nil {
		t.Errorf("end: %q, %v", reason, err)
	}
	if x := r.host.Stats().Exporters[0]; x.Waiting != 0 || x.Delivered != 1 {
		t.Errorf("the relay ends with %d spans waiting and %d delivered, want 0 and 1", x.Waiting, x.Delivered)
	}
}
