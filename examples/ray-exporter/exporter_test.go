package rayexporter

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/hellotest"
)

func TestMain(m *testing.M) { hellotest.Main(m) }

// python returns the interpreter with the exporters' packages, and skips the test if there
// is none. It reads the files of the runner, so that go test notices their changes.
func python(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pythonPath(t), "servetrace", "*.py"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no package servetrace: %v", err)
	}
	for _, name := range files {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	path, err := filepath.Abs(filepath.Join(".venv", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("no Python environment for the exporters: run `make python`")
	}
	return path
}

// pythonPath returns the folder with the package servetrace.
func pythonPath(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "python"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// app returns a new folder with these files of the guide.
func app(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("guide", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, string(text))
	}
	return dir
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start starts hello with the modules in dir, and further variables.
func start(t *testing.T, dir string, environ ...string) *hellotest.Service {
	t.Helper()
	return hellotest.Start(t, append([]string{
		"SERVE_TRACING_PYTHON=" + python(t), "PYTHONPATH=" + pythonPath(t) + ":" + dir, "OTEL_SERVICE_NAME=hello",
	}, environ...)...)
}

// wantAccount checks the account of a service that has ended.
func wantAccount(t *testing.T, s *hellotest.Service, want string) {
	t.Helper()
	got := regexp.MustCompile(`msg="?stopped[^"\n]*?"? (spans=.*)`).FindStringSubmatch(s.Log.String())
	if got == nil || got[1] != want {
		t.Errorf("the delivery accounting is %q, want %q", got, want)
	}
}

// The guide's exporter_dev.py prints spans on the service's standard output.
func TestConsole(t *testing.T) {
	s := start(t, app(t, "exporter_dev.py"), "SERVE_TRACING_EXPORTER_PLUGIN=python:exporter_dev:debug_span_processor")
	s.Get("/", "r1")
	s.Get("/fail", "r2")
	s.Await(s.Stdout, `(?m)^}$`, 2*hellotest.SpansOfRequest)
	s.Stop()
	wantAccount(t, s, "spans=8 exporter_dev.delivered=8")
	type printed struct {
		Name       string            `json:"name"`
		Kind       string            `json:"kind"`
		Parent     *string           `json:"parent_id"`
		Context    map[string]string `json:"context"`
		Status     map[string]string `json:"status"`
		Attributes map[string]any    `json:"attributes"`
		Events     []struct {
			Name string `json:"name"`
		} `json:"events"`
		Resource struct {
			Attributes map[string]any `json:"attributes"`
		} `json:"resource"`
	}
	ids, roots, events := map[string]bool{}, 0, 0
	for decoder := json.NewDecoder(strings.NewReader(s.Stdout.String())); decoder.More(); {
		var span printed
		if err := decoder.Decode(&span); err != nil {
			t.Fatal(err)
		}
		ids[span.Context["span_id"]] = true
		if span.Parent == nil {
			roots++
		}
		events += len(span.Events)
		if span.Resource.Attributes["service.name"] != "hello" || span.Attributes["serve.request_id"] == nil || !strings.HasPrefix(span.Kind, "SpanKind.") {
			t.Errorf("span %q is of service %v, request %v and kind %q", span.Name, span.Resource.Attributes["service.name"], span.Attributes["serve.request_id"], span.Kind)
		}
		if failed := span.Name == "application_span" && span.Attributes["serve.request_id"] == "r2"; failed && span.Status["status_code"] != "ERROR" {
			t.Errorf("span %q has status %v, want ERROR", span.Name, span.Status)
		}
	}
	if len(ids) != 8 || roots != 2 || events == 0 {
		t.Errorf("%d spans, %d roots and %d events; want 8, 2 and some", len(ids), roots, events)
	}
}

// The guide's exporter_dd.py stamps Ray's ids on each span. On real Ray Serve 2.60 its
// processor raises in each request.
func TestDatadog(t *testing.T) {
	receiver := hellotest.StartReceiver(t)
	s := start(t, app(t, "exporter_dd.py"),
		"SERVE_TRACING_EXPORTER_PLUGIN=python:exporter_dd:anyscale_span_processors",
		"RAY_JOB_ID=02000000", "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.URL)
	s.Get("/", "r1")
	spans := receiver.Await(t, hellotest.SpansOfRequest)
	s.Stop()
	wantAccount(t, s, "spans=4 exporter_dd.delivered=4")
	for _, span := range spans {
		task := hellotest.Text(span.Attributes, "serve.task_id")
		got := map[string]string{}
		for _, key := range []string{"ray.job_id", "ray.actor_id", "ray.task_id", "ray.request_id"} {
			got[key] = hellotest.Text(span.Attributes, key)
		}
		want := map[string]string{"ray.job_id": "02000000", "ray.actor_id": task[16:], "ray.task_id": task, "ray.request_id": "r1"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("span %q (-want +got):\n%s", span.Name, diff)
		}
		if service := hellotest.Text(span.Resource, "service.name"); service != "hello" {
			t.Errorf("span %q is of service %q, want hello", span.Name, service)
		}
	}
}

// An answer of the exporter function means delivered: spans that a back end refuses are
// sent again.
func TestBackEndThatIsAway(t *testing.T) {
	receiver := hellotest.StartReceiver(t)
	receiver.Answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such key", http.StatusForbidden) })
	s := start(t, app(t, "exporter_dd.py"),
		"SERVE_TRACING_EXPORTER_PLUGIN=python:exporter_dd:anyscale_span_processors", "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.URL)
	s.Get("/", "r1")
	s.Await(s.Log, `could not export \d spans; the log has the reason`, 1)
	s.Await(s.Log, `no such key|Forbidden|403`, 1)
	receiver.Answer(nil)
	spans := receiver.Await(t, hellotest.SpansOfRequest)
	s.Stop()
	wantAccount(t, s, "spans=4 exporter_dd.delivered=4")
	if len(spans) != hellotest.SpansOfRequest {
		t.Errorf("%d spans were accepted, want each of %d once", len(spans), hellotest.SpansOfRequest)
	}
}

// The interpreter may have a pin, as lock-down demands. Declared variables are then
// withheld.
func TestLockdown(t *testing.T) {
	dir := app(t, "exporter_dev.py")
	pinned := pin(t, python(t))
	s := start(t, dir, "SERVE_TRACING_EXPORTER_PLUGIN=python:exporter_dev:debug_span_processor",
		"SERVE_TRACING_PYTHON="+pinned, "SERVE_TRACING_LOCKDOWN=true", "SERVE_TRACING_PLUGIN_ENV=exporter_dev:PYTHONPATH")
	s.Get("/", "r1")
	s.Await(s.Stdout, `(?m)^}$`, hellotest.SpansOfRequest)
	s.Stop()
	wantAccount(t, s, "spans=4 exporter_dev.delivered=4")
	if !strings.Contains(s.Log.String(), "variables=[OTEL_SERVICE_NAME]") {
		t.Error("the log does not name OTEL_SERVICE_NAME as withheld")
	}
}

// pin returns the path of a file with its digest.
func pin(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s@sha256:%x", path, sha256.Sum256(data))
}
