package failures

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/test/testplugin"
)

// TestEachReasonOfADropIsLogged: spans are dropped for their age, and later for room.
func TestEachReasonOfADropIsLogged(t *testing.T) {
	log := &testplugin.Log{}
	f := New(slog.New(slog.NewTextHandler(log, nil)))
	now := time.Unix(1000, 0)
	for range 3 {
		f.Dropped(now, 5, "max_age")
		f.Dropped(now, 7, "queue_full")
	}
	f.Dropped(now.Add(countFirst), 1, "max_age")
	f.Write()
	for _, want := range []string{
		`msg="spans are being dropped" reason=max_age`,
		`msg="spans are being dropped" reason=queue_full`,
		`rejected_meanwhile=0 dropped_meanwhile=37 dropped_by_reason="map[max_age:16 queue_full:21]"`,
	} {
		if got := strings.Count(log.String(), want); got != 1 {
			t.Errorf("%d lines with %s, want one; log:\n%s", got, want, log)
		}
	}
}

func TestLastFailuresAreKept(t *testing.T) {
	f := New(slog.New(slog.DiscardHandler))
	for i := range 3 * mostFailures {
		f.Keep(time.Unix(int64(i), 0), "UNKNOWN", strings.Repeat("x", i+1), 0)
	}
	list, last, at := f.Recent()
	if len(list) != mostFailures || list[0].Reason != last || last != strings.Repeat("x", 3*mostFailures) || at != list[0].Last {
		t.Errorf("%d failures, the newest %q; the last error is %q at %v", len(list), list[0].Reason, last, at)
	}
}
