package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// poisoned feeds a plugin that dies of one span with 40 batches of 10 spans, the
// poison in the middle of them, and waits until nothing waits any more.
func poisoned(t *testing.T, how string, change func(*host.Config)) (*running, string) {
	t.Helper()
	path := testplugin.Install(t, "poison:"+how)
	r := startHost(t, func(c *host.Config) {
		c.BatchSpans = 10
		c.BatchAge = time.Hour // batches are sealed by their number alone
		if change != nil {
			change(c)
		}
	}, path)
	r.waitReady(0)
	r.spans("early", 200)
	_, span := r.tracer.Start(context.Background(), testplugin.PoisonSpan)
	span.End()
	r.spans("beside", 9)
	r.spans("late", 200)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := r.ForceFlush(ctx); err != nil {
		t.Errorf("ForceFlush: %v", err)
	}
	return r, path
}

// wantOnlyDuplicatesOfLost checks that every healthy span was delivered, and
// more than once only where the first process had no time to answer: under the
// name that it had then.
func wantOnlyDuplicatesOfLost(t *testing.T, path string, want map[string]bool) {
	t.Helper()
	batchOf := map[string]string{}
	for _, b := range testplugin.Received(t, path) {
		for _, name := range b.Spans {
			if other, seen := batchOf[name]; seen && other != b.ID {
				t.Errorf("span %s came in batch %s and in %s", name, other, b.ID)
			}
			batchOf[name] = b.ID
		}
	}
	for name := range want {
		if batchOf[name] == "" {
			t.Errorf("span %s was not delivered", name)
		}
	}
	if len(batchOf) != len(want) {
		t.Errorf("%d different spans delivered, want %d", len(batchOf), len(want))
	}
}

// healthySpans returns the spans of poisoned that must arrive. A span of another list of
// the intake may be in another batch than its neighbours: the spans that did not arrive
// identify the batch of the poison.
func healthySpans(t *testing.T, path string) (want map[string]bool, lost int) {
	t.Helper()
	got := testplugin.Spans(t, path)
	want = map[string]bool{}
	for prefix, n := range map[string]int{"early": 200, "beside": 9, "late": 200} {
		for i := range n {
			if name := fmt.Sprintf("%s-%d", prefix, i); got[name] > 0 {
				want[name] = true
			} else {
				lost++
			}
		}
	}
	return want, lost
}

// TestPoisonBatchIsQuarantined: hazard 8.
func TestPoisonBatchIsQuarantined(t *testing.T) {
	for how, exit := range map[string]string{
		"panic": "exit status 2", "exit": "exit status 7", "segv": "", "freeze": "by this host",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "crashes")
			r, path := poisoned(t, how, func(c *host.Config) {
				c.CrashDir = dir
				c.MaxAge = 5 * time.Minute
				if how == "freeze" {
					c.ExportTimeout = time.Second
				}
			})
			r.wantCounts(0, map[string]uint64{"delivered": 400, "dropped quarantined": 10})
			want, lost := healthySpans(t, path)
			if lost != 9 {
				t.Errorf("%d healthy spans are lost, want the 9 that were in the batch of the poison", lost)
			}
			wantOnlyDuplicatesOfLost(t, path, want)
			// The next process delivers them: a crash is counted when its batches are in
			// the ledger.
			r.spans("after", 10)
			r.flush()
			wantOnce(t, path, "after", 10)
			x := r.Stats().Exporters[0]
			if x.Quarantined != 1 || x.Unkept != 0 {
				t.Errorf("%d batches quarantined, %d files not kept, want 1 and 0", x.Quarantined, x.Unkept)
			}
			// One crash in company at most, and two alone.
			if x.Crashes < 2 || x.Crashes > 3 {
				t.Errorf("%d crashes, want 2 or 3", x.Crashes)
			}
			if x.State == host.StateBroken {
				t.Error("one batch has opened the breaker")
			}
			wantKept(t, filepath.Join(dir, "p0"), int(x.Crashes), exit)
			wantLines(t, r.log.String(), map[string]int{"a batch is quarantined": 1})
		})
	}
}

// wantKept checks the files of one quarantined batch and its crashes.
func wantKept(t *testing.T, dir string, crashes int, exit string) {
	t.Helper()
	var reports, batches []string
	testplugin.WaitFor(t, "the files", func() bool {
		reports, _ = filepath.Glob(filepath.Join(dir, "crash-*.txt"))
		batches, _ = filepath.Glob(filepath.Join(dir, "batch-*.binpb"))
		return len(reports) == crashes && len(batches) == 1
	})
	data, err := os.ReadFile(batches[0])
	if err != nil {
		t.Fatal(err)
	}
	if n := spansIn(t, data); n != 10 || !strings.Contains(string(data), testplugin.PoisonSpan) {
		t.Errorf("the file has %d spans, want the 10 of the batch with the poison", n)
	}
	for i, name := range reports {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		id := strings.SplitN(strings.TrimSuffix(filepath.Base(batches[0]), ".binpb"), "-", 3)[2]
		for _, part := range []string{"plugin:", "p0", exit, "PATH", id} {
			if !strings.Contains(string(text), part) {
				t.Errorf("report %d lacks %q:\n%s", i, part, text)
			}
		}
		if strings.Contains(string(text), "canary-in-the-mine") {
			t.Errorf("report %d has the value of a variable:\n%s", i, text)
		}
	}
	for _, name := range append([]string{dir}, append(reports, batches...)...) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v: others may read it", name, info.Mode())
		}
	}
}

// TestBatchThatSpinsHoldsUpNothing: the plugin still answers all else, so it is
// not killed, and the batch is given up when it is too old.
func TestBatchThatSpinsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	r, path := poisoned(t, "spin", func(c *host.Config) {
		c.ExportTimeout, c.MaxAge = time.Second, 10*time.Second
	})
	r.wantCounts(0, map[string]uint64{"delivered": 400, "dropped max_age": 10})
	want, lost := healthySpans(t, path)
	if lost != 9 {
		t.Errorf("%d healthy spans are lost, want 9", lost)
	}
	wantOnlyDuplicatesOfLost(t, path, want)
	if x := r.Stats().Exporters[0]; x.Crashes != 0 {
		t.Errorf("%d crashes, want none", x.Crashes)
	}
}
