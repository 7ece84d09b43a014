package host_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/testplugin"
)

// Hazard 21: spans and batches that are larger than a server accepts in one call. Each
// test sends many or large spans, and none may be lost.

// sized ends n spans, each with so many bytes of an attribute.
func (r *running) sized(prefix string, n, bytes int) {
	body := strings.Repeat("x", bytes)
	for i := range n {
		_, span := r.tracer.Start(context.Background(), fmt.Sprintf("%s-%d", prefix, i), trace.WithAttributes(attribute.String("body", body)))
		span.End()
	}
}

// tinyLimits is a plugin that accepts very small batches, and refuses larger ones for
// good.
func tinyLimits() {
	pluginsdk.Main(pluginsdk.Spec{
		Name:   "tiny",
		Limits: pluginsdk.Limits{MaxBatchSpans: 7, MaxBatchBytes: 5000, MaxConcurrency: 3},
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(_ context.Context, b *pluginsdk.Batch) error {
				var names []string
				for span := range b.Spans() {
					names = append(names, span.Name())
				}
				if len(names) > 7 || len(b.Bytes()) > 5000 && len(names) > 1 {
					return pluginsdk.Permanent(fmt.Errorf("%d spans, %d bytes", len(names), len(b.Bytes())))
				}
				return writeRecord(names)
			}), nil
		},
	})
}

func TestHazard21MuchThroughAPluginWithoutLimits(t *testing.T) {
	t.Parallel()
	path := testplugin.Install(t, "record")
	r := startHost(t, func(c *host.Config) { c.QueueBytes = 64 << 20 }, path)
	r.waitReady(0)
	for i := range 10 { // 20 MiB, and less at a time than fits
		r.sized(fmt.Sprintf("s%d", i), 500, 4<<10)
		r.flush()
	}
	for i := range 10 {
		wantOnce(t, path, fmt.Sprintf("s%d", i), 500)
	}
	r.wantCounts(0, map[string]uint64{"delivered": 5000})
}

func TestHazard21OneLargeSpan(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"record", "stock"} { // the SDK's server, and go-plugin's with gRPC's default
		path := testplugin.Install(t, mode)
		r := startHost(t, func(c *host.Config) { c.QueueBytes, c.MaxSpanBytes = 64<<20, mostSpanBytes }, path)
		r.waitReady(0)
		r.sized("before", 100, 100)
		r.sized("s", 3, mostSpanBytes-(64<<10))
		r.sized("after", 100, 100)
		r.flush()
		for prefix, n := range map[string]int{"before": 100, "s": 3, "after": 100} {
			wantOnce(t, path, prefix, n)
		}
		r.wantCounts(0, map[string]uint64{"delivered": 203})
	}
}

func TestHazard21TinyLimits(t *testing.T) {
	t.Parallel()
	path := installOwn(t, "tiny")
	r := startHost(t, nil, path)
	r.waitReady(0)
	r.sized("s", 1000, 1000)  // by bytes
	r.sized("t", 500, 10)     // by spans
	r.sized("u", 10, 100_000) // each alone
	r.flush()
	for prefix, n := range map[string]int{"s": 1000, "t": 500, "u": 10} {
		wantOnce(t, path, prefix, n)
	}
	r.wantCounts(0, map[string]uint64{"delivered": 1510})
}

// TestHazard21PlainServerTakesFourMebibytes: every gRPC server accepts 4 MiB, and no
// server accepts more by default.
func TestHazard21PlainServerTakesFourMebibytes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got, most := map[string]int{}, 0
	server := taker{take: func(r *coltracepb.ExportTraceServiceRequest) {
		mu.Lock()
		defer mu.Unlock()
		most = max(most, proto.Size(r))
		for _, rs := range r.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				for _, span := range ss.GetSpans() {
					got[span.GetName()]++
				}
			}
		}
	}}
	socket := filepath.Join(testplugin.SocketFolder(t), "r.sock")
	testplugin.Serve(t, socket, func(s *grpc.Server) { coltracepb.RegisterTraceServiceServer(s, server) })
	r := startHost(t, func(c *host.Config) {
		c.Plugins = "unix://" + socket
		// The largest batches that there may be: full, and then a large span more.
		c.QueueBytes, c.MaxSpanBytes, c.BatchBytes, c.BatchAge = 64<<20, mostSpanBytes, mostBatchBytes, time.Hour
	})
	r.waitReady(0)
	for i := range 5 {
		r.sized(fmt.Sprintf("s%d", i), 700, 4<<10)
		r.sized(fmt.Sprintf("large%d", i), 1, mostSpanBytes-(64<<10))
		r.flush()
	}
	mu.Lock()
	defer mu.Unlock()
	if want := 5 * 701; len(got) != want {
		t.Errorf("%d spans have come, want %d", len(got), want)
	}
	if most > 4<<20 || most < 2<<20 {
		t.Errorf("the largest request had %d bytes, want some mebibytes, at most 4", most)
	}
	r.wantCounts(0, map[string]uint64{"delivered": 5 * 701})
}

// taker is a plain OTLP server that takes all.
type taker struct {
	coltracepb.UnimplementedTraceServiceServer
	take func(*coltracepb.ExportTraceServiceRequest)
}

func (s taker) Export(_ context.Context, r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	s.take(r)
	return &coltracepb.ExportTraceServiceResponse{}, nil
}
