package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// cast are plugins as hello has them, for schedules.
func cast() []*plugin {
	return []*plugin{{name: "a"}, {name: "b"}, {name: "c", weak: true}, {name: "d", attached: true}}
}

func texts(faults []fault) []string {
	var list []string
	for _, f := range faults {
		list = append(list, f.at.String()+" "+f.String())
	}
	return list
}

func TestScheduleIsTheSeeds(t *testing.T) {
	first := texts(schedule(7, time.Minute, cast()))
	if diff := cmp.Diff(first, texts(schedule(7, time.Minute, cast()))); diff != "" {
		t.Errorf("the same seed draws other faults (-first +second):\n%s", diff)
	}
	if slices.Equal(first, texts(schedule(8, time.Minute, cast()))) {
		t.Error("another seed draws the same faults")
	}
}

func TestScheduleHasEveryKindAndFits(t *testing.T) {
	const span = time.Minute
	plugins := cast()
	seen := map[string]bool{}
	for _, f := range schedule(1, span, plugins) {
		seen[f.kind.name] = true
		if f.at+f.lasts > span {
			t.Errorf("%v at %v goes on after %v", f, f.at, span)
		}
		if (f.plugin >= 0) != (f.kind.fits != nil) || f.plugin >= 0 && !f.kind.fits(plugins[f.plugin]) {
			t.Errorf("%v does not fit", f)
		}
	}
	if len(seen) != len(kinds) {
		t.Errorf("%d of %d kinds of faults in %v", len(seen), len(kinds), span)
	}
}

func TestStepsAreInOrderAndEveryFaultEnds(t *testing.T) {
	faults := schedule(3, time.Minute, cast())
	list := steps(faults)
	ends := 0
	for i, s := range list {
		if i > 0 && s.at < list[i-1].at {
			t.Errorf("step %d at %v comes after %v", i, s.at, list[i-1].at)
		}
		if s.end {
			ends++
		}
	}
	if want := len(list) - len(faults); ends != want || ends == 0 {
		t.Errorf("%d ends, want %d", ends, want)
	}
}

func TestReadBooks(t *testing.T) {
	const log = `time=2026-01-01T00:00:00Z level=INFO msg=serving url=http://127.0.0.1:1
time=2026-01-01T00:00:01Z level=ERROR msg="stopped; spans were lost" spans=100 refused="map[queue_full:1 too_large:2]" a.delivered=90 a.dropped="map[max_age:3 shutdown:4]" b.c.delivered=97 error="plugin \"a\": 4 spans not delivered"
`
	got, err := readAccounting(log)
	if err != nil {
		t.Fatal(err)
	}
	want := accounting{
		spans: 100, refused: map[string]uint64{"queue_full": 1, "too_large": 2},
		plugins: map[string]ledger{
			"a":   {delivered: 90, dropped: map[string]uint64{"max_age": 3, "shutdown": 4}},
			"b.c": {delivered: 97},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(accounting{}, ledger{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := readAccounting("msg=serving\n"); err == nil {
		t.Error("a log without an accounting has one")
	}
	if _, err := readAccounting("level=INFO msg=stopped spans=many\n"); err == nil {
		t.Error("a count that is no number is taken")
	}
}

func TestRepeats(t *testing.T) {
	file := recorderFile(t.TempDir() + "/batches")
	for _, line := range []batchLine{
		{Batch: "x-1", Attempt: 1, IDs: []string{"a", "b"}},
		{Batch: "x-1", Attempt: 2, IDs: []string{"a", "b"}}, // not acknowledged at first
		{Batch: "x-2", Attempt: 1, IDs: []string{"c"}},
	} {
		if err := appendLine(string(file), line); err != nil {
			t.Fatal(err)
		}
	}
	if wrong := file.repeats(); len(wrong) > 0 {
		t.Errorf("a batch that came again is wrong: %v", wrong)
	}
	for _, line := range []batchLine{
		{Batch: "x-1", Attempt: 2, IDs: []string{"a", "b"}}, // again after that attempt
		{Batch: "x-3", Attempt: 1, IDs: []string{"c"}},      // of another batch
	} {
		if err := appendLine(string(file), line); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"attempt 2 of batch x-1 delivered twice", "span c in batch x-2 and in batch x-3"}
	if diff := cmp.Diff(want, file.repeats()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	seen, err := file.read()
	if diff := cmp.Diff(map[string]int{"a": 3, "b": 3, "c": 2}, seen); diff != "" || err != nil {
		t.Errorf("read: %v (-want +got):\n%s", err, diff)
	}
}

// A line that a kill has torn takes nothing else along.
func TestTornLines(t *testing.T) {
	file := recorderFile(t.TempDir() + "/batches")
	if err := appendLine(string(file), batchLine{Batch: "x-1", Attempt: 1, IDs: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if err := replace(string(file), []byte("\n"+`{"batch":"x-2","att`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := appendLine(string(file), batchLine{Batch: "x-3", Attempt: 1, IDs: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	seen, err := file.read()
	if diff := cmp.Diff(map[string]int{"b": 1}, seen); diff != "" || err != nil {
		t.Errorf("read: %v (-want +got):\n%s", err, diff)
	}
}

func TestStatusThatIsWrong(t *testing.T) {
	const good = `{"spans": {"ended": 10, "accepted": 9, "refused": {"too_large": 1}}, "queue": {"bytes": 5, "limit_bytes": 5},
		"plugins": [{"name": "a", "spans": {"accepted": 9, "delivered": 3, "rejected": {"X": 1}, "filtered": {"f": 1},
		"dropped": {"max_age": 1}, "waiting": 3}}]}`
	for change, want := range map[string]string{
		"":                                "",
		`"ended": 11`:                     "11 spans ended, 10 refused or accepted",
		`"delivered": 4`:                  `plugin "a": 9 spans accepted, 10 accounted for`,
		`"waiting": 2`:                    `plugin "a": 9 spans accepted, 8 accounted for`,
		`"bytes": 6`:                      "6 bytes of spans held, the bound is 5",
		`"too_large": 1, "queue_full": 1`: "10 spans ended, 11 refused or accepted",
	} {
		text := good
		if key, _, ok := strings.Cut(change, ": "); ok {
			text = regexp.MustCompile(regexp.QuoteMeta(key)+`: \d+`).ReplaceAllLiteralString(good, change)
		}
		var s status
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.faults(), "; "); got != want {
			t.Errorf("with %s: %q, want %q", change, got, want)
		}
	}
}
