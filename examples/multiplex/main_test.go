package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m, "multiplex", main) }

// greet asks a model to greet Ada, and returns status and body.
func greet(t *testing.T, url, header, id string) string {
	t.Helper()
	status, body := servicetest.Do(t, url+"/?name=Ada", "", header, id)
	return fmt.Sprint(status, " ", strings.TrimSpace(body))
}

var greetings = map[string]string{
	"english": "200 Good day, Ada!", "german": "200 Guten Tag, Ada!",
	"french": "200 Bonjour, Ada !", "spanish": "200 ¡Buenos días, Ada!", "italian": "200 Buongiorno, Ada!",
}

// Four models fit into two replicas: each is loaded once, by the first request
// that names it and in its trace, and the others go to the same replica.
func TestModelsStayWhereTheyAre(t *testing.T) {
	s := servicetest.Start(t, "multiplex", nil)
	models := []string{"english", "german", "french", "spanish"}
	for range 5 {
		for _, id := range models {
			if got := greet(t, s.URL, "serve_multiplexed_model_id", id); got != greetings[id] {
				t.Errorf("%s says %q", id, got)
			}
		}
	}
	s.Stop()
	list := servicetest.Spans(t, s.Stdout.String())
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
	s := servicetest.Start(t, "multiplex", nil)
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
	s := servicetest.Start(t, "multiplex", nil)
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
	servicetest.WrongArguments(t, "multiplex", "port 0 takes any free one")
}
