// Package servicetest runs the service of an example with the console plugin, and reads
// the spans that it prints. Both are the test binary of the example, under two names.
//
//  1. TestMain calls [Main], which runs the service or the plugin under its name, and
//     else the tests.
//  2. [Start] starts the service on a free port, as package hellotest does.
//  3. [Do] sends a request, most often with [Sampled] as the caller's trace.
//  4. After Stop of the service, [Spans] reads its standard output.
//
// [WrongArguments] tests the flags that each example has. The package judges no span.
package servicetest

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
	"time"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// noWait ends a child process without the pause of the race detector.
const noWait = "GORACE=atexit_sleep_ms=0"

// Main runs the tests and exits the process. If the test binary has the name of the
// service, it runs the service by calling main. Under the name console it is the plugin.
func Main(m *testing.M, name string, main func()) {
	switch filepath.Base(os.Args[0]) {
	case name:
		main()
		os.Exit(0)
	case "console":
		pluginsdk.Main(pluginsdk.Spec{Name: "console", Env: consoleexporter.EnvPatterns(), Exporter: consoleexporter.New})
	}
	os.Exit(m.Run())
}

// Start starts the service called name on a free port. environ overrides the variables
// that name the console plugin as the exporter.
func Start(tb testing.TB, name string, args []string, environ ...string) *hellotest.Service {
	tb.Helper()
	program, console := hellotest.Self(tb, name), hellotest.Self(tb, "console")
	return hellotest.StartProgram(tb, program, append([]string{"--http", "127.0.0.1:0"}, args...), append([]string{
		noWait, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_TRACING_PLUGIN_DIR=" + filepath.Dir(console),
	}, environ...)...)
}

// The caller of requests: its trace and span, and headers traceparent with and without
// the flag of a sampled trace.
const (
	TraceID   = "4bf92f3577b34da6a3ce929d0e0e4736"
	CallerID  = "00f067aa0ba902b7"
	Sampled   = "00-" + TraceID + "-" + CallerID + "-01"
	Unsampled = "00-0123456789abcdef0123456789abcdef-" + CallerID + "-00"
)

// Do sends a request with headers, and returns the status and the body of the response.
// headers are names and values in turn; an empty value is not sent. A body is sent by POST.
func Do(tb testing.TB, url, body string, headers ...string) (status int, answer string) {
	tb.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(tb.Context(), method, url, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	out, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

// Span is a span as the console plugin prints it, in part.
type Span struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Context  SpanID    `json:"context"`
	ParentID string    `json:"parent_id"`
	Start    time.Time `json:"start_time"`
	Status   struct {
		Code        string `json:"status_code"`
		Description string `json:"description"`
	} `json:"status"`
	Attributes map[string]any `json:"attributes"`
	Events     []struct {
		Name string `json:"name"`
	} `json:"events"`
	Links []struct {
		Context SpanID `json:"context"`
	} `json:"links"`
	Resource struct {
		Attributes map[string]any `json:"attributes"`
	} `json:"resource"`
}

// SpanID has the ids of a span, in hexadecimal digits behind "0x", and the trace state.
type SpanID struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
	State   string `json:"trace_state"`
}

// Spans returns the spans in the output of the console plugin. It fails the test if the
// output has anything else.
func Spans(tb testing.TB, text string) (list []Span) {
	tb.Helper()
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var s Span
		err := d.Decode(&s)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			tb.Fatalf("not a span: %v\n%s", err, text)
		}
		list = append(list, s)
	}
}

// Argument is a command line of a service.
type Argument struct {
	Args []string
	Code int    // the exit code
	Want string // a part of the output
}

// WrongArguments checks that the service called name refuses an argument and a wrong
// address, and that its help has a text. It also checks more command lines.
func WrongArguments(t *testing.T, name, help string, more ...Argument) {
	t.Helper()
	program := hellotest.Self(t, name)
	for _, a := range append([]Argument{
		{[]string{"--http", "nowhere"}, 2, `invalid value "nowhere" for flag -http: want HOST:PORT, such as 127.0.0.1:8080`},
		{[]string{"now"}, 2, name + `: argument "now": want none`},
		{[]string{"--help"}, 0, help},
	}, more...) {
		cmd := exec.CommandContext(t.Context(), program, a.Args...)
		cmd.Env = []string{noWait}
		out, _ := cmd.CombinedOutput() // the exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != a.Code || !strings.Contains(string(out), a.Want) {
			t.Errorf("%v: code %d and\n%s\nwant code %d and %q", a.Args, code, out, a.Code, a.Want)
		}
	}
}
