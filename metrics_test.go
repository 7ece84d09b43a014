package servetrace

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// openMetrics scrapes as Prometheus does that asks for OpenMetrics; url is the
// status page's.
func openMetrics(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(url, "/-/tracing", "/metrics", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/openmetrics-text") {
		t.Fatalf("status %d, %s:\n%s", resp.StatusCode, kind, body)
	}
	return string(body)
}

// The listener for operators shows the service's metrics beside the host's, with
// the trace of a request as example of its latency in each part.
func TestMetricsOfTheService(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_ADMIN_PORT=0")
	if status, _ := get(t, p.url+"/"); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	p.log.await(t, "msg=request")
	url := adminURL(t, p.log.String())
	body := openMetrics(t, url)
	_, text := get(t, strings.Replace(url, "/-/tracing", "/metrics", 1))
	p.signal(syscall.SIGTERM)
	p.wait()
	for _, want := range []string{
		`serve_num_http_requests_total{application="default",method="GET",route="/",status_code="200"} 1.0`,
		"servetrace_spans_ended_total ", "go_goroutines ", "# EOF\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
	// The other form is read by the parser that Prometheus' own tools use.
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Errorf("metrics as text: %v", err)
	}
	if f := families["serve_http_request_latency_ms"]; f.GetType() != dto.MetricType_HISTOGRAM || f.GetMetric()[0].GetHistogram().GetSampleCount() != 1 {
		t.Errorf("serve_http_request_latency_ms is %v", f)
	}
	spans := map[string]string{}
	for _, s := range p.spans() {
		family, _, _ := strings.Cut(s.Name, " ")
		spans[family] = strings.TrimPrefix(s.Context.TraceID, "0x") + " " + strings.TrimPrefix(s.Context.SpanID, "0x")
	}
	for metric, family := range map[string]string{
		"serve_http_request_latency_ms":            "proxy_http_request",
		"serve_request_router_fulfillment_time_ms": "route_to_replica",
		"serve_deployment_processing_latency_ms":   "replica_handle_request",
	} {
		example := regexp.MustCompile(metric + `_bucket{[^}]*} 1 # ({[^}]*})`).FindStringSubmatch(body)
		if example == nil {
			t.Errorf("%s has no example", metric)
			continue
		}
		// The client library writes the two labels in any order.
		trace, span, _ := strings.Cut(spans[family], " ")
		if !strings.Contains(example[1], `trace_id="`+trace+`"`) || !strings.Contains(example[1], `span_id="`+span+`"`) {
			t.Errorf("the example of %s is %s, and the span %s", metric, example[1], spans[family])
		}
	}
}
