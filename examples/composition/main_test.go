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
	case "composition":
		main()
		os.Exit(0)
	case "console":
		pluginsdk.Main(pluginsdk.Spec{
			Name: "console", Env: consoleexporter.EnvPatterns(), Exporter: consoleexporter.New,
		})
	}
	os.Exit(m.Run())
}

// start starts the service with the console plugin.
func start(t *testing.T) *hellotest.Service {
	t.Helper()
	program, console := hellotest.Self(t, "composition"), hellotest.Self(t, "console")
	return hellotest.StartProgram(t, program, []string{"--http", "127.0.0.1:0"}, "GORACE=atexit_sleep_ms=0",
		"SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_TRACING_PLUGIN_DIR="+filepath.Dir(console))
}

const (
	traceID   = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerID  = "00f067aa0ba902b7"
	sampled   = "00-" + traceID + "-" + callerID + "-01"
	unsampled = "00-0123456789abcdef0123456789abcdef-" + callerID + "-00"
)

// describe asks about text, as part of the caller's trace.
func describe(t *testing.T, url, text, traceparent string) (status int, body string) {
	t.Helper()
	in, err := json.Marshal(Text{text})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/describe", strings.NewReader(string(in)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", traceparent)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

// tree gives for each span that the console plugin has printed the name of its
// parent, and its events.
func tree(t *testing.T, text string) map[string]string {
	t.Helper()
	type span struct {
		Name    string `json:"name"`
		Context struct {
			TraceID string `json:"trace_id"`
			SpanID  string `json:"span_id"`
		} `json:"context"`
		ParentID string `json:"parent_id"`
		Events   []any  `json:"events"`
	}
	names := map[string]string{"0x" + callerID: "the client"}
	var list []span
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var s span
		err := d.Decode(&s)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("this is not spans: %v\n%s", err, text)
		}
		if s.Context.TraceID != "0x"+traceID {
			t.Errorf("span %q is of trace %s", s.Name, s.Context.TraceID)
		}
		names[s.Context.SpanID] = s.Name
		list = append(list, s)
	}
	parents := map[string]string{}
	for _, s := range list {
		parents[s.Name] = names[s.ParentID] + strings.Repeat(" !", len(s.Events))
	}
	if len(parents) != len(list) {
		t.Errorf("%d spans with %d names, want each once", len(list), len(parents))
	}
	return parents
}

// family are the spans of the request, each with its parent.
func family() map[string]string {
	return map[string]string{
		"proxy_http_request Gateway POST /describe": "the client",
		"route_to_replica Gateway __call__":         "proxy_http_request Gateway POST /describe",
		"replica_handle_request Gateway __call__":   "route_to_replica Gateway __call__",
		"route_to_replica Shortener shorten":        "replica_handle_request Gateway __call__",
		"replica_handle_request Shortener shorten":  "route_to_replica Shortener shorten",
		"route_to_replica Tokenizer tokens":         "replica_handle_request Shortener shorten",
		"replica_handle_request Tokenizer tokens":   "route_to_replica Tokenizer tokens",
		"route_to_replica Sentiment __call__":       "replica_handle_request Gateway __call__",
		"replica_handle_request Sentiment __call__": "route_to_replica Sentiment __call__",
	}
}

// One request through four deployments is one trace: a chain of three, and two
// calls side by side. The request that is not sampled makes no span in any.
func TestOneTraceOfAllDeployments(t *testing.T) {
	s := start(t)
	for _, traceparent := range []string{unsampled, sampled} {
		status, body := describe(t, s.URL, "A good day. Then rain came.", traceparent)
		if want := `{"short":"A good day.","mood":"cheerful"}` + "\n"; status != http.StatusOK || body != want {
			t.Errorf("status %d, body %q, want %q", status, body, want)
		}
	}
	s.Stop() // all spans are delivered
	if diff := cmp.Diff(family(), tree(t, s.Stdout.String())); diff != "" {
		t.Errorf("spans and their parents (-want +got):\n%s", diff)
	}
}

// The failure at the end of the chain comes back through all of it, and is seen
// on each of its spans.
func TestFailureComesBack(t *testing.T) {
	s := start(t)
	if status, body := describe(t, s.URL, " ", sampled); status != http.StatusInternalServerError {
		t.Errorf("status %d, body %q", status, body)
	}
	s.Stop()
	want := family()
	for _, failed := range []string{
		"proxy_http_request Gateway POST /describe", "replica_handle_request Gateway __call__",
		"replica_handle_request Shortener shorten", "replica_handle_request Tokenizer tokens",
	} {
		want[failed] += " !" // an event: the exception
	}
	if diff := cmp.Diff(want, tree(t, s.Stdout.String())); diff != "" {
		t.Errorf("spans, their parents and events (-want +got):\n%s", diff)
	}
}

func TestWrongArguments(t *testing.T) {
	program := hellotest.Self(t, "composition")
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--http", "nowhere"}, 1, `composition: settings: HTTPAddr "nowhere": want host:port`},
		{[]string{"now"}, 2, `composition: argument "now": want none`},
		{[]string{"--help"}, 0, "address to serve HTTP on"},
	} {
		cmd := exec.CommandContext(t.Context(), program, tc.args...)
		cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
		out, _ := cmd.CombinedOutput() // the exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(out), tc.want) {
			t.Errorf("%v: code %d and\n%s\nwant code %d and %q", tc.args, code, out, tc.code, tc.want)
		}
	}
}
