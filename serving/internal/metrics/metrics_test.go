package metrics

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gather gives the value of each series: a histogram's is its count.
func gather(tb testing.TB, s *Set) map[string]float64 {
	tb.Helper()
	values := map[string]float64{}
	for _, f := range scrape(tb, s) {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetCounter() != nil:
				values[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				values[name] = m.GetGauge().GetValue()
			default:
				values[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return values
}

// scrape gathers through a pedantic registry, which holds every series
// against its description.
func scrape(tb testing.TB, s *Set) []*dto.MetricFamily {
	tb.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(s); err != nil {
		tb.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	return families
}

// sampled is the context of a span that records.
func sampled(n byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{15: n}, SpanID: trace.SpanID{7: n}, TraceFlags: trace.FlagsSampled,
	})
}

// all has every part count something.
func all(s *Set) {
	for _, p := range []Protocol{HTTP, GRPC} {
		proxy := s.Proxy(p)
		proxy.Began()
		proxy.Began()
		proxy.Done()
		in, none := proxy.Ingress("a", "D"), proxy.Ingress("", "")
		in.Done(Outcome{Route: "/x", Method: "GET", Status: 200, Latency: time.Millisecond})
		in.Done(Outcome{Route: "/x", Method: "GET", Status: 500, Failed: true})
		in.Done(Outcome{Route: "/x", Method: "WS", Status: 4711, Failed: true})
		none.Done(Outcome{Method: "GET", Status: 404, Failed: true})
	}
	s.Proxy(GRPC).Ingress("a", "D").Done(Outcome{Route: "a", Method: "/p.S/M", Code: "OK"})
	router := s.Router("a", "D", func() (queued, ongoing int) { return 3, 1 })
	router.Done(Choice{Route: "/x", Assigned: true, Wait: time.Second})
	router.Done(Choice{Route: "/x", ByHandle: true, Assigned: true})
	router.Done(Choice{Route: "/x"})
	replica(s.Replica("a", "D", "r1"))
	s.Replica("a", "D", "r2").Stopped(time.Second)
}

// replica has every part of a replica count something.
func replica(r *Replica) {
	r.Constructed(time.Second)
	r.Started()
	r.Began()
	r.Began()
	r.Done("/x", time.Second, false, trace.SpanContext{})
	r.Checked(time.Millisecond, false)
	r.Reconfigured(time.Millisecond)
	b := r.Batcher("f")
	b.Queued(3)
	b.Queued(-1)
	b.Done(Batch{Size: 5, Limit: 10, Wait: time.Millisecond, Run: time.Second})
	m := r.Models()
	m.Asked()
	m.Loaded(time.Second, false, trace.SpanContext{})
	m.Loaded(time.Second, true, trace.SpanContext{})
	m.Unloaded(time.Second)
	m.Hold([]string{"m1", "m2"})
	r.Models().Hold([]string{"m2", "m3"})
}

func TestEverythingIsCounted(t *testing.T) {
	s := New()
	all(s)
	const r1 = "application=a,deployment=D,replica=r1"
	want := map[string]float64{
		"serve_num_ongoing_http_requests{}":                                                                             1,
		"serve_num_ongoing_grpc_requests{}":                                                                             1,
		"serve_num_http_requests_total{application=a,method=GET,route=/x,status_code=200}":                              1,
		"serve_num_http_requests_total{application=a,method=GET,route=/x,status_code=500}":                              1,
		"serve_num_http_requests_total{application=a,method=WS,route=/x,status_code=_OTHER}":                            1,
		"serve_num_http_requests_total{application=,method=GET,route=,status_code=404}":                                 1,
		"serve_num_grpc_requests_total{application=a,method=/p.S/M,route=a,status_code=OK}":                             1,
		"serve_http_request_latency_ms{application=a,method=GET,route=/x,status_code=200}":                              1,
		"serve_num_http_error_requests_total{application=a,error_code=500,method=GET,route=/x}":                         1,
		"serve_num_http_error_requests_total{application=,error_code=404,method=GET,route=}":                            1,
		"serve_num_deployment_http_error_requests_total{application=a,deployment=D,error_code=500,method=GET,route=/x}": 1,
		"serve_num_router_requests_total{application=a,deployment=D,route=/x}":                                          3,
		"serve_handle_request_counter_total{application=a,deployment=D,route=/x}":                                       1,
		"serve_request_router_fulfillment_time_ms{application=a,deployment=D}":                                          2,
		"serve_deployment_queued_queries{application=a,deployment=D}":                                                   3,
		"serve_num_ongoing_requests_at_replicas{application=a,deployment=D}":                                            1,
		"serve_deployment_request_counter_total{" + r1 + ",route=/x}":                                                   1,
		"serve_deployment_error_counter_total{" + r1 + ",route=/x}":                                                     0,
		"serve_deployment_processing_latency_ms{" + r1 + ",route=/x}":                                                   1,
		"serve_replica_processing_queries{" + r1 + "}":                                                                  1,
		"serve_deployment_replica_starts_total{" + r1 + "}":                                                             1,
		"serve_deployment_replica_healthy{" + r1 + "}":                                                                  0,
		"serve_health_check_failures_total{" + r1 + "}":                                                                 1,
		"serve_batch_queue_length{application=a,deployment=D,function_name=f,replica=r1}":                               2,
		"serve_batches_processed_total{application=a,deployment=D,function_name=f,replica=r1}":                          1,
		"serve_multiplexed_get_model_requests_counter_total{" + r1 + "}":                                                1,
		"serve_multiplexed_models_load_counter_total{" + r1 + "}":                                                       2,
		"serve_multiplexed_model_load_latency_ms{" + r1 + "}":                                                           1,
		"serve_multiplexed_models_unload_counter_total{" + r1 + "}":                                                     1,
		"serve_num_multiplexed_models{" + r1 + "}":                                                                      3,
		"serve_registered_multiplexed_model_id{application=a,deployment=D,model_id=m2,replica=r1}":                      1,
		"serve_replica_shutdown_duration_ms{application=a,deployment=D,replica=r2}":                                     1,
	}
	got := gather(t, s)
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s is %v (there: %t), want %v", name, v, ok, value)
		}
	}
	if _, there := got["serve_replica_processing_queries{application=a,deployment=D,replica=r2}"]; there {
		t.Error("a replica that has stopped has a gauge")
	}
	for _, f := range described(t) {
		if f.kind == "" {
			t.Errorf("%s has no series though everything has counted something", f.name)
		}
	}
}

// sum adds up the series of a family.
func sum(values map[string]float64, family string) (total float64, series int) {
	for name, v := range values {
		if strings.HasPrefix(name, family+"{") {
			total += v
			series++
		}
	}
	return total, series
}

// Applications may make up routes and methods, and clients model ids and close
// codes, for ever.
func TestSeriesAreBounded(t *testing.T) {
	const many, verbs = 8000, 4000
	s := New()
	in := s.Proxy(HTTP).Ingress("a", "D")
	router := s.Router("a", "D", func() (queued, ongoing int) { return 0, 0 })
	r := s.Replica("a", "D", "r")
	var models []string
	for i := range many {
		route := fmt.Sprintf("/%d", i)
		in.Done(Outcome{Route: route, Method: "GET", Status: 200})
		router.Done(Choice{Route: route})
		r.Began()
		r.Done(route, 0, false, trace.SpanContext{})
		models = append(models, route)
	}
	for code := range 3000 {
		in.Done(Outcome{Route: "/0", Method: "WS", Status: 2000 + code})
	}
	methods := s.Proxy(GRPC).Ingress("a", "D")
	for i := range verbs {
		methods.Done(Outcome{Route: "a", Method: fmt.Sprintf("/p.S/M%d", i), Code: "INTERNAL", Failed: true})
	}
	r.Models().Hold(models)
	got := gather(t, s)
	for _, tt := range []struct {
		family string
		total  float64
		most   int
	}{
		{"serve_num_http_requests_total", many + 3000, maxOutcomes + 2},
		{"serve_http_request_latency_ms", many + 3000, maxOutcomes + 2},
		{"serve_num_grpc_requests_total", verbs, maxOutcomes + 1},
		{"serve_num_grpc_error_requests_total", verbs, maxOutcomes + 1},
		{"serve_num_deployment_grpc_error_requests_total", verbs, maxOutcomes + 1},
		{"serve_num_router_requests_total", many, maxRoutes + 1},
		{"serve_deployment_request_counter_total", many, maxRoutes + 1},
		{"serve_registered_multiplexed_model_id", maxModels, maxModels},
	} {
		if total, series := sum(got, tt.family); total != tt.total || series > tt.most || series < tt.most-1 {
			t.Errorf("%s: %v in %d series, want %v in %d at most", tt.family, total, series, tt.total, tt.most)
		}
	}
	if v := got["serve_num_http_requests_total{application=a,method=_OTHER,route=_OTHER,status_code=200}"]; v != many-maxOutcomes {
		t.Errorf("%v requests under _OTHER, want %v", v, many-maxOutcomes)
	}
}

func TestReplicasThatStoppedAreBounded(t *testing.T) {
	s := New()
	for i := range 2 * maxStopped {
		r := s.Replica("a", "D", fmt.Sprintf("r%d", i))
		r.Started()
		r.Began()
		r.Done("/", 0, true, trace.SpanContext{})
		r.Batcher("f").Done(Batch{Size: 1, Limit: 1})
		r.Stopped(0)
		r.Stopped(0) // changes nothing
	}
	got := gather(t, s)
	for _, family := range []string{
		"serve_deployment_replica_starts_total", "serve_deployment_error_counter_total", "serve_replica_shutdown_duration_ms",
		"serve_batches_processed_total",
	} {
		if total, series := sum(got, family); series != maxStopped || total != maxStopped {
			t.Errorf("%s has %d series with %v, want %d", family, series, total, maxStopped)
		}
	}
	if _, there := got[fmt.Sprintf("serve_deployment_replica_starts_total{application=a,deployment=D,replica=r%d}", 2*maxStopped-1)]; !there {
		t.Error("the counts of the replica that stopped last are gone")
	}
	if _, series := sum(got, "serve_deployment_replica_healthy"); series != 0 {
		t.Errorf("%d replicas that have stopped have gauges", series)
	}
}

// What a handler that was left behind does in a replica that has stopped shows no
// gauge of it.
func TestReplicaThatStoppedHasNoGauges(t *testing.T) {
	s := New()
	r := s.Replica("a", "D", "r1")
	replica(r)
	r.Stopped(time.Second)
	replica(r)
	got := gather(t, s)
	for _, f := range described(t) {
		if _, series := sum(got, f.name); f.kind == "gauge" && slices.Contains(f.labels, labelReplica) && series > 0 {
			t.Errorf("%s has %d series", f.name, series)
		}
	}
	if total, _ := sum(got, "serve_batches_processed_total"); total != 2 {
		t.Errorf("%v batches, want 2: counts stay", total)
	}
}

// What no label can hold is made fit for one.
func TestLabelsAreCleaned(t *testing.T) {
	s := New()
	in := s.Proxy(HTTP).Ingress("a", "D")
	in.Done(Outcome{Route: "/\xff", Method: "GET", Status: 200})
	in.Done(Outcome{Route: strings.Repeat("é", maxLabel), Method: "GET", Status: 200})
	in.Done(Outcome{Route: "a\nb\"c", Method: "GET", Status: 200})
	r := s.Replica("a", "D", "r")
	r.Models().Hold([]string{"\xfe", "\xff"})
	got := gather(t, s)
	for _, route := range []string{"/\uFFFD", strings.Repeat("é", maxLabel/2), "a\nb\"c"} {
		if got["serve_num_http_requests_total{application=a,method=GET,route="+route+",status_code=200}"] != 1 {
			t.Errorf("nothing is counted under %q", route)
		}
	}
}

// examples gives the trace ids in the buckets of the only histogram of a family.
func examples(t *testing.T, s *Set, family string) map[float64]string {
	t.Helper()
	found := map[float64]string{}
	for _, f := range scrape(t, s) {
		if f.GetName() != family {
			continue
		}
		for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
			if x := b.GetExemplar(); x != nil {
				labels := map[string]string{}
				for _, l := range x.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if len(labels) != 2 || labels["span_id"] != labels["trace_id"][16:] {
					t.Errorf("the example has labels %v", labels)
				}
				found[b.GetUpperBound()] = strings.TrimLeft(labels["trace_id"], "0")
			}
		}
	}
	return found
}

// A bucket takes an example of a sampled request, and another after a second:
// those of the rare slow requests are not lost to the many fast ones.
func TestExamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		in := s.Proxy(HTTP).Ingress("a", "D")
		done := func(latency time.Duration, span trace.SpanContext) {
			in.Done(Outcome{Route: "/", Method: "GET", Status: 200, Latency: latency, Span: span})
		}
		check := func(want map[float64]string) {
			t.Helper()
			if diff := cmp.Diff(want, examples(t, s, "serve_http_request_latency_ms")); diff != "" {
				t.Errorf("examples (-want +got):\n%s", diff)
			}
		}
		done(time.Millisecond, trace.SpanContext{})
		done(time.Millisecond, sampled(9).WithTraceFlags(0))
		check(map[float64]string{})
		done(time.Millisecond, sampled(1))
		done(time.Millisecond, sampled(2))
		done(3*time.Second, sampled(3))
		check(map[float64]string{1: "1", 5000: "3"})
		time.Sleep(exemplarEvery)
		done(time.Millisecond, sampled(4))
		check(map[float64]string{1: "4", 5000: "3"})
	})
}

// Whoever counts, and however many series are made meanwhile, nothing is lost.
func TestSetConcurrentSafe(t *testing.T) {
	const workers, each = 8, 500
	s := New()
	in := s.Proxy(HTTP).Ingress("a", "D")
	router := s.Router("a", "D", func() (queued, ongoing int) { return 0, 0 })
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := range each {
				route := fmt.Sprintf("/%d", i%50)
				in.Done(Outcome{Route: route, Method: "GET", Status: 200 + i%3, Span: sampled(byte(w + 1))})
				router.Done(Choice{Route: route, Assigned: true})
				r := s.Replica("a", "D", "r")
				r.Began()
				r.Batcher("f").Done(Batch{Size: 1, Limit: 1})
				r.Done(route, 0, i%2 == 0, sampled(byte(w+1)))
				gone := s.Replica("a", "E", fmt.Sprintf("%d-%d", w, i))
				gone.Started()
				gone.Stopped(0)
			}
		})
	}
	group.Go(func() {
		for range 20 {
			gather(t, s)
		}
	})
	group.Wait()
	got := gather(t, s)
	for family, want := range map[string]float64{
		"serve_num_http_requests_total":          workers * each,
		"serve_http_request_latency_ms":          workers * each,
		"serve_num_router_requests_total":        workers * each,
		"serve_deployment_request_counter_total": workers * each / 2,
		"serve_deployment_error_counter_total":   workers * each / 2,
		"serve_batches_processed_total":          workers * each,
		"serve_replica_processing_queries":       0,
	} {
		if total, _ := sum(got, family); total != want {
			t.Errorf("%s: %v, want %v", family, total, want)
		}
	}
}

// A request that is not sampled allocates nothing.
func TestCountingAllocatesNothing(t *testing.T) {
	p := newPath()
	p.request(trace.SpanContext{})
	if n := testing.AllocsPerRun(100, func() { p.request(trace.SpanContext{}) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// path is what one request passes.
type path struct {
	proxy   *Proxy
	ingress *Ingress
	router  *Router
	replica *Replica
}

func newPath() path {
	s := New()
	return path{s.Proxy(HTTP), s.Proxy(HTTP).Ingress("a", "D"), s.Router("a", "D", nil), s.Replica("a", "D", "r")}
}

func (p path) request(span trace.SpanContext) {
	p.proxy.Began()
	p.router.Done(Choice{Route: "/", Assigned: true, Span: span})
	p.replica.Began()
	p.replica.Done("/", time.Millisecond, false, span)
	p.proxy.Done()
	p.ingress.Done(Outcome{Route: "/", Method: "GET", Status: 200, Latency: time.Millisecond, Span: span})
}

// BenchmarkRequest measures all that one request counts.
func BenchmarkRequest(b *testing.B) {
	for name, span := range map[string]trace.SpanContext{"unsampled": {}, "sampled": sampled(1)} {
		b.Run(name, func(b *testing.B) {
			p := newPath()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					p.request(span)
				}
			})
		})
	}
}

var update = flag.Bool("update", false, "write the table of the document")

const (
	metricsPage = "../../../docs/reference/metrics.md"
	alertRules  = "../../../deploy/prometheus/serving.yml"
	tableBegin  = "<!-- Metrics of serving: go test ./serving/internal/metrics -run TestMetricsAreDocumented -update writes them. -->\n"
	tableEnd    = "<!-- End of the metrics of serving. -->\n"
)

func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(page), tableBegin)
	got, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the lines around the table", metricsPage)
	}
	var want strings.Builder
	want.WriteString("\n")
	for _, f := range described(t) {
		labels := ""
		if len(f.labels) > 0 {
			labels = "{" + strings.Join(f.labels, ",") + "}"
		}
		if strings.HasSuffix(f.name, "_total") {
			fmt.Fprintf(&want, "- `%s%s`: %s\n", f.name, labels, f.help)
			continue
		}
		fmt.Fprintf(&want, "- `%s%s` (%s): %s\n", f.name, labels, f.kind, f.help)
	}
	want.WriteString("\n")
	if *update {
		if err := os.WriteFile(metricsPage, []byte(before+tableBegin+want.String()+tableEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", metricsPage, diff)
	}
}

// TestAlertsAskForMetricsThatExist looks up each metric that an alert names.
func TestAlertsAskForMetricsThatExist(t *testing.T) {
	alerts, err := os.ReadFile(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`\bserve_[a-z_]+`).FindAllString(string(alerts), -1)
	if len(asked) < 5 {
		t.Fatalf("%s asks for %v only", alertRules, asked)
	}
	for _, name := range asked {
		if !slices.ContainsFunc(described(t), func(f family) bool {
			return f.name == name || f.kind == "histogram" && strings.TrimSuffix(name, "_bucket") == f.name
		}) {
			t.Errorf("an alert asks for %s, which is not there", name)
		}
	}
}

// family is one metric as a Set describes it.
type family struct {
	name, help, kind string // kind is empty if it has no series
	labels           []string
}

// described returns the families of a Set in the order of the document.
func described(t *testing.T) []family {
	t.Helper()
	s := New()
	all(s)
	kinds := map[string]string{}
	for _, f := range scrape(t, s) {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	descs := make(chan *prometheus.Desc, 100)
	s.Describe(descs)
	close(descs)
	form := regexp.MustCompile(`^Desc{fqName: "(\w+)", help: "(.*)", unit: "", constLabels: {}, variableLabels: {(.*)}}$`)
	var list []family
	for d := range descs {
		part := form.FindStringSubmatch(d.String())
		if part == nil {
			t.Fatalf("a description of another form: %s", d)
		}
		f := family{name: part[1], help: part[2], kind: kinds[part[1]]}
		for label := range strings.SplitSeq(part[3], ",") {
			// A label whose values are constrained is shown as c(name).
			if label = strings.TrimSuffix(strings.TrimPrefix(label, "c("), ")"); label != "" {
				f.labels = append(f.labels, label)
			}
		}
		list = append(list, f)
	}
	return list
}

func TestNames(t *testing.T) {
	all := described(t)
	for _, f := range all {
		if f.kind == "counter" != strings.HasSuffix(f.name, "_total") {
			t.Errorf("%s is a %s", f.name, f.kind)
		}
	}
	if len(all) < 30 {
		t.Errorf("only %d families", len(all))
	}
}

// TestOutcomesAreSummed: one histogram has what failed and what did not, in its
// buckets, its sum and its examples.
func TestOutcomesAreSummed(t *testing.T) {
	s := New()
	r := s.Replica("a", "D", "r1")
	for _, failed := range []bool{false, true, true} {
		r.Began()
		r.Done("/x", 3*time.Millisecond, failed, sampled(7))
	}
	for _, f := range scrape(t, s) {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "serve_deployment_request_counter_total":
				if got := m.GetCounter().GetValue(); got != 1 {
					t.Errorf("%v calls done, want 1", got)
				}
			case "serve_deployment_error_counter_total":
				if got := m.GetCounter().GetValue(); got != 2 {
					t.Errorf("%v calls failed, want 2", got)
				}
			case "serve_deployment_processing_latency_ms":
				h := m.GetHistogram()
				if h.GetSampleCount() != 3 || h.GetSampleSum() != 9 || h.GetBucket()[2].GetCumulativeCount() != 3 || h.GetBucket()[2].GetExemplar() == nil {
					t.Errorf("latencies: %v, want 3 of 3 ms, with an example", h)
				}
			}
		}
	}
}
