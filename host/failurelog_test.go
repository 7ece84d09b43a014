package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// troubled runs a plugin that answers batches of four spans with the result of export,
// one batch every two seconds. It returns the log.
func troubled(t *testing.T, batches int, export func(n int) error) string {
	t.Helper()
	var text string
	synctest.Test(t, func(t *testing.T) {
		log := &testplugin.Log{}
		plugin := newFakePlugin(func(_ context.Context, n int) error { return export(n) })
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil, host.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
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

// wantLines fails unless the log has each text as often as want demands.
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
		status.Error(codes.NotFound, "404 no such tenant"), status.Error(codes.PermissionDenied, "403 wrong token"),
	}
	log := troubled(t, 20, func(n int) error {
		if n > len(answers) {
			return nil
		}
		return answers[n-1]
	})
	wantLines(t, log, map[string]int{
		"level=WARN":      3,
		"503 down":        1,
		"degraded":        1,
		"403 wrong token": 1,
		"404 no such":     1,
		`msg="spans are delivered again" plugin=plugin failed_calls=4 rejected_meanwhile=12 dropped_meanwhile=0 rejected_by_code="map[NOT_FOUND:4 PERMISSION_DENIED:8]"`: 1,
	})
}

func TestLossThatGoesOnIsCountedNowAndThen(t *testing.T) {
	refuse := func(int) error { return status.Error(codes.PermissionDenied, "403 wrong token") }
	log := troubled(t, 14, refuse)
	wantLines(t, log, map[string]int{
		"level=WARN":               2,
		"refuses a batch for good": 1,
		`msg="spans are still being lost" plugin=plugin failed_calls=6 rejected_meanwhile=24 dropped_meanwhile=0 rejected_by_code=map[PERMISSION_DENIED:24] last_error="403 wrong token"`: 1,
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
	if got, most := strings.Count(log, "level=WARN"), 2*reasonsLogged+16; got > most {
		t.Errorf("%d lines, want at most %d; log:\n%s", got, most, log)
	}
}

// TestAnotherReasonIsToldThoughTheCodeIsTheSame: but not one with another number
// in it.
func TestAnotherReasonIsToldThoughTheCodeIsTheSame(t *testing.T) {
	answers := []error{
		status.Error(codes.Unavailable, "dial tcp 127.0.0.1:41: connection refused"),
		status.Error(codes.Unavailable, "dial tcp 127.0.0.1:42: connection refused"),
		status.Error(codes.Unavailable, "503 the collector starts, request 4f1c"),
		status.Error(codes.Unavailable, "503 the collector starts, request 09aa"),
		status.Error(codes.InvalidArgument, "HTTP status 400"),
		status.Error(codes.InvalidArgument, "HTTP status 413"),
		status.Error(codes.InvalidArgument, "HTTP status 400"),
	}
	log := troubled(t, len(answers), func(n int) error { return answers[(n-1)%len(answers)] })
	// A line that counts has the last words again. Whether there is one is chance:
	// it depends on the pauses between attempts.
	log = strings.Join(slices.DeleteFunc(strings.Split(log, "\n"), func(line string) bool {
		return strings.Contains(line, "still being lost")
	}), "\n")
	wantLines(t, log, map[string]int{
		"127.0.0.1:41":    1,
		"127.0.0.1:42":    0,
		"request 4f1c":    1,
		"request 09aa":    0,
		"HTTP status 400": 1,
		"HTTP status 413": 1,
	})
}

// TestReasonsAreKeptForTheStatus: the newest first, each with its last words,
// also when all is well again.
func TestReasonsAreKeptForTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := newFakePlugin(func(_ context.Context, n int) error {
			switch {
			case n <= 2:
				return status.Errorf(codes.InvalidArgument, "span %d has no name", n)
			case n == 3:
				return status.Error(codes.Unavailable, "down")
			}
			return nil
		})
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil)
		begin := time.Now()
		for range 3 {
			endSpans(h, 4)
			time.Sleep(time.Second)
		}
		at := func(s time.Duration) time.Time { return begin.Add(host.DefaultBatchAge + s) }
		want := []host.Failure{
			{Code: "UNAVAILABLE", Reason: "down", Calls: 1, First: at(2 * time.Second), Last: at(2 * time.Second)},
			{Code: "INVALID_ARGUMENT", Reason: "span 2 has no name", Calls: 2, Spans: 8, First: at(0), Last: at(time.Second)},
		}
		got := h.Stats().Exporters[0]
		if diff := cmp.Diff(want, got.Failures); diff != "" {
			t.Errorf("failures (-want +got):\n%s", diff)
		}
		if got.LastError != "down" || !got.LastErrorTime.Equal(at(2*time.Second)) {
			t.Errorf("last error %q at %v", got.LastError, got.LastErrorTime)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestTroubleIsOverWithoutAnotherBatch: a service with one request an hour must
// not stay degraded for that hour.
func TestTroubleIsOverWithoutAnotherBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testplugin.Log{}
		plugin := newFakePlugin(func(_ context.Context, n int) error {
			if n == 1 {
				return status.Error(codes.Unavailable, "down")
			}
			return nil
		})
		h := fakeHost(t, func(int) (*fakePlugin, error) { return plugin, nil }, nil, host.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		endSpans(h, 4)
		time.Sleep(calmTime / 2)
		if got := h.Stats().Exporters[0]; got.State != host.StateDegraded || got.Delivered != 4 {
			t.Errorf("%v, %d delivered; want degraded, and 4", got.State, got.Delivered)
		}
		time.Sleep(2 * heartbeat)
		if got := h.Stats().Exporters[0].State; got != host.StateReady {
			t.Errorf("%v, want ready", got)
		}
		wantLines(t, log.String(), map[string]int{"spans are delivered again": 1})
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestNoAnswerInTimeSaysSo: the text of gRPC's error would not help an operator.
func TestNoAnswerInTimeSaysSo(t *testing.T) {
	log := troubled(t, 10, func(int) error {
		<-time.After(host.DefaultExportTimeout + time.Second)
		return status.FromContextError(context.DeadlineExceeded).Err()
	})
	wantLines(t, log, map[string]int{
		`code=DEADLINE_EXCEEDED error="the plugin gave no answer within 10s (SERVE_TRACING_EXPORT_TIMEOUT)"`: 1,
	})
}
