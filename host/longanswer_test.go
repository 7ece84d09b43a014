package host_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/test/testplugin"
)

// talker is a receiver with the same answer to each batch.
type talker struct {
	coltracepb.UnimplementedTraceServiceServer
	answer *coltracepb.ExportTraceServiceResponse
	err    error
}

func (t talker) Export(context.Context, *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	return t.answer, t.err
}

// TestLongAnswers: a batch with a long answer is delivered. A refusal by the plugin stays
// a refusal, even with the text of a gRPC error.
func TestLongAnswers(t *testing.T) {
	partial := func(rejected int64, size int) talker {
		return talker{answer: &coltracepb.ExportTraceServiceResponse{
			PartialSuccess: &coltracepb.ExportTracePartialSuccess{RejectedSpans: rejected, ErrorMessage: strings.Repeat("x", size)},
		}}
	}
	for _, c := range []struct {
		name   string
		talker talker
		want   map[string]uint64
		log    string
	}{
		{"1.25 MiB", partial(1, 1280<<10), map[string]uint64{"rejected PARTIAL_SUCCESS": 1}, "back end took only a part of a batch"},
		{
			"5 MiB", partial(1, 5<<20), map[string]uint64{"delivered": 1},
			"plugin's answer cannot be read; it counts as delivered\" plugin=p0 code=UNREADABLE",
		},
		{
			"refused", talker{err: status.Error(codes.ResourceExhausted, "grpc: received message larger than max (4194305 vs. 4194304)")},
			map[string]uint64{"rejected RESOURCE_EXHAUSTED": 1}, "code=RESOURCE_EXHAUSTED",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			testplugin.Serve(t, socket, func(s *grpc.Server) { coltracepb.RegisterTraceServiceServer(s, c.talker) })
			h := startHost(t, nil, "unix://"+socket)
			h.spans("s", 1) // one batch
			h.flush()
			h.wantCounts(0, c.want)
			testplugin.WaitFor(t, "the log to say "+c.log, func() bool { return strings.Contains(h.log.String(), c.log) })
		})
	}
}
