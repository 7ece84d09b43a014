package ray

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestSpansAreThoseOfRayServe plays every scenario of the recording and compares
// span by span: what differs is listed in differences, and what is listed there
// differs.
func TestSpansAreThoseOfRayServe(t *testing.T) {
	used := &usage{by: map[int][]string{}}
	scenarios := load(t).Scenarios
	if len(scenarios) == 0 {
		t.Fatal("the recording is empty")
	}
	t.Run("scenario", func(t *testing.T) {
		for _, s := range scenarios {
			t.Run(s.Send.Name, func(t *testing.T) {
				t.Parallel()
				for _, f := range play(t, s) {
					if i := slices.IndexFunc(differences, func(d difference) bool { return d.allows(f) }); i >= 0 {
						used.note(i, f)
					} else {
						t.Error(f)
					}
				}
				used.played()
			})
		}
	})
	if used.scenarios < len(scenarios) {
		t.Log("not all scenarios were played, so that nothing is known of differences that do not appear")
		return
	}
	for i, d := range differences {
		if len(used.by[i]) == 0 {
			t.Errorf("difference %d (%s: %s %s, ours %s) does not appear", i, d.topic, d.what, d.ray, d.ours)
		}
		for _, pattern := range d.scenarios {
			if !slices.ContainsFunc(used.by[i], func(s string) bool { return fits(pattern, s) }) {
				t.Errorf("difference %d (%s: %s %s, ours %s) does not appear in scenario %q", i, d.topic, d.what, d.ray, d.ours, pattern)
			}
		}
	}
}

// usage notes which differences have appeared, and in which scenarios.
type usage struct {
	mu        sync.Mutex
	by        map[int][]string
	scenarios int
}

func (u *usage) note(i int, f found) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.by[i] = append(u.by[i], f.scenario)
}

func (u *usage) played() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.scenarios++
}

// play plays a scenario on our runtime, and gives what differs.
func play(t *testing.T, s *scenario) []found {
	t.Helper()
	stage := newStage(t, strings.Contains(s.Send.Name, "timeout"))
	saw := stage.play(s.Send)
	stage.stop()
	out := compare(s.Send.Name, s.Traces, stage.spans.traces(t, s.Send.ID))
	for _, view := range saw {
		if view != s.Saw {
			out = append(out, found{scenario: s.Send.Name, family: "client", what: "answer", ray: s.Saw.String(), ours: view.String()})
		}
	}
	return out
}

func (v seen) String() string {
	out := v.Code.String()
	if v.Status != 0 {
		out = strconv.Itoa(v.Status)
	}
	if v.Cut {
		out += ", cut"
	}
	return out
}

// TestDifferencesAreInTheDocument: each is a row of docs/spans.md, so that nobody
// has to read a test to know of it.
func TestDifferencesAreInTheDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/spans.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "## Where we differ from Ray Serve\n")
	if !ok {
		t.Fatal("docs/spans.md does not say where we differ from Ray Serve")
	}
	for i, d := range differences {
		if !strings.Contains(table, "\n| "+d.topic+" | ") {
			t.Errorf("difference %d is of the topic %q, which docs/spans.md does not have", i, d.topic)
		}
	}
}
