package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/launch"
)

// The suppressed output of a plugin is counted as it comes, and over all its processes: a
// process that crashes, one that is replaced, one that never becomes a plugin, and one that
// left the list and came back.
func TestSuppressedOutputOfAllProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "plugin")
		list := func() {
			if err := os.WriteFile(file, nil, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		list()
		var plugins []*fakePlugin
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			if n == 2 {
				return nil, &launch.Error{Reason: launch.ReasonNotPlugin, Report: &launch.Report{Suppressed: 100}}
			}
			p := newFakePlugin(func(context.Context, int) error { return nil })
			plugins = append(plugins, p)
			return p, nil
		}, func(c *host.Config) { c.Plugins = filepath.Dir(file) })
		reload := func() {
			t.Helper()
			if err := h.Reload(t.Context()); err != nil {
				t.Error(err)
			}
		}
		check := func(when string, want uint64) {
			t.Helper()
			synctest.Wait()
			x := h.Stats().Exporters[0]
			if x.OutputSuppressed != want {
				t.Errorf("%s: %d lines, want %d", when, x.OutputSuppressed, want)
			}
			if printed := 2 * (want - want/100*100); x.OutputDropped != printed { // one that never becomes a plugin is not asked
				t.Errorf("%s: %d lines did not reach standard output, want %d", when, x.OutputDropped, printed)
			}
		}
		check("at the start", 0)
		plugins[0].printed.Store(5)
		check("while the first runs", 5)
		plugins[0].printed.Store(7)
		plugins[0].die()
		time.Sleep(time.Minute)
		check("after a crash and a start that failed", 107)
		plugins[1].printed.Store(20)
		check("while the third runs", 127)
		reload()
		plugins[2].printed.Store(1)
		time.Sleep(time.Minute)
		check("after it was replaced", 128)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		reload()
		list()
		reload()
		check("after it came back", 128)
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		check("after the end", 128)
	})
}

// A pin is shown before the file was found, and from then on.
func TestStatsHaveThePin(t *testing.T) {
	pin := strings.Repeat("0a", 32)
	h, err := host.New(host.Config{Plugins: "pinned=/nowhere/p@sha256:" + pin + ",free=/nowhere/p"})
	if err != nil {
		t.Fatal(err)
	}
	list := h.Stats().Exporters
	if list[0].Digest != pin || list[1].Digest != "" {
		t.Errorf("digests %q and %q, want %q and none", list[0].Digest, list[1].Digest, pin)
	}
}

func TestLogArgs(t *testing.T) {
	args, lost := host.Stats{
		Ended: 9, Refused: map[string]uint64{"queue_full": 1},
		Processors: []host.ProcessorStats{{
			Plugin: host.ExporterStats{Name: "p", Dropped: map[string]uint64{"max_age": 2}, Filtered: map[string]uint64{"health": 4}},
			Passed: 5, Bypassed: map[string]uint64{"max_age": 3},
		}},
		Exporters: []host.ExporterStats{{
			Name: "x", Delivered: 6, Spooled: 7,
			Rejected: map[string]uint64{"INTERNAL": 8}, Filtered: map[string]uint64{"sample": 10}, Dropped: map[string]uint64{"shutdown": 20},
		}},
	}.LogArgs()
	want := "spans 9 refused map[queue_full:1] p.passed 5 p.bypassed map[max_age:3] p.filtered map[health:4] p.dropped map[max_age:2]" +
		" x.delivered 6 x.filtered map[sample:10] x.rejected map[INTERNAL:8] x.dropped map[shutdown:20] x.spooled 7"
	if got := strings.Trim(fmt.Sprint(args), "[]"); got != strings.TrimSuffix(want, "]") || lost != 31 {
		t.Errorf("arguments, and %d lost spans:\n%s\nwant 31 and\n%s", lost, got, want)
	}
}
