package pythonplugin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/hellotest"
)

func TestMain(m *testing.M) { hellotest.Main(m) }

// plugin gives the path of the plugin, and skips the test where there is no
// Python to run it. It reads the files that the plugin is made of: go test runs
// a test again when a file has changed that the test itself has opened.
func plugin(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"plugin", "lines.py", "requirements.txt", module} {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(".venv", "bin", "python")); err != nil {
		t.Skip("no Python environment for the plugin: run `make python`")
	}
	path, err := filepath.Abs("plugin")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// line is a span as the plugin prints it, in part.
type line struct {
	Name       string         `json:"name"`
	TraceID    string         `json:"trace_id"`
	SpanID     string         `json:"span_id"`
	Parent     string         `json:"parent_span_id"`
	Attributes map[string]any `json:"attributes"`
	Service    string         `json:"service"`
}

// parse reads the output of the plugin.
func parse(t *testing.T, text string) []line {
	t.Helper()
	var lines []line
	for text := range strings.Lines(text) {
		var one line
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatalf("standard output has %q: %v", text, err)
		}
		lines = append(lines, one)
	}
	return lines
}

// The spans of real requests come out, each once, with the attribute from a
// variable of the service's environment.
func TestSpansOfHello(t *testing.T) {
	path := plugin(t)
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN=lines="+path, "SPAN_LINES_TEAM=ml", "OTEL_SERVICE_NAME=hello")
	for _, id := range []string{"r1", "r2"} {
		s.Get("/", id)
	}
	s.Get("/fail", "r3")
	const want = 3 * hellotest.SpansOfRequest
	s.Await(s.Stdout, `(?m)^{.*}$`, want)
	s.Stop()

	seen := map[string]bool{}
	requests := map[string]int{}
	for _, span := range parse(t, s.Stdout.String()) {
		if seen[span.SpanID] {
			t.Errorf("span %s %q came twice", span.SpanID, span.Name)
		}
		seen[span.SpanID] = true
		requests[span.Attributes["serve.request_id"].(string)]++
		if span.Attributes["team"] != "ml" || span.Service != "hello" {
			t.Errorf("span %q has team %v and service %q, want ml and hello", span.Name, span.Attributes["team"], span.Service)
		}
	}
	if len(seen) != want || requests["r1"] != 4 || requests["r2"] != 4 || requests["r3"] != 4 {
		t.Errorf("%d spans of requests %v, want %d, four for each of r1, r2, r3", len(seen), requests, want)
	}
	for _, text := range []string{`describes_itself_as=python-lines`, `msg=configured`, `variables=\[SPAN_LINES_TEAM\]`, `attributes=\[?'?team`} {
		if !regexp.MustCompile(text).MatchString(s.Log.String()) {
			t.Errorf("the log has no %s", text)
		}
	}
	if found := regexp.MustCompile(`level=(ERROR|WARN) .*plugin=lines .*`).FindAllString(s.Log.String(), -1); found != nil {
		t.Errorf("the log has %q", found)
	}
}

// The program of README.md and of the module's docstring is one, and works.
func TestSmallestPlugin(t *testing.T) {
	program := func(file, pattern, indent string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no text that matches %s", file, pattern)
		}
		return regexp.MustCompile(`(?m)^`+indent).ReplaceAllString(string(found[1]), "")
	}
	readme := program("README.md", "(?s)```python\n(.*?) *```", "   ")
	docstring := strings.ReplaceAll(program(module, `(?s)two functions\.\n\n(.*?)\nThe module uses`, "    "), `\\n`, `\n`)
	if diff := cmp.Diff(readme, docstring); diff != "" {
		t.Errorf("README.md and the docstring have two programs (-readme +docstring):\n%s", diff)
	}
	file := filepath.Join(t.TempDir(), "names.py")
	if err := os.WriteFile(file, []byte(readme), 0o600); err != nil {
		t.Fatal(err)
	}
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN=names="+executable(t, file))
	s.Get("/", "r1")
	s.Await(s.Stdout, `(?m)^\w+`, hellotest.SpansOfRequest)
	s.Stop()
	names := strings.Split(strings.TrimSpace(s.Stdout.String()), "\n")
	slices.Sort(names)
	want := []string{
		"application_span", "proxy_http_request HelloWorld GET /",
		"replica_handle_request HelloWorld __call__", "route_to_replica HelloWorld __call__",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
