package ray

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestSpansAreThoseOfRayServe plays every scenario of the recording and compares it, span
// by span, with each outcome in the recording. For at least one outcome, all differences
// are listed in differences. Each listed difference must appear, except for the topic
// stack, because a recording has its values by chance.
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
				used.check(t, play(t, s, false))
				used.played()
			})
		}
	})
	if used.scenarios < len(scenarios) {
		t.Log("not all scenarios were played, so that nothing is known of differences that do not appear")
		return
	}
	for i, d := range differences {
		if d.topic == stack {
			continue // by chance
		}
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

// TestSpansOfThreeProcessesAreThoseOfRayServe plays the scenarios with calls by handle, with
// the deployments behind three servers that call each other.
func TestSpansOfThreeProcessesAreThoseOfRayServe(t *testing.T) {
	used := &usage{by: map[int][]string{}}
	for _, s := range load(t).Scenarios {
		if strings.HasPrefix(s.Send.Path, "/chain/") {
			t.Run(s.Send.Name, func(t *testing.T) {
				t.Parallel()
				used.check(t, play(t, s, true))
			})
		}
	}
}

// check reports the unlisted differences from the outcome that has the fewest.
func (u *usage) check(t *testing.T, outcomes [][]found) {
	t.Helper()
	var least []found
	for i, found := range outcomes {
		unlisted := u.note(found)
		if i == 0 || len(unlisted) < len(least) {
			least = unlisted
		}
	}
	for _, f := range least {
		t.Error(f)
	}
}

// usage notes which differences have appeared, and in which scenarios.
type usage struct {
	mu        sync.Mutex
	by        map[int][]string
	scenarios int
}

// note notes the differences of an outcome that are listed, and returns the others.
func (u *usage) note(all []found) (unlisted []found) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range all {
		if i := slices.IndexFunc(differences, func(d difference) bool { return d.allows(f) }); i >= 0 {
			u.by[i] = append(u.by[i], f.scenario)
		} else {
			unlisted = append(unlisted, f)
		}
	}
	return unlisted
}

func (u *usage) played() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.scenarios++
}

// play plays a scenario on our runtime, in one process or apart, and returns the differences
// from each outcome of Ray Serve.
func play(t *testing.T, s *scenario, apart bool) (differ [][]found) {
	t.Helper()
	stage := newStage(t, strings.Contains(s.Send.Name, "timeout"), apart)
	saw := stage.play(s.Send)
	stage.stop()
	for _, span := range stage.spans.ended {
		callee := strings.HasPrefix(span.Name(), replica+" ") && !strings.HasPrefix(span.Name(), replica+" A ")
		if apart && callee && !span.Parent().IsRemote() {
			t.Errorf("the parent of %q is of the same process", span.Name())
		}
	}
	ours := stage.spans.traces(t, s.Send.ID)
	for _, ray := range s.Outcomes {
		all := compare(s.Send.Name, ray.Traces, ours)
		for _, view := range saw {
			if view != ray.Saw {
				all = append(all, found{scenario: s.Send.Name, family: "client", what: "answer", ray: ray.Saw.String(), ours: view.String()})
			}
		}
		differ = append(differ, all)
	}
	return differ
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

// TestDifferencesAreInTheDocument: each difference is a row of docs/reference/spans.md, so
// that users find it without reading a test.
func TestDifferencesAreInTheDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/spans.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "## Where we differ from Ray Serve\n")
	if !ok {
		t.Fatal("docs/reference/spans.md does not say where we differ from Ray Serve")
	}
	for i, d := range differences {
		if !strings.Contains(table, "\n| "+d.topic+" | ") {
			t.Errorf("difference %d is of the topic %q, which docs/reference/spans.md does not have", i, d.topic)
		}
	}
}
