package metrics

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// exposed returns what a scrape in the form of OpenMetrics shows of s.
func exposed(t *testing.T, s *Set) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(s); err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	// The two labels of an exemplar come in any order.
	swapped := regexp.MustCompile(`# {trace_id="(\w+)",span_id="(\w+)"}`)
	return swapped.ReplaceAllString(answer.Body.String(), `# {span_id="$2",trace_id="$1"}`)
}

// TestExposition holds every name, type, help text, label, bucket and exemplar of a
// scrape. Run it with -update to write the golden file.
func TestExposition(t *testing.T) {
	const golden = "testdata/metrics.txt"
	synctest.Test(t, func(t *testing.T) {
		s := New()
		all(s)
		in := s.Proxy(HTTP).Ingress("sampled", "D")
		for i, latency := range []time.Duration{time.Millisecond, 1500 * time.Microsecond, time.Hour} {
			in.Done(Outcome{Route: "/", Method: "GET", Status: 200, Latency: latency, Span: sampled(byte(i + 1))})
		}
		s.Proxy(GRPC).Ingress("sampled", "D").Done(Outcome{Route: "sampled", Method: "/p.S/M", Code: "INTERNAL", Failed: true, Span: sampled(4)})
		router := s.Router("sampled", "D", func() (queued, ongoing int) { return 0, 2 })
		router.Done(Choice{Route: "/", Assigned: true, Wait: 3 * time.Millisecond, Span: sampled(5)})
		r := s.Replica("sampled", "D", "r3")
		r.Started()
		for i, failed := range []bool{false, true} {
			r.Began()
			r.Done("/", time.Second, failed, sampled(byte(6+i)))
			time.Sleep(2 * time.Second)
		}
		r.Checked(time.Second, true)
		r.Batcher("f").Done(Batch{Size: 1, Limit: 5, Wait: time.Second, Run: time.Minute, Span: sampled(8)})
		r.Models().Loaded(time.Minute, false, sampled(9))
		got := exposed(t, s)
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", golden, diff)
		}
	})
}
