package peer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

func TestJaegerGivesBackATrace(t *testing.T) {
	t.Parallel()
	j := StartJaeger(t)
	root, child := span(), span()
	child.Name, child.Parent = "child", root.SpanContext
	child.SpanContext = child.SpanContext.WithSpanID(trace.SpanID{9})
	id := root.SpanContext.TraceID().String()
	if got := j.Trace(id); got != nil {
		t.Errorf("before anything was sent: %v", got)
	}
	send(t, exporter(t)(otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(j.HTTP()+"/v1/traces"))), root)
	send(t, exporter(t)(otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpointURL(j.GRPC()))), child)

	type brief struct {
		Service, Name  string
		SpanID, Parent string
		Start, End     uint64
		Attributes     int
	}
	got := map[string]brief{}
	for _, rs := range j.WaitTrace(id, 2) {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				got[s.Name] = brief{
					rs.Resource.Attributes[0].Value.GetStringValue(), s.Name, string(s.SpanId), string(s.ParentSpanId),
					s.StartTimeUnixNano, s.EndTimeUnixNano, len(s.Attributes),
				}
			}
		}
	}
	one := func(s *tracepb.Span, name, id, parent string) brief {
		return brief{"tested", name, id, parent, s.StartTimeUnixNano, s.EndTimeUnixNano, len(s.Attributes)}
	}
	sent := wantSpan().ScopeSpans[0].Spans[0]
	rootID := string(sent.SpanId)
	want := map[string]brief{
		"all of it": one(sent, "all of it", rootID, "\x08\x00\x00\x00\x00\x00\x00\x00"),
		"child":     one(sent, "child", "\x09\x00\x00\x00\x00\x00\x00\x00", rootID),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
