package plugintest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// batch is a request for the plugin, with the metadata of the call.
type batch struct {
	request *coltracepb.ExportTraceServiceRequest
	raw     []byte   // encoded request that is sent in place of request; nil if request is sent
	ids     []string // ids of the spans in request, as hexadecimal digits
	// id and attempt are the metadata of the same names. If id is empty, neither is sent.
	id      string
	attempt int
	// more has further metadata, as a list of a key, its value, the next key, and so on.
	more []string
	// sent is called when gRPC has written the request to the connection. It may be nil.
	sent func()
}

// numbering makes batches with numbered spans. No two spans of a run of the suite have
// the same number, and no two spans of any runs have the same id. It is safe for
// concurrent use.
type numbering struct {
	run  uint64 // a random number that is not zero; part of all ids
	last atomic.Uint32
}

func newNumbering() *numbering { return &numbering{run: rand.Uint64() | 1} }

// take reserves consecutive numbers, as many as the argument says, and returns the
// smallest.
func (n *numbering) take(numbers int) uint32 {
	return n.last.Add(uint32(numbers)) - uint32(numbers) + 1
}

// batch returns a batch with the given number of spans. Their names have the next numbers
// of the run, for example "span-7" and "span-8". They have attributes of all types, an
// event, a link and a status.
func (n *numbering) batch(spans int) batch {
	scope := &tracepb.ScopeSpans{
		Scope: &commonpb.InstrumentationScope{Name: "github.com/servetrace/servetrace/pluginsdk/plugintest"},
	}
	first := n.take(spans)
	for i := range spans {
		scope.Spans = append(scope.Spans, numberedSpan(n.run, first+uint32(i)))
	}
	return n.of(&coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{text("service.name", "plugintest")}},
		ScopeSpans: []*tracepb.ScopeSpans{scope},
	}}})
}

// of returns a batch with a given request, and with an id of its own.
func (n *numbering) of(request *coltracepb.ExportTraceServiceRequest) batch {
	return batch{
		request: request, ids: spanIDs(request.GetResourceSpans()),
		id: fmt.Sprintf("plugintest-%016x-%d", n.run, n.take(1)), attempt: 1,
	}
}

// encode returns the bytes to send. It fails for texts that are not UTF-8.
func (b batch) encode() ([]byte, error) {
	if b.raw != nil {
		return b.raw, nil
	}
	data, err := proto.Marshal(b.request)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return data, nil
}

// pad adds an attribute to each span of a batch of numbered spans, so that the batch has
// about the given number of bytes, and not more. A larger batch is unchanged.
func (b batch) pad(bytes int) batch {
	const overhead = 64 // bytes of an attribute without its value, and of the longer lengths in the messages around it
	missing := (bytes-proto.Size(b.request))/max(1, len(b.ids)) - overhead
	if missing <= 0 {
		return b
	}
	padding := text("plugintest.padding", strings.Repeat("x", missing))
	for _, span := range b.request.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans() {
		span.Attributes = append(span.Attributes, padding)
	}
	return b
}

func numberedSpan(run uint64, number uint32) *tracepb.Span {
	traceID := binary.BigEndian.AppendUint64(nil, run)
	traceID = binary.BigEndian.AppendUint64(traceID, uint64(number))
	spanID := binary.BigEndian.AppendUint32(nil, uint32(run)|1) // not zero
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

// spanIDs returns the ids of all spans, as hexadecimal digits.
func spanIDs(list []*tracepb.ResourceSpans) []string {
	var ids []string
	for _, rs := range list {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				ids = append(ids, hex.EncodeToString(span.GetSpanId()))
			}
		}
	}
	return ids
}
