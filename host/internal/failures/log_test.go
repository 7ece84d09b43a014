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
