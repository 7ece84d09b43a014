package admin

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

func TestMain(m *testing.M) {
	testplugin.Main()
	goleak.VerifyTestMain(m)
}

// sample returns the statistics of a service with two plugins. All values differ, and the
// accounting balances.
func sample() host.Stats {
	begin := time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)
	return host.Stats{
		Ended: 110, Accepted: 100, Refused: map[string]uint64{"queue_full": 9, "too_large": 1},
		Bytes: 1 << 20, LimitBytes: 32 << 20,
		Processors: []host.ProcessorStats{{
			Plugin: host.ExporterStats{
				Name: "redact", Path: "/opt/plugins/redact", State: host.StateReady, Since: begin, Starts: 1,
				Accepted: 130, Filtered: map[string]uint64{"sampler": 21}, Dropped: map[string]uint64{"rejected": 2}, Waiting: 3,
			},
			Exporter: "console", FailOpen: true, Passed: 97, Bypassed: map[string]uint64{"timeout": 7},
		}},
		Exporters: []host.ExporterStats{
			{
				Name: "console", Path: "/opt/plugins/console", Digest: strings.Repeat("0a", 32),
				State: host.StateDegraded, Since: begin.Add(time.Minute), Cause: "503 from the back end",
				Version: "1.2.3", SDK: "servetrace-go 0.1 (go)", PID: 4242,
				Starts: 7, Crashes: 6, LastCrash: begin.Add(30 * time.Second),
				Granted: []string{"SERVE_CONSOLE_OUTPUT", "TERM"}, LastError: "UNAVAILABLE: 503 from the back end",
				LastErrorTime: begin.Add(58 * time.Second), HeldUntil: begin.Add(3 * time.Hour),
				Failures: []host.Failure{
					{Code: "UNAVAILABLE", Reason: "503 from the back end", Calls: 21, First: begin, Last: begin.Add(58 * time.Second)},
					{Code: "INVALID_ARGUMENT", Reason: "400 no such tenant", Calls: 1, Spans: 3, First: begin, Last: begin},
				},
				LastSuccess: begin.Add(59 * time.Second),
				Accepted:    100, Delivered: 50,
				Rejected: map[string]uint64{"INVALID_ARGUMENT": 3, "PARTIAL_SUCCESS": 2},
				Filtered: map[string]uint64{"filter": 20},
				Dropped:  map[string]uint64{"max_age": 4, "shutdown": 1},
				Waiting:  20, InFlight: 8, InFlightBatches: 2, HeldBytes: 4096, Quarantined: 1,
				Unkept: 3, Changed: true, OutputSuppressed: 1234, OutputDropped: 56,
				Answers: map[string]uint64{"OK": 7, "LOST": 2},
				Calls: host.Durations{
					Count: 9, Sum: 4500 * time.Millisecond, Buckets: map[time.Duration]uint64{100 * time.Millisecond: 5, time.Second: 8},
				},
			},
			{
				Name: "sidecar", Path: "/run/otlp.sock", Attached: true, State: host.StateStarting,
				Since: begin, Accepted: 100, Waiting: 100, HeldBytes: 8192,
			},
		},
	}
}

// serve answers one request with the handler of these statistics.
func serve(t *testing.T, stats host.Stats, method, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	h := Handler(func() host.Stats { return stats })
	return ask(h, method, target, header...)
}

// ask sends one request to a handler; header is names and values in turn.
func ask(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, http.NoBody)
	r.Host = "localhost:8001"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// fetch gets a URL of a running server.
func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}
