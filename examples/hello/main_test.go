package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestMain lets this test binary also be hello, and the console plugin, under
// their names.
func TestMain(m *testing.M) {
	testplugin.Main()
	switch filepath.Base(os.Args[0]) {
	case "hello":
		main()
		os.Exit(0)
	case "console":
		pluginsdk.Main(pluginsdk.Spec{
			Name: "console", Env: consoleexporter.EnvPatterns(), Exporter: consoleexporter.New,
		})
	}
	os.Exit(m.Run())
}

// links gives the paths of hello and of the console plugin.
func links(t *testing.T) (hello, console string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	hello, console = filepath.Join(dir, "hello"), filepath.Join(dir, "console")
	if err := errors.Join(os.Symlink(exe, hello), os.Symlink(exe, console)); err != nil {
		t.Fatal(err)
	}
	return hello, console
}

// span is a span as the console plugin prints it, in part.
type span struct {
	Name    string `json:"name"`
	Context struct {
		TraceID string `json:"trace_id"`
		SpanID  string `json:"span_id"`
		State   string `json:"trace_state"`
	} `json:"context"`
	ParentID string `json:"parent_id"`
	Status   struct {
		Code        string `json:"status_code"`
		Description string `json:"description"`
	} `json:"status"`
	Attributes map[string]any `json:"attributes"`
	Events     []struct {
		Name string `json:"name"`
	} `json:"events"`
}

// serve runs hello while f sends requests, and gives the spans that the plugin
// printed and hello's log.
func serve(t *testing.T, env []string, f func(url string)) (spans []span, log string) {
	t.Helper()
	hello, console := links(t)
	cmd := exec.CommandContext(t.Context(), hello, "--http", "127.0.0.1:0")
	// On a busy machine the plugin may take long to start, and the spans wait.
	cmd.Env = append([]string{
		"GORACE=atexit_sleep_ms=0", "SERVE_TRACING_PLUGIN_DIR=" + filepath.Dir(console),
		"SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_STOP_TIMEOUT=1m",
	}, env...)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer hang.Stop()
	lines := bufio.NewScanner(stderr)
	var text strings.Builder
	serving := regexp.MustCompile(`\burl=(http://\S+)`)
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if found := serving.FindStringSubmatch(lines.Text()); found != nil {
			f(found[1])
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Errorf("stop hello: %v", err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("hello ended: %v\n%s", err, text.String())
	}
	for d := json.NewDecoder(&stdout); ; {
		var one span
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return spans, text.String()
		}
		if err != nil {
			t.Fatalf("standard output is not spans: %v", err)
		}
		spans = append(spans, one)
	}
}

// get sends a request with header and gives the answer.
func get(t *testing.T, url string, header http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// The responses of the client and the spans agree.
func TestHello(t *testing.T) {
	for _, tc := range []struct {
		path   string
		status int
		body   string
		// of proxy and handler; the other two have none.
		proxy, handler, description string
		events                      map[string]int // by the handler's and the proxy's names
	}{
		{"/", 200, "Hello world!\n", "OK", "OK", "", nil},
		{"/fail", 500, "Internal Server Error", "ERROR", "ERROR", "model not found",
			map[string]int{"proxy exception": 1, "handler exception": 1}},
		{"/stream", 200, "one\ntwo\nthree\n", "OK", "UNSET", "", map[string]int{"handler sent": 3}},
	} {
		t.Run(tc.path, func(t *testing.T) {
			spans, _ := serve(t, []string{"SERVE_TRACING_EXPORTER_PLUGIN=console"}, func(url string) {
				header := http.Header{
					"X-Request-Id": {"r1"},
					"Traceparent":  {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
					"Tracestate":   {"vendor=x"},
				}
				status, body := get(t, url+tc.path, header)
				if status != tc.status || body != tc.body {
					t.Errorf("status %d, body %q; want %d, %q", status, body, tc.status, tc.body)
				}
			})
			byName := map[string]span{}
			for _, s := range spans {
				byName[s.Name] = s
				if s.Context.TraceID != "0x4bf92f3577b34da6a3ce929d0e0e4736" || !strings.Contains(s.Context.State, "vendor") {
					t.Errorf("span %q is of trace %s with state %s, want the caller's", s.Name, s.Context.TraceID, s.Context.State)
				}
				if s.Attributes["serve.request_id"] != "r1" {
					t.Errorf("span %q is of request %v", s.Name, s.Attributes["serve.request_id"])
				}
			}
			chain := []string{"proxy_http_request HelloWorld GET " + tc.path, "route_to_replica HelloWorld __call__",
				"replica_handle_request HelloWorld __call__", "application_span"}
			if len(spans) != len(chain) {
				t.Fatalf("%d spans, want %d: %v", len(spans), len(chain), spans)
			}
			parent := "0x00f067aa0ba902b7"
			for i, name := range chain {
				s := byName[name]
				status := []string{tc.proxy, "UNSET", "UNSET", tc.handler}[i]
				if s.ParentID != parent || s.Status.Code != status {
					t.Errorf("span %q: parent %s, status %s; want %s, %s", name, s.ParentID, s.Status.Code, parent, status)
				}
				parent = s.Context.SpanID
			}
			proxy, handler := byName[chain[0]], byName[chain[3]]
			if got := proxy.Attributes["http.status_code"]; got != float64(tc.status) {
				t.Errorf("http.status_code %v, want %d", got, tc.status)
			}
			if proxy.Status.Description != tc.description {
				t.Errorf("description %q, want %q", proxy.Status.Description, tc.description)
			}
			id := byName[chain[2]].Attributes["replica_id"]
			if handler.Attributes["deployment"] != "HelloWorld" || handler.Attributes["replica_id"] != id || id == nil {
				t.Errorf("application_span has %v, want deployment HelloWorld and replica_id %v", handler.Attributes, id)
			}
			events := map[string]int{}
			for who, s := range map[string]span{"proxy": proxy, "handler": handler} {
				for _, e := range s.Events {
					events[who+" "+e.Name]++
				}
			}
			if len(events) == 0 {
				events = nil
			}
			if diff := cmp.Diff(tc.events, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// Both replicas are used, and no others.
func TestTwoReplicas(t *testing.T) {
	spans, _ := serve(t, []string{"SERVE_TRACING_EXPORTER_PLUGIN=console"}, func(url string) {
		for range 60 { // one replica alone would be taken once in 10^18 times
			get(t, url, http.Header{})
		}
	})
	replicas := map[any]bool{}
	for _, s := range spans {
		if id := s.Attributes["serve.replica_id"]; id != nil {
			replicas[id] = true
		}
	}
	if len(replicas) != 2 || len(spans) != 4*60 {
		t.Errorf("replicas %v and %d spans, want two and 240", replicas, len(spans))
	}
}

func TestHelloWithoutTracing(t *testing.T) {
	spans, log := serve(t, nil, func(url string) {
		if status, body := get(t, url, http.Header{}); status != 200 || body != "Hello world!\n" {
			t.Errorf("status %d, body %q", status, body)
		}
	})
	if len(spans) != 0 || !strings.Contains(log, "tracing=off") || !strings.Contains(log, "curl -i http://127.0.0.1:") {
		t.Errorf("%d spans, and the log:\n%s", len(spans), log)
	}
}

func TestWrongArguments(t *testing.T) {
	hello, _ := links(t)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--http", "nowhere"}, 1, `hello: settings: HTTPAddr "nowhere": want host:port`},
		{[]string{"--port", "1"}, 2, "flag provided but not defined: -port"},
		{[]string{"now"}, 2, `hello: argument "now": want none`},
		{[]string{"--help"}, 0, "address to serve HTTP on"},
	} {
		cmd := exec.CommandContext(t.Context(), hello, tc.args...)
		cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
		out, _ := cmd.CombinedOutput() // the exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(out), tc.want) {
			t.Errorf("hello %v: code %d and\n%s\nwant code %d and %q", tc.args, code, out, tc.code, tc.want)
		}
	}
}
