package serving_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/serving"
)

// TestSeriesAreBoundedWhateverClientsSend makes up paths, verbs and gRPC methods:
// the number of series depends on none of them.
func TestSeriesAreBoundedWhateverClientsSend(t *testing.T) {
	const paths, verbs, methods = 800, 400, 100
	d := serving.NewDeployment("D", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	pb.RegisterTestServiceServer(d, testService{})
	r := startGRPCApps(t, serving.Config{}, serving.NewApp("a", d, serving.WithRoutePrefix("/a")))
	ask := func(method, path string) {
		r.do(t.Context(), method, path)
	}
	for i := range paths {
		ask(http.MethodGet, fmt.Sprintf("/a/%d", i))
	}
	for i := range verbs {
		ask(http.MethodGet, fmt.Sprintf("/b/%d", i))
		ask(fmt.Sprintf("VERB%d", i), "/a")
	}
	for i := range methods {
		if err := r.conn.Invoke(patient(t), fmt.Sprintf("/p.S/M%d", i), &pb.Empty{}, &pb.Empty{}); err == nil {
			t.Fatal("a method that does not exist was called")
		}
	}
	requests := map[string]float64{}
	for series, n := range r.counts(t) {
		if name, labels, _ := strings.Cut(series, "{"); strings.HasSuffix(name, "_requests_total") && strings.Contains(labels, "status_code") {
			requests[series] = n
		}
	}
	want := map[string]float64{
		"serve_num_http_requests_total{application=a,method=GET,route=/a,status_code=200}":             paths,
		"serve_num_http_requests_total{application=,method=GET,route=,status_code=404}":                verbs,
		"serve_num_http_requests_total{application=a,method=_OTHER,route=/a,status_code=200}":          verbs,
		"serve_num_grpc_requests_total{application=a,method=_OTHER,route=a,status_code=UNIMPLEMENTED}": methods,
	}
	for series, n := range want {
		if requests[series] != n {
			t.Errorf("%s is %v, want %v", series, requests[series], n)
		}
	}
	if len(requests) != len(want) {
		t.Errorf("%d series of requests, want %d: %v", len(requests), len(want), requests)
	}
}
