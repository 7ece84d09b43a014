package serving_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// counts returns the server's series that are not zero: counters, gauges, and the counts
// of histograms. A replica is "R".
func (r *rig) counts(t testing.TB) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(r.server.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				value := l.GetValue()
				if l.GetName() == "replica" {
					value = "R"
				}
				labels = append(labels, l.GetName()+"="+value)
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value != 0 {
				values[f.GetName()+"{"+strings.Join(labels, ",")+"}"] += value
			}
		}
	}
	return values
}

// TestMetrics compares the metrics of requests with their responses, access log and spans.
func TestMetrics(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/fails", serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errors.New("boom") }))
	mux.Handle("/cut", serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		_, _ = fmt.Fprint(w, "beginning")
		return errors.New("boom")
	}))
	mux.HandleFunc("/teapot", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	r := startApps(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("D", mux), serving.WithRoutePrefix("/a")))
	r.get("/a/users/1")
	r.get("/a/users/2")
	r.get("/a/fails")
	r.get("/a/cut")
	r.get("/a/teapot")
	r.do(t.Context(), "BREW", "/a/teapot")
	r.get("/nowhere")
	r.get("/-/healthz")
	r.access.take(t, "request", 7)

	want := map[string]float64{
		"serve_num_http_error_requests_total{application=,error_code=404,method=GET,route=}": 1,

		"serve_num_router_requests_total{application=a,deployment=D,route=/a/users/{id}}":                  2,
		"serve_num_router_requests_total{application=a,deployment=D,route=/a/fails}":                       1,
		"serve_num_router_requests_total{application=a,deployment=D,route=/a/cut}":                         1,
		"serve_num_router_requests_total{application=a,deployment=D,route=/a/teapot}":                      2,
		"serve_request_router_fulfillment_time_ms{application=a,deployment=D}":                             6,
		"serve_deployment_request_counter_total{application=a,deployment=D,replica=R,route=/a/users/{id}}": 2,
		"serve_deployment_request_counter_total{application=a,deployment=D,replica=R,route=/a/teapot}":     2,
		"serve_deployment_error_counter_total{application=a,deployment=D,replica=R,route=/a/fails}":        1,
		"serve_deployment_error_counter_total{application=a,deployment=D,replica=R,route=/a/cut}":          1,
		"serve_deployment_processing_latency_ms{application=a,deployment=D,replica=R,route=/a/users/{id}}": 2,
		"serve_deployment_processing_latency_ms{application=a,deployment=D,replica=R,route=/a/teapot}":     2,
		"serve_deployment_processing_latency_ms{application=a,deployment=D,replica=R,route=/a/fails}":      1,
		"serve_deployment_processing_latency_ms{application=a,deployment=D,replica=R,route=/a/cut}":        1,
		"serve_deployment_replica_starts_total{application=a,deployment=D,replica=R}":                      1,
		"serve_deployment_replica_healthy{application=a,deployment=D,replica=R}":                           1,
	}
	for labels, n := range map[string]float64{
		"application=,method=GET,route=,status_code=404":               1,
		"application=a,method=GET,route=/a/users/{id},status_code=200": 2,
		"application=a,method=GET,route=/a/fails,status_code=500":      1,
		"application=a,method=GET,route=/a/cut,status_code=200":        1,
		"application=a,method=GET,route=/a/teapot,status_code=418":     1,
		"application=a,method=_OTHER,route=/a/teapot,status_code=418":  1,
	} {
		want["serve_num_http_requests_total{"+labels+"}"] = n
		want["serve_http_request_latency_ms{"+labels+"}"] = n
	}
	for _, labels := range []string{
		"error_code=500,method=GET,route=/a/fails", "error_code=200,method=GET,route=/a/cut",
		"error_code=418,method=GET,route=/a/teapot", "error_code=418,method=_OTHER,route=/a/teapot",
	} {
		want["serve_num_http_error_requests_total{application=a,"+labels+"}"] = 1
		want["serve_num_deployment_http_error_requests_total{application=a,deployment=D,"+labels+"}"] = 1
	}
	if diff := cmp.Diff(want, r.counts(t)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// TestGauges reads the gauges while requests are in progress, and afterwards.
func TestGauges(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	r := start(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	}), serving.WithMaxOngoingRequests(1))
	done := make(chan answer, 2)
	for range 2 {
		go func() { done <- r.get("/") }()
	}
	servingtest.Receive(t, "a handler", entered)
	r.queued(1)
	gauges := map[string]float64{
		"serve_num_ongoing_http_requests{}":                                      2,
		"serve_deployment_queued_queries{application=a,deployment=D}":            1,
		"serve_num_ongoing_requests_at_replicas{application=a,deployment=D}":     1,
		"serve_replica_processing_queries{application=a,deployment=D,replica=R}": 1,
	}
	got := r.counts(t)
	for name, want := range gauges {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	leave <- struct{}{}
	servingtest.Receive(t, "the next handler", entered)
	leave <- struct{}{}
	for range 2 {
		if a := servingtest.Receive(t, "an answer", done); a.Status != http.StatusOK {
			t.Errorf("answer %+v", a)
		}
	}
	r.access.take(t, "request", 2)
	got = r.counts(t)
	for name := range gauges {
		if got[name] != 0 {
			t.Errorf("%s is %v when all is over", name, got[name])
		}
	}
}
