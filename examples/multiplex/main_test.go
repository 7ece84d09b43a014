package main

import (
	"encoding/json"
	"errors"
	"fmt"
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
	case "multiplex":
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
	program, console := hellotest.Self(t, "multiplex"), hellotest.Self(t, "console")
	return hellotest.StartProgram(t, program, []string{"--http", "127.0.0.1:0"}, "GORACE=atexit_sleep_ms=0",
		"SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_TRACING_PLUGIN_DIR="+filepath.Dir(console))
}

// greet asks a model to greet Ada, and gives status and body.
func greet(t *testing.T, url, header, id string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/?name=Ada", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		req.Header.Set(header, id)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(body)))
}

// span is a span as the console plugin prints it, in part.
type span struct {
	Name    string `json:"name"`
	Context struct {
		SpanID string `json:"span_id"`
	} `json:"context"`
	ParentID   string         `json:"parent_id"`
	Attributes map[string]any `json:"attributes"`
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

var greetings = map[string]string{
	"english": "200 Good day, Ada!", "german": "200 Guten Tag, Ada!",
	"french": "200 Bonjour, Ada !", "spanish": "200 ¡Buenos días, Ada!", "italian": "200 Buongiorno, Ada!",
}

// Four models fit into two replicas: each is loaded once, by the first request
// that names it and in its trace, and the others go to the same replica.
func TestModelsStayWhereTheyAre(t *testing.T) {
	s := start(t)
	models := []string{"english", "german", "french", "spanish"}
	for range 5 {
		for _, id := range models {
			if got := greet(t, s.URL, "serve_multiplexed_model_id", id); got != greetings[id] {
				t.Errorf("%s says %q", id, got)
			}
		}
	}
	s.Stop()
	list := spans(t, s.Stdout.String())
	names := map[string]string{}
	for _, s := range list {
		names[s.Context.SpanID] = s.Name
	}
	loads := map[string]int{}
	replicas := map[string]map[any]bool{}
	for _, s := range list {
		id, _ := s.Attributes["multiplexed_model_id"].(string)
		switch {
		case strings.HasPrefix(s.Name, "model_load"):
			loads[s.Name]++
			if parent := names[s.ParentID]; parent != "replica_handle_request Greeter __call__" {
				t.Errorf("%q is a child of %q", s.Name, parent)
			}
		case strings.HasPrefix(s.Name, "replica_handle_request"):
			if replicas[id] == nil {
				replicas[id] = map[any]bool{}
			}
			replicas[id][s.Attributes["replica_id"]] = true
		}
	}
	want := map[string]int{}
	for _, id := range models {
		want["model_load Greeter "+id] = 1
		if len(replicas[id]) != 1 {
			t.Errorf("requests for %q went to %v", id, replicas[id])
		}
	}
	if diff := cmp.Diff(want, loads); diff != "" {
		t.Errorf("spans of loads (-want +got):\n%s", diff)
	}
}

// Five do not fit: one has to go. All are unloaded in the end.
func TestAModelMakesRoom(t *testing.T) {
	s := start(t)
	for _, id := range []string{"english", "german", "french", "spanish", "italian"} {
		if got := greet(t, s.URL, "serve-multiplexed-model-id", id); got != greetings[id] {
			t.Errorf("%s says %q", id, got)
		}
	}
	s.Await(s.Log, `msg="model unloaded"`, 1)
	s.Stop()
	log := s.Log.String()
	for id := range greetings {
		if l, u := strings.Count(log, `"model loaded" model_id=`+id), strings.Count(log, `"model unloaded" model_id=`+id); l != 1 || u != 1 {
			t.Errorf("%s was loaded %d times and unloaded %d times", id, l, u)
		}
	}
}

func TestNoSuchModel(t *testing.T) {
	s := start(t)
	for id, want := range map[string]string{
		"":              "400 no model id: a request names its model by the HTTP header serve_multiplexed_model_id",
		"klingon":       `404 no model "klingon"`,
		"../app.go":     `404 no model "../app.go"`,
		"/etc/hostname": `404 no model "/etc/hostname"`,
	} {
		if got := greet(t, s.URL, "serve_multiplexed_model_id", id); !strings.HasPrefix(got, want) {
			t.Errorf("%q gives %q, want %q", id, got, want)
		}
	}
	s.Stop()
}

func TestWrongArguments(t *testing.T) {
	program := hellotest.Self(t, "multiplex")
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--http", "nowhere"}, 1, `multiplex: settings: HTTPAddr "nowhere": want host:port`},
		{[]string{"now"}, 2, `multiplex: argument "now": want none`},
		{[]string{"--help"}, 0, "port 0 takes any free one"},
	} {
		cmd := exec.CommandContext(t.Context(), program, tc.args...)
		cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
		out, _ := cmd.CombinedOutput() // the exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(out), tc.want) {
			t.Errorf("%v: code %d and\n%s\nwant code %d and %q", tc.args, code, out, tc.code, tc.want)
		}
	}
}
