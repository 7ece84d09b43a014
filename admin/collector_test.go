package admin

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/golden"
)

// registryOf returns a registry with the collector of these statistics.
func registryOf(t *testing.T, stats host.Stats) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(NewCollector(func() host.Stats { return stats })); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMetricsPassPromlint(t *testing.T) {
	problems, err := testutil.GatherAndLint(registryOf(t, sample()))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMetricsMatchStats(t *testing.T) {
	var lines []string
	for line := range strings.Lines(serve(t, sample(), http.MethodGet, "/metrics").Body.String()) {
		if !strings.Contains(line, "servetrace_") && !strings.Contains(line, "otel_sdk_") {
			continue
		}
		if strings.HasPrefix(line, "servetrace_build_info{") {
			line = "servetrace_build_info{…} 1\n"
		}
		lines = append(lines, line)
	}
	golden.Compare(t, "metrics.txt", strings.Join(lines, ""))
}

func TestBuildInfo(t *testing.T) {
	body := serve(t, sample(), http.MethodGet, "/metrics").Body.String()
	version, revision := build()
	for _, want := range []string{
		fmt.Sprintf("revision=%q,version=%q} 1", revision, version), "\ngo_goroutines ", "\nprocess_cpu_seconds_total ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
}

// Every state is in the metrics: a new one must be put into the list.
func TestEveryStateIsASeries(t *testing.T) {
	for i, s := range states {
		if int(s) != i {
			t.Errorf("state %d of the list is %v", i, s)
		}
	}
	defer func() {
		if recover() == nil {
			t.Errorf("the host has more states than the %d of the list", len(states))
		}
	}()
	_ = host.State(len(states)).String() // indexes the host's own table
}

// Prometheus asks for OpenMetrics first, and an older one for its own text.
func TestMetricsNegotiate(t *testing.T) {
	for accept, want := range map[string]string{
		"":           "text/plain; version=0.0.4",
		"text/plain": "text/plain; version=0.0.4",
		"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5": "application/openmetrics-text; version=1.0.0",
	} {
		w := serve(t, sample(), http.MethodGet, "/metrics", "Accept", accept)
		if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, want) || w.Code != http.StatusOK {
			t.Errorf("Accept %q: %d %q, want %q", accept, w.Code, got, want)
		}
		if open := strings.Contains(want, "openmetrics"); open != strings.HasSuffix(w.Body.String(), "# EOF\n") {
			t.Errorf("Accept %q: the end is not that of the form", accept)
		}
	}
}

// One scrape is of one moment.
func TestScrapeUsesOneSnapshot(t *testing.T) {
	taken := 0
	n, err := testutil.GatherAndCount(func() *prometheus.Registry {
		r := prometheus.NewRegistry()
		r.MustRegister(NewCollector(func() host.Stats { taken++; return sample() }))
		return r
	}())
	if err != nil || n == 0 || taken != 1 {
		t.Errorf("%d series, statistics read %d times, error %v; want some, once, nil", n, taken, err)
	}
}

// Texts of a plugin may not be UTF-8, and two repaired names may be equal: the scrape
// succeeds all the same, and has every span.
func TestInvalidLabelsAreCleaned(t *testing.T) {
	stats := sample()
	x := &stats.Exporters[0]
	long := strings.Repeat("ä", 200)
	x.Version, x.SDK = "\xff\xfe", long
	x.Filtered = map[string]uint64{"a\xff": 7, "a\xfe": 8, evil: 5}
	x.Rejected = map[string]uint64{"\"\\\n": 5}
	for _, accept := range []string{"", "application/openmetrics-text;version=1.0.0"} {
		w := serve(t, stats, http.MethodGet, "/metrics", "Accept", accept)
		body := w.Body.String()
		if w.Code != http.StatusOK || !utf8.ValidString(body) {
			t.Fatalf("%d, valid UTF-8 %t:\n%s", w.Code, utf8.ValidString(body), body)
		}
		for _, want := range []string{
			`servetrace_plugin_spans_filtered_total{plugin="console",processor="a` + "\uFFFD" + `"} 15`,
			`servetrace_plugin_spans_rejected_total{code="\"\\\n",plugin="console"} 5`,
			`sdk="` + long[:maxLabel] + `",version="` + "\uFFFD" + `"} 1`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("no %q in:\n%s", want, body)
			}
		}
	}
}

// A plugin that left the list and came back is one series.
func TestReturnedPluginIsOneSeries(t *testing.T) {
	before := sample().Exporters[0]
	before.State, before.PID = host.StateStopped, 0
	now := sample().Exporters[0]
	now.State, now.Version = host.StateReady, "2"
	for name, list := range map[string][]host.ExporterStats{"old first": {before, now}, "new first": {now, before}} {
		text := serve(t, host.Stats{Exporters: list}, http.MethodGet, "/metrics").Body.String()
		for _, want := range []string{
			`servetrace_plugin_state{plugin="console",state="ready"} 1`, `servetrace_plugin_state{plugin="console",state="stopped"} 0`,
			`version="2"} 1`, `servetrace_plugin_starts_total{plugin="console"} 14`, `servetrace_plugin_crashes_total{plugin="console"} 12`,
			`servetrace_plugin_spans_accepted_total{plugin="console"} 200`, `servetrace_plugin_spans_delivered_total{plugin="console"} 100`,
			`servetrace_plugin_spans_rejected_total{code="INVALID_ARGUMENT",plugin="console"} 6`,
			`servetrace_plugin_spans_filtered_total{plugin="console",processor="filter"} 40`,
			`servetrace_plugin_spans_dropped_total{plugin="console",reason="max_age"} 8`,
			`servetrace_plugin_spans_lost_total{plugin="console"} 20`, `servetrace_plugin_spans_waiting{plugin="console"} 40`,
			`servetrace_plugin_calls_total{answer="OK",plugin="console"} 14`, `servetrace_plugin_quarantined_batches_total{plugin="console"} 2`,
			`servetrace_plugin_output_suppressed_lines_total{plugin="console"} 2468`, `servetrace_plugin_unkept_files_total{plugin="console"} 6`,
			`otel_sdk_exporter_operation_duration_seconds_bucket{otel_component_name="console",le="1"} 16`,
			`otel_sdk_exporter_operation_duration_seconds_count{otel_component_name="console"} 18`,
			`otel_sdk_exporter_operation_duration_seconds_sum{otel_component_name="console"} 9`,
			`otel_sdk_exporter_span_inflight{otel_component_name="console"} 16`,
			`servetrace_plugin_calls_in_flight{plugin="console"} 4`, `servetrace_plugin_held_bytes{plugin="console"} 8192`,
		} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("%s: no %q in:\n%s", name, want, text)
			}
		}
	}
}

// metricsPage lists the metrics between tableBegin and tableEnd, and alertRules
// asks for them.
const (
	metricsPage = "../docs/reference/metrics.md"
	alertRules  = "../deploy/prometheus/servetrace.yml"
	tableBegin  = "<!-- Metrics: go test ./admin -run TestMetricsAreDocumented -update writes them. -->\n"
	relayBegin  = "<!-- Metrics of the relay: go test ./admin -run TestMetricsAreDocumented -update writes them. -->\n"
	tableEnd    = "<!-- End of the metrics. -->\n"
)

func TestMetricsAreDocumented(t *testing.T) {
	for begin, list := range map[string][]*metric{tableBegin: metrics, relayBegin: relayMetrics} {
		page, err := os.ReadFile(metricsPage)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, ok1 := strings.Cut(string(page), begin)
		got, after, ok2 := strings.Cut(rest, tableEnd)
		if !ok1 || !ok2 {
			t.Fatalf("%s lacks the lines around the table", metricsPage)
		}
		var want strings.Builder
		want.WriteString("\n")
		for _, m := range list {
			labels := ""
			if len(m.labels) > 0 {
				labels = "{" + strings.Join(m.labels, ",") + "}"
			}
			if strings.HasSuffix(m.name, "_total") {
				fmt.Fprintf(&want, "- `%s%s`: %s\n", m.name, labels, m.help)
				continue
			}
			fmt.Fprintf(&want, "- `%s%s` (%s): %s\n", m.name, labels, m.kind, m.help)
		}
		want.WriteString("\n")
		if *golden.Update {
			if err := os.WriteFile(metricsPage, []byte(before+begin+want.String()+tableEnd+after), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(want.String(), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", metricsPage, diff)
		}
	}
}

// TestAlertsAskForMetricsThatExist looks up each metric that the page or an alert names.
func TestAlertsAskForMetricsThatExist(t *testing.T) {
	var names []string
	for _, m := range slices.Concat(metrics, relayMetrics) {
		names = append(names, m.name)
	}
	for path, least := range map[string]int{metricsPage: len(metrics), alertRules: 6} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, word := range regexp.MustCompile(`\b(servetrace|otel_sdk)_[a-z0-9_]+`).FindAllString(string(text), -1) {
			seen++
			if !slices.Contains(names, word) {
				t.Errorf("%s names %s, which is no metric", path, word)
			}
		}
		if seen < least {
			t.Errorf("%s names %d metrics, want %d or more", path, seen, least)
		}
	}
}

// A client that has gone is none of the handler's trouble.
func TestClientDisconnects(t *testing.T) {
	h := Handler(sample)
	for _, target := range []string{"/-/tracing", "/-/tracing.json", "/metrics", "/-/healthz"} {
		r, err := http.NewRequest(http.MethodGet, target, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		h.ServeHTTP(gone{http.Header{}}, r)
	}
}

// gone is the connection of a client that has gone.
type gone struct{ header http.Header }

func (g gone) Header() http.Header       { return g.header }
func (g gone) WriteHeader(int)           {}
func (g gone) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
