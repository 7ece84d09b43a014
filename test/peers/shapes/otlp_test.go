package shapes

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/servetrace/servetrace/test/peers/peer"
)

// count is how many spans a test takes: fewer under -short.
func count(n int) int {
	if testing.Short() {
		return max(100, n/20)
	}
	return n
}

// TestOTLPPlugin: the plugin delivers the same to a Collector as the SDK's own exporter, in
// every field of every span.
func TestOTLPPlugin(t *testing.T) {
	spans := draw(1, count(20_000))
	collector := peer.StartCollector(t)
	throughPlugin(t, spans, stockPlugin(t), "", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.HTTP())
	got := byID(t, collector.WaitSpans(len(spans)))
	compare(t, bySDK(t, spans), got)
}

// TestOTLPPluginEveryWay: and so it is whichever way the spans go.
func TestOTLPPluginEveryWay(t *testing.T) {
	spans := draw(2, count(600))
	reference := bySDK(t, spans)
	for _, c := range []struct {
		name     string
		environ  []string
		grpc     bool
		document string
		// rewritten: the plugin is the one of rewrite_test.go.
		rewritten bool
		// expect changes the spans from the SDK into the spans that must arrive.
		expect func(testing.TB, arrived)
	}{
		{name: "http with gzip", environ: []string{"OTEL_EXPORTER_OTLP_COMPRESSION=gzip"}},
		{name: "grpc", grpc: true},
		{name: "grpc with gzip", grpc: true, environ: []string{"OTEL_EXPORTER_OTLP_COMPRESSION=gzip"}},
		{name: "everything written anew", rewritten: true},
		{name: "with Ray's context", environ: []string{"SERVE_RAY_CONTEXT=on"}, expect: withRayContext},
		{
			name: "redact finds nothing",
			// Some numbers of the corpus could be numbers of cards.
			document: "processors: [{redact: {without: [card]}}]",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			collector := peer.StartCollector(t)
			environ := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.HTTP()}
			if c.grpc {
				environ = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.GRPC(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
			}
			plugin := rewritingPlugin
			if !c.rewritten {
				plugin = stockPlugin
			}
			throughPlugin(t, spans, plugin(t), c.document, append(environ, c.environ...)...)
			want := reference
			if c.expect != nil {
				want = reference.clone()
				c.expect(t, want)
			}
			compare(t, want, byID(t, collector.WaitSpans(len(spans))))
		})
	}
}

func stockPlugin(tb testing.TB) string { tb.Helper(); return peer.Plugin(tb, "otlp") }

// withRayContext adds the attributes of the processor raycontext.
func withRayContext(_ testing.TB, a arrived) {
	for _, s := range a {
		text := map[string]string{}
		for _, kv := range s.GetAttributes() {
			text[kv.GetKey()] = kv.GetValue().GetStringValue()
		}
		task, request := text["serve.task_id"], text["serve.request_id"]
		if task == "" {
			continue
		}
		for _, kv := range [][2]string{
			{"ray.request_id", request}, {"ray.task_id", task}, {"ray.actor_id", task[16:]}, {"ray.job_id", task[40:]},
		} {
			value := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: kv[1]}}
			s.Attributes = append(s.Attributes, &commonpb.KeyValue{Key: kv[0], Value: value})
		}
	}
}

// bySDK returns the spans that the SDK's exporter delivers, with the values that the host
// keeps and that exporter loses.
func bySDK(tb testing.TB, spans []sdktrace.ReadOnlySpan) arrived {
	tb.Helper()
	collector := peer.StartCollector(tb)
	throughSDK(tb, spans, collector.HTTP())
	all := byID(tb, collector.WaitSpans(len(spans)))
	all.beyondTheSDK(tb, spans)
	return all
}
