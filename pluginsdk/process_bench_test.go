package pluginsdk_test

import (
	"context"
	"runtime"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// BenchmarkProcess measures the CPU time of both ends for a processor that sets one
// attribute on each span: a batch of 2,048 spans of 320 bytes on the way out and back, by
// patch and as a whole batch. gRPC, the processor and the new batch in the host count. As
// in bench/, 64 MiB stay alive, so that the garbage collector runs as in a service.
func BenchmarkProcess(b *testing.B) {
	alive := make([]byte, 64<<20)
	defer runtime.KeepAlive(alive)
	team := attribute.String("team", "search")
	set := func(_ context.Context, batch *pluginsdk.Batch) error {
		for span := range batch.Spans() {
			span.SetAttributes(team)
		}
		return nil
	}
	b.Run("patch", func(b *testing.B) { benchProcess(b, set) })
	b.Run("whole", func(b *testing.B) {
		benchProcess(b, func(ctx context.Context, batch *pluginsdk.Batch) error {
			_ = set(ctx, batch)
			return batch.Replace(batch.Bytes())
		})
	})
}

func benchProcess(b *testing.B, process func(context.Context, *pluginsdk.Batch) error) {
	const spans = 2048
	r := startRun(b, pluginsdk.Spec{Name: "bench", Processors: []pluginsdk.NewProcessor{pluginsdk.ProcessorFunc("set", process)}})
	r.configure(b, nil)
	conn, err := grpc.NewClient("unix:"+r.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}), grpc.MaxCallRecvMsgSize(wire.MaxMessageBytes)),
		grpc.WithInitialWindowSize(wire.WindowBytes), grpc.WithInitialConnWindowSize(wire.WindowBytes), grpc.WithWriteBufferSize(wire.WriteBufferBytes))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	batch := benchBatch(b, spans)
	var result []byte
	before := cpuTime(b)
	for b.Loop() {
		pieces := mem.BufferSlice{mem.SliceBuffer(wire.ProcessHead(wire.RequestBatch, len(batch))), mem.SliceBuffer(batch)}
		var response wire.Incoming
		if err := conn.Invoke(b.Context(), wire.ProcessMethod, &wire.Outgoing{Buffers: func() mem.BufferSlice { return pieces }}, &response); err != nil {
			b.Fatal(err)
		}
		field, content, err := wire.ReadProcess(response.Data, wire.ResponsePatch, wire.ResponseBatch)
		if result = content; field == wire.ResponsePatch {
			result, err = otlpwire.ApplyPatch(result[:0:0], batch, content)
		}
		if err != nil || len(result) <= len(batch) {
			b.Fatalf("%d bytes became %d: %v", len(batch), len(result), err)
		}
	}
	b.ReportMetric((cpuTime(b)-before)/float64(b.N*spans), "cpu-ns/span")
}

// cpuTime returns the user and system time of this process, in nanoseconds.
func cpuTime(b *testing.B) float64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return float64(usage.Utime.Nano() + usage.Stime.Nano())
}

// benchBatch returns a batch of the size of spans in bench/.
func benchBatch(b *testing.B, spans int) []byte {
	request := named(make([]string, spans)...)
	for _, span := range request.ResourceSpans[0].ScopeSpans[0].Spans {
		span.Name = "proxy_http_request GET /api/{id}"
		span.Attributes = append(span.Attributes, text("http.request.method", "GET"), text("http.route", "/api/{id}"),
			text("serve.request_id", "1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8"), text("serve.deployment", "HelloWorld"),
			text("serve.replica_id", "6f1d0a52"), text("http.response.status_code", "200"))
	}
	return encode(b, request)
}
