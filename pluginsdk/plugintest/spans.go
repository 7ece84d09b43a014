package plugintest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// numbering gives spans and batches numbers that are unique within a run of
// the suite, and ids that are unique beyond it. Safe for concurrent use; the
// zero value is ready.
type numbering struct {
	mu      sync.Mutex
	run     uint64 // drawn once
	spans   uint32
	batches int
}

func (n *numbering) take(spans int) (run uint64, first uint32, batch int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.run == 0 {
		n.run = rand.Uint64()
	}
	first = n.spans + 1
	n.spans += uint32(spans)
	n.batches++
	return n.run, first, n.batches
}

// batch makes a batch of so many numbered spans: "span-1", "span-2" and so on,
// with attributes of all types, an event, a link and a status.
func (n *numbering) batch(spans int) batch {
	run, first, number := n.take(spans)
	request := &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{text("service.name", "plugintest")}},
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: "github.com/servetrace/servetrace/pluginsdk/plugintest"},
			Spans: make([]*tracepb.Span, spans),
		}},
	}}}
	b := batch{spans: spans, id: fmt.Sprintf("plugintest-%016x-%d", run, number), attempt: 1}
	for i := range spans {
		span := numberedSpan(run, first+uint32(i))
		request.ResourceSpans[0].ScopeSpans[0].Spans[i] = span
		b.ids = append(b.ids, hex.EncodeToString(span.GetSpanId()))
	}
	b.set(request)
	return b
}

// of makes a batch of an author's request.
func (n *numbering) of(request *coltracepb.ExportTraceServiceRequest) batch {
	run, _, number := n.take(0)
	b := batch{id: fmt.Sprintf("plugintest-%016x-%d", run, number), attempt: 1}
	eachSpan(request.GetResourceSpans(), func(span *tracepb.Span) {
		b.spans++
		b.ids = append(b.ids, hex.EncodeToString(span.GetSpanId()))
	})
	b.set(request)
	return b
}

// set encodes the request. It can only fail for texts that are no UTF-8, which
// are an author's, and then sends nothing.
func (b *batch) set(request *coltracepb.ExportTraceServiceRequest) {
	data, err := proto.Marshal(request)
	if err != nil {
		b.spans, b.ids = 0, nil
	}
	b.data = data
}

// request decodes a batch of the suite's own.
func (b *batch) request() *coltracepb.ExportTraceServiceRequest {
	var request coltracepb.ExportTraceServiceRequest
	if err := proto.Unmarshal(b.data, &request); err != nil {
		return &coltracepb.ExportTraceServiceRequest{} // it was encoded here
	}
	return &request
}

// padded is the batch with an attribute on each span so that it has that many
// bytes, or a few less. A batch that has more stays as it is.
func (b batch) padded(bytes int) batch {
	const overhead = 64 // of one attribute, and of longer lengths around it
	missing := (bytes-len(b.data))/max(1, b.spans) - overhead
	if missing <= 0 {
		return b
	}
	request := b.request()
	padding := text("plugintest.padding", strings.Repeat("x", missing))
	eachSpan(request.GetResourceSpans(), func(span *tracepb.Span) {
		span.Attributes = append(span.Attributes, padding)
	})
	b.set(request)
	return b
}

func numberedSpan(run uint64, number uint32) *tracepb.Span {
	traceID := binary.BigEndian.AppendUint64(nil, run)
	traceID = binary.BigEndian.AppendUint64(traceID, uint64(number))
	spanID := binary.BigEndian.AppendUint32(nil, uint32(run)|1) // never all zeros
	spanID = binary.BigEndian.AppendUint32(spanID, number)
	now := time.Now()
	return &tracepb.Span{
		TraceId:           traceID,
		SpanId:            spanID,
		Flags:             1,
		Name:              fmt.Sprintf("span-%d", number),
		Kind:              tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: uint64(now.Add(-time.Millisecond).UnixNano()),
		EndTimeUnixNano:   uint64(now.UnixNano()),
		Attributes: []*commonpb.KeyValue{
			text("plugintest.text", "ünïcode"),
			{Key: "plugintest.number", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: int64(number)}}},
			{Key: "plugintest.flag", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}},
			{Key: "plugintest.share", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: 0.5}}},
			{Key: "plugintest.list", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{
				Values: []*commonpb.AnyValue{{Value: &commonpb.AnyValue_StringValue{StringValue: "one"}}},
			}}}},
		},
		Events: []*tracepb.Span_Event{{
			TimeUnixNano: uint64(now.UnixNano()), Name: "event", Attributes: []*commonpb.KeyValue{text("plugintest.event", "yes")},
		}},
		Links:  []*tracepb.Span_Link{{TraceId: traceID, SpanId: spanID}},
		Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "as an example"},
	}
}

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

// eachSpan calls f for every span, in order.
func eachSpan(list []*tracepb.ResourceSpans, f func(*tracepb.Span)) {
	for _, rs := range list {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				f(span)
			}
		}
	}
}
