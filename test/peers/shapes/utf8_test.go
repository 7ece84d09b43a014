package shapes

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/servetrace/servetrace/test/peers/peer"
)

const (
	// invalid has three runs of bytes that are no UTF-8: stray ones, a character
	// that is cut off, and half of a pair of surrogates.
	invalid  = "a\xff\xfeb\xe2\x82c\xed\xa0\x80"
	repaired = "a\ufffdb\ufffdc\ufffd"
)

// withText puts a text where the i-th place for one is.
func withText(stub *tracetest.SpanStub, i int, text string) {
	key, value := attribute.Key(text), attribute.StringValue(text)
	kvs := [][]attribute.KeyValue{
		{key.Bool(true)}, {{Key: "k", Value: value}}, {attribute.StringSlice("k", []string{"", text})},
		{attribute.Slice("k", value, attribute.SliceValue(value))}, {attribute.Map("k", key.String("v"), attribute.Map("m", attribute.String("k", text)))},
	}
	of := kvs[i/10%len(kvs)]
	switch i % 10 {
	case 0:
		stub.Name = text
	case 1:
		stub.Status = sdktrace.Status{Code: codes.Error, Description: text}
	case 2, 3:
		stub.Attributes = append(of, stub.Attributes...)
	case 4:
		stub.Events = append(stub.Events, sdktrace.Event{Name: text})
	case 5:
		stub.Events = append(stub.Events, sdktrace.Event{Attributes: of})
	case 6:
		stub.Links = append(stub.Links, sdktrace.Link{Attributes: of})
	case 7:
		stub.Resource = resource.NewWithAttributes(text, of...)
	case 8:
		stub.InstrumentationScope = instrumentation.Scope{Name: text, Version: text, SchemaURL: text}
	case 9:
		stub.InstrumentationScope = instrumentation.Scope{Attributes: attribute.NewSet(of...)}
	}
}

// TestOTLPInvalidUTF8: U+FFFD stands for each run of bytes that are no UTF-8,
// and nothing else of any span is lost. The SDK's exporter loses every batch
// that has such a text, all of it; this test says so if a later one does not.
func TestOTLPInvalidUTF8(t *testing.T) {
	spans := draw(3, 1000)
	valid := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		if valid[i] = s; i%10 == 5 {
			good, bad := tracetest.SpanStubFromReadOnlySpan(s), tracetest.SpanStubFromReadOnlySpan(s)
			withText(&good, i/10, repaired)
			withText(&bad, i/10, invalid)
			valid[i], spans[i] = good.Snapshot(), bad.Snapshot()
		}
	}
	collector := peer.StartCollector(t)
	throughPlugin(t, spans, stockPlugin(t), "", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.HTTP())
	compare(t, bySDK(t, valid), byID(t, collector.WaitSpans(len(spans))))

	ofSDK := peer.StartCollector(t)
	throughSDK(t, spans, ofSDK.HTTP())
	ofSDK.Stop()
	if got := len(byID(t, ofSDK.Spans())); got != 0 {
		t.Errorf("the SDK's exporter delivers %d of %d spans among which some have invalid UTF-8, where it used to lose all", got, len(spans))
	}
}
