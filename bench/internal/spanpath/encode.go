package spanpath

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// encodeBatch is the number of spans of a request: the SDK's default.
const encodeBatch = 512

// encodeTime is the time of the measurement.
const encodeTime = 300 * time.Millisecond

// measureEncoding times the encoding of finished spans to the bytes of a request.
func measureEncoding(ctx context.Context, o order) (suite.Sample, error) {
	recorder := tracetest.NewSpanRecorder()
	produce := produceWith(newProvider(recorder))
	for i := range encodeBatch {
		produce(i)
	}
	spans := recorder.Ended()
	var encode func() (size int, err error)
	switch o.Row {
	case rowEncode:
		var e sdkspan.Encoder
		var body []byte
		encode = func() (int, error) {
			e.Reset()
			for _, s := range spans {
				e.Append(s)
			}
			body = e.AppendRequest(body[:0])
			return len(body), nil
		}
	case rowEncodeSDK:
		keeper := &keepingClient{}
		exporter, err := otlptrace.New(ctx, keeper)
		if err != nil {
			return nil, err
		}
		encode = func() (int, error) {
			if err := exporter.ExportSpans(ctx, spans); err != nil {
				return 0, err
			}
			body, err := proto.Marshal(&coltracepb.ExportTraceServiceRequest{ResourceSpans: keeper.got})
			return len(body), err
		}
	default:
		return nil, fmt.Errorf("no row %q", o.Row)
	}
	if _, err := encode(); err != nil { // buffers grow
		return nil, err
	}
	began, heap, n := time.Now(), measure.ReadHeap(), 0
	for time.Since(began) < encodeTime {
		for range 16 {
			if _, err := encode(); err != nil {
				return nil, err
			}
			n += len(spans)
		}
	}
	took, used := time.Since(began), measure.ReadHeap().Sub(heap)
	return suite.Sample{
		suite.Encode: float64(took) / float64(n),
		suite.Bytes:  float64(used.Bytes) / float64(n),
		suite.Allocs: float64(used.Objects) / float64(n),
	}, nil
}

// keepingClient keeps the messages of the exporter.
type keepingClient struct{ got []*tracepb.ResourceSpans }

func (*keepingClient) Start(context.Context) error { return nil }
func (*keepingClient) Stop(context.Context) error  { return nil }

func (c *keepingClient) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	c.got = spans
	return nil
}
