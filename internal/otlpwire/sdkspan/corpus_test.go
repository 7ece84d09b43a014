package sdkspan

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
)

// captureClient keeps the output of the SDK's exporter.
type captureClient struct{ got []*tracepb.ResourceSpans }

func (c *captureClient) Start(context.Context) error { return nil }
func (c *captureClient) Stop(context.Context) error  { return nil }
func (c *captureClient) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	c.got = spans
	return nil
}

var _ otlptrace.Client = (*captureClient)(nil)

// bySDK returns the request that the SDK's exporter would send.
func bySDK(tb testing.TB, spans []sdktrace.ReadOnlySpan) *coltracepb.ExportTraceServiceRequest {
	tb.Helper()
	client := &captureClient{}
	exporter, err := otlptrace.New(tb.Context(), client)
	if err != nil {
		tb.Fatal(err)
	}
	if err := exporter.ExportSpans(tb.Context(), spans); err != nil {
		tb.Fatal(err)
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: client.got}
}

// expected returns the request that the SDK's exporter would send, with the differences
// that the package comment names.
func expected(tb testing.TB, spans []sdktrace.ReadOnlySpan) *coltracepb.ExportTraceServiceRequest {
	tb.Helper()
	want := bySDK(tb, spans)
	links := map[trace.SpanID][]sdktrace.Link{}
	for _, s := range spans {
		links[s.SpanContext().SpanID()] = s.Links()
	}
	for _, rs := range want.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				for i, l := range links[trace.SpanID(s.SpanId)] {
					s.Links[i].TraceState = l.SpanContext.TraceState().String()
				}
			}
		}
	}
	repairText(want.ProtoReflect())
	return want
}

// repairText replaces invalid UTF-8 by U+FFFD everywhere in m.
func repairText(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				repairText(v.List().Get(i).Message())
			}
		case fd.Message() != nil:
			repairText(v.Message())
		case fd.Kind() == protoreflect.StringKind:
			m.Set(fd, protoreflect.ValueOfString(strings.ToValidUTF8(v.String(), "\uFFFD")))
		}
		return true
	})
}

func decode(tb testing.TB, req []byte) *coltracepb.ExportTraceServiceRequest {
	tb.Helper()
	got := &coltracepb.ExportTraceServiceRequest{}
	if err := proto.Unmarshal(req, got); err != nil {
		tb.Fatalf("decode: %v", err)
	}
	return got
}

// diff compares two requests regardless of the order of their resources, which is random in
// the SDK's exporter.
func diff(want, got *coltracepb.ExportTraceServiceRequest) string {
	for _, r := range []*coltracepb.ExportTraceServiceRequest{want, got} {
		slices.SortFunc(r.ResourceSpans, func(a, b *tracepb.ResourceSpans) int {
			return strings.Compare(resourceKey(a), resourceKey(b))
		})
	}
	if proto.Equal(want, got) {
		return ""
	}
	const enough = 4 << 10
	d := cmp.Diff(want, got, protocmp.Transform(), cmpopts.EquateNaNs())
	return d[:min(len(d), enough)] + "\n"
}

func resourceKey(rs *tracepb.ResourceSpans) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(rs.GetResource())
	if err != nil {
		return err.Error()
	}
	return rs.SchemaUrl + string(b)
}
