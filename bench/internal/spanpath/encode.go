package spanpath

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// encodeBatch is the number of spans of a request: the SDK's default.
const encodeBatch = 512

// measureEncoding times the encoding of finished spans to the bytes of a request, by the
// host's encoder or by the SDK's OTLP exporters: spans become messages, messages become
// bytes.
func measureEncoding(ctx context.Context, o order) (suite.Sample, error) {
	recorder := tracetest.NewSpanRecorder()
	span := produceWith(newProvider(recorder))
	for i := range encodeBatch {
		span(i)
	}
	spans := recorder.Ended()
	keeper := &keepingClient{}
	exporter, err := otlptrace.New(ctx, keeper)
	if err != nil {
		return nil, err
	}
	var failed error
	result := testing.Benchmark(func(b *testing.B) {
		var e sdkspan.Encoder
		var body []byte
		for b.Loop() {
			if o.Row == rowEncode {
				e.Reset()
				for _, s := range spans {
					e.Append(s)
				}
				body = e.AppendRequest(body[:0])
				continue
			}
			if failed = exporter.ExportSpans(ctx, spans); failed == nil {
				_, failed = proto.Marshal(&coltracepb.ExportTraceServiceRequest{ResourceSpans: keeper.got})
			}
		}
	})
	n := float64(result.N * encodeBatch)
	return suite.Sample{
		encode:    float64(result.T) / n,
		heapBytes: float64(result.AllocedBytesPerOp()) / encodeBatch,
		allocs:    float64(result.AllocsPerOp()) / encodeBatch,
	}, failed
}

// keepingClient keeps the messages of the exporter.
type keepingClient struct{ got []*tracepb.ResourceSpans }

func (*keepingClient) Start(context.Context) error { return nil }
func (*keepingClient) Stop(context.Context) error  { return nil }

func (c *keepingClient) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	c.got = spans
	return nil
}
