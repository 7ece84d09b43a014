package host

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/testplugin"
)

// troubled runs a plugin that answers as export says to a batch of four spans
// every two seconds, for so many of them, and gives the log.
func troubled(t *testing.T, batches int, export func(n int) error) string {
	t.Helper()
	var text string
	synctest.Test(t, func(t *testing.T) {
		log := &testplugin.Log{}
		plugin := newFakePlugin(func(_ context.Context, n int) error { return export(n) })
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil, WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		for range batches {
			endSpans(h, 4)
			time.Sleep(2 * time.Second)
		}
		synctest.Wait()
		text = log.String()
		_ = h.Shutdown(context.Background()) // what is still sent again is lost
		if err := h.Stats().Check(); err != nil {
			t.Error(err)
		}
	})
	return text
}

// wantLines fails unless each text stands in the log as often as it says.
func wantLines(t *testing.T, log string, want map[string]int) {
	t.Helper()
	for text, n := range want {
		if got := strings.Count(log, text); got != n {
			t.Errorf("%q stands %d times in the log, want %d; log:\n%s", text, got, n, log)
		}
	}
}

func TestEachKindOfLossIsToldAtOnce(t *testing.T) {
	answers := []error{
		status.Error(codes.Unavailable, "503 down"), nil, nil,
		status.Error(codes.PermissionDenied, "403 wrong token"), nil,
		status.Error(codes.NotFound, "404 no such tenant"), status.Error(codes.PermissionDenied, "403 again"),
	}
	log := troubled(t, 20, func(n int) error {
		if n > len(answers) {
			return nil
		}
		return answers[n-1]
	})
	wantLines(t, log, map[string]int{
		"level=WARN":      3,
		"503 down":        2, // and the state's line
		"degraded":        1,
		"403 wrong token": 1,
		"404 no such":     1,
		`msg="spans are delivered again" plugin=plugin rejected_meanwhile=12 dropped_meanwhile=0 rejected_by_code="map[NOT_FOUND:4 PERMISSION_DENIED:8]"`: 1,
	})
}

func TestLossThatGoesOnIsCountedNowAndThen(t *testing.T) {
	refuse := func(int) error { return status.Error(codes.PermissionDenied, "403 wrong token") }
	log := troubled(t, 14, refuse)
	wantLines(t, log, map[string]int{
		"level=WARN":               2,
		"refuses a batch for good": 1,
		`msg="spans are still being lost" plugin=plugin rejected_meanwhile=24 dropped_meanwhile=0 rejected_by_code=map[PERMISSION_DENIED:24] last_error="403 wrong token"`: 1,
	})
	hours := troubled(t, 3*60*30, refuse)
	if got, most := strings.Count(hours, "level=WARN"), 3*60/5+6; got > most {
		t.Errorf("%d lines in three hours, want at most %d", got, most)
	}
}

func TestCodesInTurnsAreNoFlood(t *testing.T) {
	log := troubled(t, 60*30, func(n int) error {
		if code := codes.Code(n % 17); code != codes.OK {
			return status.Error(code, fmt.Sprintf("trouble %d", n))
		}
		return nil
	})
	// An hour has some 16 lines with counts.
	if got, most := strings.Count(log, "level=WARN"), 2*mostKinds+16; got > most {
		t.Errorf("%d lines, want at most %d; log:\n%s", got, most, log)
	}
}

// TestEachReasonOfADropIsTold: what is dropped for its age, and later for room.
func TestEachReasonOfADropIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testplugin.Log{}
		h := fakeHost(t, func(int) (*fakePlugin, error) {
			return newFakePlugin(func(context.Context, int) error { return nil }), nil
		}, nil,
			WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		for range 3 {
			h.dropEverywhere(5, reasonMaxAge)
			h.dropEverywhere(7, reasonQueueFull)
		}
		time.Sleep(countFirst)
		h.dropEverywhere(1, reasonMaxAge)
		h.tellAll()
		wantLines(t, log.String(), map[string]int{
			`msg="spans are being dropped" plugin=plugin reason=max_age`:                                  1,
			`msg="spans are being dropped" plugin=plugin reason=queue_full`:                               1,
			`rejected_meanwhile=0 dropped_meanwhile=37 dropped_by_reason="map[max_age:16 queue_full:21]"`: 1,
		})
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
