package consoleexporter_test

import (
	"bytes"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk/processors"
	"github.com/servetrace/servetrace/test/golden"
)

// TestRayContext: the output of the console plugin with SERVE_RAY_CONTEXT=on, in both
// forms: the ids on the guide's spans, a span with ids of its own, and one outside of
// requests.
func TestRayContext(t *testing.T) {
	const task = "c8ef45ccd0112571ffffffffffffffffffffffff01000000"
	proxy, user, outside := proxySpan(), userSpan(), inTrace(1, 1, 0, "outside", 1716919504000000000)
	proxy.Attributes = append(proxy.Attributes,
		str("serve.request_id", "cf86e040-2c53-44b8-976e-55224b692141"), str("serve.task_id", task))
	user.Attributes = append(user.Attributes,
		str("serve.request_id", "cf86e040-2c53-44b8-976e-55224b692141"), str("serve.task_id", task), str("ray.task_id", "my own"))
	for format, file := range map[string]string{"json": "ray.json", "pretty": "ray.golden"} {
		var stdout bytes.Buffer
		s := setup(map[string]string{
			processors.EnvRayContext: "on", consoleexporter.EnvFormat: format, "LANG": "C.UTF-8", "COLUMNS": "100",
		}, &stdout)
		s.Context.Job = "02000000"
		processor, err := processors.Configured(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		exporter, err := consoleexporter.New(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		b := batch(t, resource("", []*commonpb.KeyValue{str("service.name", "shop")}, proxy, user, outside))
		if err := processor.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if err := exporter.Export(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, file, stdout.String())
	}
}
