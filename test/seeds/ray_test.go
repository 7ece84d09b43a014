package seeds

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// raySpans are the span files of real Ray Serve, by the seed's application. Each has the
// spans of one request.
type raySpans struct {
	Version string
	Hello   rayRun
	Guide   rayRun
}

// rayRun is one run of an application: the text of each span file by its name.
type rayRun map[string]string

// recordRay runs the seeds' applications on real Ray Serve.
func recordRay(t *testing.T) *raySpans {
	t.Helper()
	output := filepath.Join(t.TempDir(), "ray.json")
	cmd := exec.CommandContext(t.Context(), *python, "-B", "ray_serve.py", output)
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
	for _, text := range r {
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
	wantTree(t, ray.Guide.spans(t), strings.Replace(guideChain("(root)"), "GET /downstream", "GET ", 1))
}

// sameFiles compares the names of the span files.
func sameFiles(t *testing.T, ray *raySpans) {
	var names []string
	for name := range ray.Hello {
		names = append(names, name)
	}
	if len(names) > 1 && names[0] > names[1] {
		names[0], names[1] = names[1], names[0]
	}
	wantNames(t, names, `^proxy_[0-9.]+_tracing\.json$`, `^replica_my_app_HelloWorld_[a-z0-9]{8}_tracing\.json$`)
}

// sameJSON compares the JSON of Ray's own proxy span with the guide's.
func sameJSON(t *testing.T, ray *raySpans) {
	for name, text := range ray.Hello {
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
