package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// TestMain lets this test binary also be the service, and the console plugin,
// under their names.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "upstream-downstream":
		main()
		os.Exit(0)
	case "console":
		pluginsdk.Main(pluginsdk.Spec{
			Name: "console", Env: consoleexporter.EnvPatterns(), Exporter: consoleexporter.New,
		})
	}
	os.Exit(m.Run())
}

const console = "SERVE_TRACING_EXPORTER_PLUGIN=console"

// startService starts one of the two services on a free port.
func startService(t *testing.T, args []string, environ ...string) *hellotest.Service {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, role := range []string{"upstream-downstream", "console"} {
		if err := os.Symlink(exe, filepath.Join(dir, role)); err != nil {
			t.Fatal(err)
		}
	}
	environ = append(environ, "GORACE=atexit_sleep_ms=0", "SERVE_TRACING_PLUGIN_DIR="+dir)
	return hellotest.StartProgram(t, filepath.Join(dir, "upstream-downstream"),
		append([]string{"--http", "127.0.0.1:0"}, args...), environ...)
}

// startBoth starts two services, of which the first calls the other.
func startBoth(t *testing.T, upstream, downstream []string) (up, down *hellotest.Service) {
	t.Helper()
	down = startService(t, nil, downstream...)
	return startService(t, []string{"--downstream", down.URL + "/downstream"}, upstream...), down
}

// Callers of a trace, sampled and not, in the form of traceparent.
const (
	traceID   = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerID  = "00f067aa0ba902b7"
	sampled   = "00-" + traceID + "-" + callerID + "-01"
	unsampled = "00-" + "0123456789abcdef0123456789abcdef" + "-" + callerID + "-00"
)

// get sends a request with that traceparent, or none.
func get(t *testing.T, url, traceparent string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if traceparent != "" {
		req.Header.Set("Traceparent", traceparent)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

const answer = `{"upstream_message":"Hello world from UpstreamApp!","downstream_message":"Hello world from DownstreamApp!"}` + "\n"

// span is a span as the console plugin prints it, in part.
type span struct {
	Name    string `json:"name"`
	Context struct {
		TraceID string `json:"trace_id"`
		SpanID  string `json:"span_id"`
	} `json:"context"`
	ParentID string `json:"parent_id"`
	Status   struct {
		Code string `json:"status_code"`
	} `json:"status"`
	Attributes map[string]any `json:"attributes"`
	Resource   struct {
		Attributes map[string]any `json:"attributes"`
	} `json:"resource"`
}

// spans reads the output of the console plugin.
func spans(t *testing.T, text string) (list []span) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var s span
		err := d.Decode(&s)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("this is not spans: %v\n%s", err, text)
		}
		list = append(list, s)
	}
}

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
func wantChain(t *testing.T, list []span, chain []string, traceID, parent string) string {
	t.Helper()
	byName := map[string]span{}
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
	up, down := startBoth(t, []string{console}, []string{console})
	for _, traceparent := range []string{unsampled, sampled} {
		if status, body := get(t, up.URL, traceparent); status != http.StatusOK || body != answer {
			t.Errorf("status %d, body %q", status, body)
		}
	}
	up.Stop()
	down.Stop() // each has delivered all of its spans

	mine := spans(t, up.Stdout.String())
	last := wantChain(t, mine, upstreamChain, traceID, "0x"+callerID)
	theirs := spans(t, down.Stdout.String())
	wantChain(t, theirs, downstreamChain, traceID, last)
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
	s := startService(t, nil, console)
	if status, body := get(t, s.URL, sampled); status != http.StatusOK || body != answer {
		t.Errorf("status %d, body %q", status, body)
	}
	s.Stop()
	wantChain(t, spans(t, s.Stdout.String()), append(append([]string{}, upstreamChain...), downstreamChain...), traceID, "0x"+callerID)
}

// The upstream service decides for both: a request that it does not sample is not sampled
// by the other, which samples all its own requests.
func TestOneDecisionForBothServices(t *testing.T) {
	up, down := startBoth(t, []string{console, "SERVE_TRACING_SAMPLING_RATIO=0"}, []string{console})
	if status, body := get(t, up.URL, ""); status != http.StatusOK || body != answer {
		t.Errorf("status %d, body %q", status, body)
	}
	get(t, down.URL+"/downstream", sampled) // by itself, to see that it would
	up.Stop()
	down.Stop()
	if text := up.Stdout.String(); text != "" {
		t.Errorf("the upstream service has spans:\n%s", text)
	}
	wantChain(t, spans(t, down.Stdout.String()), downstreamChain, traceID, "0x"+callerID)
}

// An upstream service without tracing passes its caller's context on.
func TestUpstreamWithoutTracing(t *testing.T) {
	up, down := startBoth(t, nil, []string{console})
	if status, body := get(t, up.URL, sampled); status != http.StatusOK || body != answer {
		t.Errorf("status %d, body %q", status, body)
	}
	up.Stop()
	down.Stop()
	wantChain(t, spans(t, down.Stdout.String()), downstreamChain, traceID, "0x"+callerID)
}

// The two service files of this folder, as they are but for the port: one trace
// in span files, each span with the name of its service.
func TestServiceFiles(t *testing.T) {
	state := t.TempDir()
	environ := "XDG_STATE_HOME=" + state
	down := startService(t, []string{"--config", "downstream.yaml"}, environ)
	up := startService(t, []string{"--config", "upstream.yaml", "--downstream", down.URL + "/downstream"}, environ)
	if status, body := get(t, up.URL, ""); status != http.StatusOK || body != answer {
		t.Errorf("status %d, body %q", status, body)
	}
	up.Stop()
	down.Stop()

	files, err := filepath.Glob(filepath.Join(state, "servetrace", "spans", "*_tracing.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []span
	names := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		of := spans(t, string(text))
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
	up, down := startBoth(t, []string{console}, nil)
	down.Stop()
	if status, body := get(t, up.URL, sampled); status != http.StatusInternalServerError {
		t.Errorf("status %d, body %q", status, body)
	}
	up.Stop()
	list := spans(t, up.Stdout.String())
	wantChain(t, list, upstreamChain, traceID, "0x"+callerID)
	for _, s := range list {
		if s.Name == "upstream_application_span" && s.Status.Code != "ERROR" {
			t.Errorf("span %q has status %s", s.Name, s.Status.Code)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	program := hellotest.Self(t, "upstream-downstream")
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--http", "nowhere"}, 1, `upstream-downstream: settings: HTTPAddr "nowhere": want host:port`},
		{[]string{"now"}, 2, `upstream-downstream: argument "now": want none`},
		{[]string{"--help"}, 0, "URL that UpstreamApp calls"},
	} {
		cmd := exec.CommandContext(t.Context(), program, tc.args...)
		cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
		out, _ := cmd.CombinedOutput() // the exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(out), tc.want) {
			t.Errorf("%v: code %d and\n%s\nwant code %d and %q", tc.args, code, out, tc.code, tc.want)
		}
	}
}
