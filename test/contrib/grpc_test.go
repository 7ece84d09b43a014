package contrib

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// collector is a local OTLP receiver over gRPC. Its first answer is given, all
// others are OK.
type collector struct {
	coltracepb.UnimplementedTraceServiceServer
	url   string
	first func() (*coltracepb.ExportTraceServiceResponse, error)

	mu    sync.Mutex
	calls int
}

func newCollector(t *testing.T, first func() (*coltracepb.ExportTraceServiceResponse, error)) *collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{url: "http://" + listener.Addr().String(), first: first}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serve: %v", err)
		}
	})
	return c
}

func (c *collector) Export(context.Context, *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.calls == 1 {
		return c.first()
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

// TestGRPCAnswers: the answers of a collector are in the host's ledgers, through
// OpenTelemetry's own client, alone and behind its batch processor.
func TestGRPCAnswers(t *testing.T) {
	tooMuch, err := status.New(codes.ResourceExhausted, "slow down").WithDetails(
		&errdetails.RetryInfo{RetryDelay: durationpb.New(1)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err      error
		partial  *coltracepb.ExportTracePartialSuccess
		calls    int
		rejected map[string]uint64
	}{
		"OK":                                {nil, nil, 1, map[string]uint64{}},
		"UNAVAILABLE":                       {status.Error(codes.Unavailable, "down"), nil, 2, map[string]uint64{}},
		"RESOURCE_EXHAUSTED with RetryInfo": {tooMuch.Err(), nil, 2, map[string]uint64{}},
		"INVALID_ARGUMENT":                  {status.Error(codes.InvalidArgument, "odd"), nil, 1, map[string]uint64{"INVALID_ARGUMENT": 1}},
		"UNAUTHENTICATED":                   {status.Error(codes.Unauthenticated, "who?"), nil, 1, map[string]uint64{"UNAUTHENTICATED": 1}},
		"partial success":                   {nil, &coltracepb.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "odd"}, 1, map[string]uint64{"PARTIAL_SUCCESS": 1}},
		"a warning":                         {nil, &coltracepb.ExportTracePartialSuccess{ErrorMessage: "old field"}, 1, map[string]uint64{}},
	} {
		for _, plugin := range []string{"grpc", "grpc-batch"} {
			t.Run(name+"/"+plugin, func(t *testing.T) {
				back := newCollector(t, func() (*coltracepb.ExportTraceServiceResponse, error) {
					return &coltracepb.ExportTraceServiceResponse{PartialSuccess: c.partial}, c.err
				})
				// One span, so that there is one batch.
				x := serve(t, plugin, 1, "OTEL_EXPORTER_OTLP_ENDPOINT="+back.url)
				if diff := cmp.Diff(c.rejected, x.Rejected); diff != "" {
					t.Errorf("rejected (-want +got):\n%s", diff)
				}
				want := uint64(1)
				for _, n := range c.rejected {
					want -= n
				}
				if x.Delivered != want || back.calls != c.calls {
					t.Errorf("%d delivered after %d calls, want %d after %d; last error %q", x.Delivered, back.calls, want, c.calls, x.LastError)
				}
			})
		}
	}
}
