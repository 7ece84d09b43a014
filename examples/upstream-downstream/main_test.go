package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/examples/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m, "upstream-downstream", main) }

// off leaves the list of plugins to the service file, if there is one.
const off = "SERVE_TRACING_EXPORTER_PLUGIN="

// startService starts one of the two services.
func startService(t *testing.T, args []string, environ ...string) *hellotest.Service {
	t.Helper()
	return servicetest.Start(t, "upstream-downstream", args, environ...)
}

// startBoth starts two services, of which the first calls the other.
func startBoth(t *testing.T, upstream, downstream []string) (up, down *hellotest.Service) {
	t.Helper()
	down = startService(t, nil, downstream...)
	return startService(t, []string{"--downstream", down.URL + "/downstream"}, upstream...), down
}

// get sends a request with that traceparent, or none.
func get(t *testing.T, url, traceparent string) (status int, body string) {
	t.Helper()
	return servicetest.Do(t, url, "", "Traceparent", traceparent)
}

const answer = `{"upstream_message":"Hello world from UpstreamApp!","downstream_message":"Hello world from DownstreamApp!"}` + "\n"

// The spans of a request, from the outermost on, each the parent of the next.
var (
	upstreamChain = []string{
		"proxy_http_request UpstreamApp GET /", "route_to_replica UpstreamApp __call__",
		"replica_handle_request UpstreamApp __call__", "upstream_application_span",
	}
	downstreamChain = []string{
		"proxy_http_request DownstreamApp GET /downstream", "route_to_replica DownstreamApp __call__",
		"replica_handle_request DownstreamApp __call__", "downstream_application_span",
	}
)

// wantChain compares spans with the names in chain: one of each, each the parent
// of the next, the first of them of parent. It gives the id of the last.
func wantChain(t *testing.T, list []servicetest.Span, chain []string, traceID, parent string) string {
	t.Helper()
	byName := map[string]servicetest.Span{}
	for _, s := range list {
		byName[s.Name] = s
		if s.Context.TraceID != "0x"+traceID {
			t.Errorf("span %q is of trace %s, want %s", s.Name, s.Context.TraceID, traceID)
		}
	}
	if len(list) != len(chain) {
		t.Errorf("%d spans, want %d", len(list), len(chain))
	}
	for _, name := range chain {
		s, there := byName[name]
		if !there {
			t.Fatalf("no span %q among %v", name, list)
		}
		if s.ParentID != parent {
			t.Errorf("span %q has parent %q, want %q", name, s.ParentID, parent)
		}
		parent = s.Context.SpanID
	}
	return parent
}

// One request makes one trace in two processes: all spans are of the caller's
// trace, and the downstream proxy's parent is the span that made the call. The
// request that is not sampled makes none, in neither.
func TestOneTraceInTwoServices(t *testing.T) {
	up, down := startBoth(t, nil, nil)
	for _, traceparent := range []string{servicetest.Unsampled, servicetest.Sampled} {
		if status, body := get(t, up.URL, traceparent); status != http.StatusOK || body != answer {
			t.Errorf("status %d, body %q", status, body)
		}
	}
	up.Stop()
	down.Stop() // each has delivered all of its spans

	mine := servicetest.Spans(t, up.Stdout.String())
	last := wantChain(t, mine, upstreamChain, servicetest.TraceID, "0x"+servicetest.CallerID)
	theirs := servicetest.Spans(t, down.Stdout.String())
	wantChain(t, theirs, downstreamChain, servicetest.TraceID, last)
	for _, s := range append(mine, theirs...) {
		if !strings.HasSuffix(s.Name, "_application_span") {
			continue
		}
		if s.Status.Code != "OK" || s.Attributes["deployment"] == nil || s.Attributes["replica_id"] == nil {
			t.Errorf("span %q has status %s and %v, want OK, deployment and replica_id", s.Name, s.Status.Code, s.Attributes)
		}
	}
}

// TestOneServiceCallsItself checks the guide's own form: one service has both
// applications, and --downstream is not given.
func TestOneServiceCallsItself(t *testing.T) {
	s := startService(t, nil)
	if status, body := get(t, s.URL, servicetest.Sampled); status != http.StatusOK || body != answer {
		t.Errorf("status %d, body %q", status, body)
	}
	s.Stop()
	wantChain(t, servicetest.Spans(t, s.Stdout.String()), append(append([]string{}, upstreamChain...), downstreamChain...), servicetest.TraceID, "0x"+servicetest.CallerID)
}

// The upstream service decides for both: a request that it does not sample is not sampled
// by the other, which samples all its own requests.
func TestOneDecisionForBothServices(t *testing.T) {
	up, down := startBoth(t, []string{"SERVE_TRACING_SAMPLING_RATIO=0"}, nil)
	if status, body := get(t, up.URL, ""); status != http.StatusOK || body != answer {
		t.Errorf("status %d, body %q", status, body)
	}
	get(t, down.URL+"/downstream", servicetest.Sampled) // by itself, to see that it would
	up.Stop()
	down.Stop()
	if text := up.Stdout.String(); text != "" {
		t.Errorf("the upstream service has spans:\n%s", text)
	}
	wantChain(t, servicetest.Spans(t, down.Stdout.String()), downstreamChain, servicetest.TraceID, "0x"+servicetest.CallerID)
}

// An upstream service without tracing passes its caller's context on.
func TestUpstreamWithoutTracing(t *testing.T) {
	up, down := startBoth(t, []string{off}, nil)
	if status, body := get(t, up.URL, servicetest.Sampled); status != http.StatusOK || body != answer {
		t.Errorf("status %d, body %q", status, body)
	}
	up.Stop()
	down.Stop()
	wantChain(t, servicetest.Spans(t, down.Stdout.String()), downstreamChain, servicetest.TraceID, "0x"+servicetest.CallerID)
}

// The two service files of this folder, as they are but for the port: one trace
// in span files, each span with the name of its service.
func TestServiceFiles(t *testing.T) {
	state := t.TempDir()
	environ := "XDG_STATE_HOME=" + state
	down := startService(t, []string{"--config", "downstream.yaml"}, off, environ)
	up := startService(t, []string{"--config", "upstream.yaml", "--downstream", down.URL + "/downstream"}, off, environ)
	if status, body := get(t, up.URL, ""); status != http.StatusOK || body != answer {
		t.Errorf("status %d, body %q", status, body)
	}
	up.Stop()
	down.Stop()

	files, err := filepath.Glob(filepath.Join(state, "servetrace", "spans", "*_tracing.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []servicetest.Span
	names := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		of := servicetest.Spans(t, string(text))
		list = append(list, of...)
		name, _, _ := strings.Cut(filepath.Base(file), "_app")
		names[name] += len(of)
	}
	var proxy string
	for name := range names {
		if strings.HasPrefix(name, "proxy_") {
			proxy = name
		}
	}
	// Both proxies are of this machine: their spans, and the routers', are in one
	// file. Each replica has its own.
	if diff := cmp.Diff(map[string]int{proxy: 4, "replica": 4}, names); diff != "" || len(files) != 3 {
		t.Errorf("%d files, want 3; spans in files that begin so (-want +got):\n%s", len(files), diff)
	}
	if len(list) == 0 {
		t.Fatal("no spans")
	}
	wantChain(t, list, append(append([]string{}, upstreamChain...), downstreamChain...),
		strings.TrimPrefix(list[0].Context.TraceID, "0x"), "")
	for _, s := range list {
		want := "upstream"
		if strings.Contains(s.Name, "DownstreamApp") || s.Name == "downstream_application_span" {
			want = "downstream"
		}
		if got := s.Resource.Attributes["service.name"]; got != want {
			t.Errorf("span %q is of service %v, want %s", s.Name, got, want)
		}
	}
}

// The downstream service is not there: the client is told, and so is the trace.
func TestDownstreamIsGone(t *testing.T) {
	up, down := startBoth(t, nil, []string{off})
	down.Stop()
	if status, body := get(t, up.URL, servicetest.Sampled); status != http.StatusInternalServerError {
		t.Errorf("status %d, body %q", status, body)
	}
	up.Stop()
	list := servicetest.Spans(t, up.Stdout.String())
	wantChain(t, list, upstreamChain, servicetest.TraceID, "0x"+servicetest.CallerID)
	for _, s := range list {
		if s.Name == "upstream_application_span" && s.Status.Code != "ERROR" {
			t.Errorf("span %q has status %s", s.Name, s.Status.Code)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	servicetest.WrongArguments(t, "upstream-downstream", "URL that UpstreamApp calls")
}
