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
	case "instrumented":
		main()
		os.Exit(0)
	case "console":
		pluginsdk.Main(pluginsdk.Spec{
			Name: "console", Env: consoleexporter.EnvPatterns(), Exporter: consoleexporter.New,
		})
	}
	os.Exit(m.Run())
}

// start starts the service with the console plugin, on free ports.
func start(t *testing.T, args []string, environ ...string) *hellotest.Service {
	t.Helper()
	program, console := hellotest.Self(t, "instrumented"), hellotest.Self(t, "console")
	return hellotest.StartProgram(t, program, append(args, "--http", "127.0.0.1:0"), append(environ, "GORACE=atexit_sleep_ms=0",
		"SERVE_GRPC_PORT=0", "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_TRACING_PLUGIN_DIR="+filepath.Dir(console))...)
}

// startBoth starts two services, of which the first calls the other's gRPC port.
func startBoth(t *testing.T, environ ...string) (shop, words *hellotest.Service) {
	t.Helper()
	words = start(t, nil, environ...)
	port := words.Await(words.Log, ` grpc=(\S+)`, 1)
	return start(t, []string{"--words", port[0]}, environ...), words
}

const (
	traceID   = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerID  = "00f067aa0ba902b7"
	sampled   = "00-" + traceID + "-" + callerID + "-01"
	unsampled = "00-0123456789abcdef0123456789abcdef-" + callerID + "-00"
)

// get asks for a word as part of the caller's trace.
func get(t *testing.T, url, word, traceparent string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/translate/"+word, http.NoBody)
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

// span is a span as the console plugin prints it, in part.
type span struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Context struct {
		TraceID string `json:"trace_id"`
		SpanID  string `json:"span_id"`
	} `json:"context"`
	ParentID string `json:"parent_id"`
}

// chain follows the spans that the services have printed from the caller on, and
// gives their names and kinds. There must be one after the other, and no other.
func chain(t *testing.T, texts ...string) []string {
	t.Helper()
	below := map[string][]span{}
	n := 0
	for _, text := range texts {
		for d := json.NewDecoder(strings.NewReader(text)); ; n++ {
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
			below[s.ParentID] = append(below[s.ParentID], s)
		}
	}
	var names []string
	for next := below["0x"+callerID]; len(next) == 1; next = below[next[0].Context.SpanID] {
		names = append(names, next[0].Name+" "+strings.TrimPrefix(next[0].Kind, "SpanKind."))
	}
	if len(names) != n {
		t.Errorf("%d of %d spans are on the chain from the caller: %q", len(names), n, below)
	}
	return names
}

// One request through two services is one chain, in which spans of the libraries and of
// the runtime alternate. A request that is not sampled has no span in either service. This
// holds for every format of context.
func TestOneChain(t *testing.T) {
	for _, formats := range []string{"OTEL_PROPAGATORS=tracecontext,baggage", "OTEL_PROPAGATORS=tracecontext,baggage,b3"} {
		t.Run(formats, func(t *testing.T) {
			shop, words := startBoth(t, formats)
			for _, traceparent := range []string{unsampled, sampled} {
				if status, body := get(t, shop.URL, "cat", traceparent); status != http.StatusOK || body != "Katze\n" {
					t.Errorf("status %d, body %q", status, body)
				}
			}
			shop.Stop() // all spans are delivered
			words.Stop()
			want := []string{
				"proxy_http_request Shop GET /translate/{word} SERVER",
				"route_to_replica Shop __call__ SERVER",
				"replica_handle_request Shop __call__ SERVER",
				"GET /translate/{word} SERVER",
				"translate.v1.TranslatorService/Translate CLIENT",
				"proxy_grpc_request Translator /translate.v1.TranslatorService/Translate SERVER",
				"route_to_replica Translator Translate SERVER",
				"replica_handle_request Translator Translate SERVER",
				"translate.v1.TranslatorService/Translate SERVER",
				"look_up INTERNAL",
			}
			if diff := cmp.Diff(want, chain(t, shop.Stdout.String(), words.Stdout.String())); diff != "" {
				t.Errorf("the chain (-want +got):\n%s", diff)
			}
		})
	}
}

// A word that is not known is the client's mistake, on both ways.
func TestNotFound(t *testing.T) {
	shop, _ := startBoth(t)
	if status, body := get(t, shop.URL, "unicorn", sampled); status != http.StatusNotFound || body != "the word is not known\n" {
		t.Errorf("status %d, body %q", status, body)
	}
}

func TestWrongArguments(t *testing.T) {
	program := hellotest.Self(t, "instrumented")
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--http", "nowhere"}, 1, `instrumented: settings: HTTPAddr "nowhere": want host:port`},
		{[]string{"--words", "\x7f"}, 1, `instrumented: words at "\x7f": `},
		{[]string{"now"}, 2, `instrumented: argument "now": want none`},
		{[]string{"--help"}, 0, "address of the gRPC port to call"},
	} {
		cmd := exec.CommandContext(t.Context(), program, tc.args...)
		cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
		out, _ := cmd.CombinedOutput() // the exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(out), tc.want) {
			t.Errorf("%v: code %d and\n%s\nwant code %d and %q", tc.args, code, out, tc.code, tc.want)
		}
	}
}
