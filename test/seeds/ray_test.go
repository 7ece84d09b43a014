package seeds

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// raySpans are the results of real Ray Serve, by the seed's application.
type raySpans struct {
	Version string
	Hello   rayRun
	Guide   rayRun
}

// rayRun is the result of one request: its status, the text of each span file by its
// name, and the exceptions in the logs so far.
type rayRun struct {
	Status int
	Files  map[string]string
	Errors []string
}

// recordRay runs the seeds' applications on real Ray Serve with an exporter function.
func recordRay(t *testing.T, exporter string) *raySpans {
	t.Helper()
	output := filepath.Join(t.TempDir(), "ray.json")
	cmd := exec.CommandContext(t.Context(), *ofRay, "-B", "ray_serve.py", output, exporter)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run the applications on Ray: %v\n%s", err, out)
	}
	text, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	var ray raySpans
	if err := json.Unmarshal(text, &ray); err != nil {
		t.Fatal(err)
	}
	return &ray
}

// spans returns all spans of a run.
func (r rayRun) spans(t *testing.T) []span {
	t.Helper()
	var spans []span
	for _, text := range r.Files {
		spans = append(spans, decodeSpans(t, text)...)
	}
	return spans
}

// apart is the difference of sameChain.
const apart = "same, but the user span is in a trace of FastAPI's own"

// sameChain compares the trace of the guide's first application. FastAPI makes spans of
// its own there, from the caller's context and not from Ray's, and the user span is below
// them.
func sameChain(t *testing.T, ray *raySpans) {
	var serve, fastAPI []span
	all := ray.Hello.spans(t)
	for _, s := range all {
		if s.trace == one(t, all, "proxy_http_request").trace {
			serve = append(serve, s)
		} else {
			fastAPI = append(fastAPI, s)
		}
	}
	wantTree(t, serve, strings.Replace(helloChain("(root)"), "        application_span\n", "", 1))
	if got := tree(fastAPI); !strings.HasPrefix(got, "(root)\n  GET /\n") || !strings.Contains(got, "application_span") {
		t.Errorf("the other spans are\n%s", got)
	}
}

// sameGuide compares the tree of the guide's two applications. Ray names the proxy span
// by the path below the prefix, which is empty.
func sameGuide(t *testing.T, ray *raySpans) {
	if ray.Guide.Status != http.StatusOK {
		t.Errorf("status %d", ray.Guide.Status)
	}
	wantTree(t, ray.Guide.spans(t), strings.Replace(guideChain("(root)"), "GET /downstream", "GET ", 1))
}

// sameFiles compares the names of the span files.
func sameFiles(t *testing.T, ray *raySpans) {
	var names []string
	for name := range ray.Hello.Files {
		names = append(names, name)
	}
	if len(names) > 1 && names[0] > names[1] {
		names[0], names[1] = names[1], names[0]
	}
	wantNames(t, names, `^proxy_[0-9.]+_tracing\.json$`, `^replica_my_app_HelloWorld_[a-z0-9]{8}_tracing\.json$`)
}

// sameJSON compares the JSON of Ray's own proxy span with the guide's.
func sameJSON(t *testing.T, ray *raySpans) {
	for name, text := range ray.Hello.Files {
		if !strings.HasPrefix(name, "proxy_") {
			continue
		}
		for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
			var s map[string]any
			if err := decoder.Decode(&s); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(s["name"].(string), "proxy_http_request") {
				wantForm(t, s)
				return
			}
		}
	}
	t.Error("no proxy span")
}

// processorFails runs the guide's exporter_dd.py on Ray Serve. Its on_start reads the
// request's context of the replica before Ray sets it, and raises.
func processorFails(t *testing.T, _ *raySpans) {
	got := recordRay(t, "exporter_dd:anyscale_span_processors").Hello
	const reason = "AttributeError: 'NoneType' object has no attribute 'request_id'"
	if got.Status != http.StatusInternalServerError || !slices.Contains(got.Errors, reason) {
		t.Errorf("the answer is %d and the log has %q, want 500 and %s", got.Status, got.Errors, reason)
	}
}

// sameAttributes returns a comparison: every attribute of Ray's span is on ours.
func sameAttributes(prefix string) func(*testing.T, *raySpans) {
	return func(t *testing.T, ray *raySpans) {
		s := start(t, "hello", []string{"--app", "my_app"}, "SERVE_TRACING_EXPORTER_PLUGIN=console")
		get(t, s.URL, nil)
		s.Stop()
		want := map[string]any{}
		for key, value := range one(t, ray.Hello.spans(t), prefix).attributes {
			if want[key] = value; key == "request_id" || key == "replica_id" {
				want[key] = "*"
			}
		}
		wantAttributes(t, one(t, decodeSpans(t, s.Stdout.String()), prefix), want)
	}
}
