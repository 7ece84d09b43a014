package supervise

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/total"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestStatesMoveAsTheTableSays walks every pair of states.
func TestStatesMoveAsTheTableSays(t *testing.T) {
	const want = `
starting -> starting ready backing-off broken draining incompatible untrusted
ready -> starting ready degraded backing-off broken draining
degraded -> starting ready backing-off broken draining
backing-off -> starting draining
broken -> starting draining
incompatible -> starting draining
untrusted -> starting draining
draining -> stopped
stopped ->`
	x := testPlugin(t)
	var got strings.Builder
	for from := range stateCount {
		fmt.Fprintf(&got, "\n%v ->", from)
		for to := range stateCount {
			s := x.status
			s.state, s.since = from, time.Time{}
			s.set(to, "")
			if !s.since.IsZero() {
				fmt.Fprintf(&got, " %v", to)
			}
			if moved := s.state == to; moved != (from == to || from.mayBecome(to)) {
				t.Errorf("from %v to %v: moved %v", from, to, moved)
			}
		}
	}
	// The constants have the order of the text above.
	if lines(got.String()) != lines(want) {
		t.Errorf("moves are%s\nwant%s", got.String(), want)
	}
}

// lines sorts the words of each line.
func lines(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		slices.Sort(words)
		all = append(all, strings.Join(words, " "))
	}
	return strings.Join(all, "\n")
}

func TestDocumentsFileIsNamed(t *testing.T) {
	about := Description{About: &pluginv1.DescribeResponse{EnvPatterns: []string{"ACME_*", "TOKEN"}}}
	fault := func(path, text string) *pluginv1.Diagnostic {
		return &pluginv1.Diagnostic{Severity: pluginv1.Severity_SEVERITY_ERROR, Path: path, Text: text}
	}
	for _, tc := range []struct {
		file string
		list []*pluginv1.Diagnostic
		want string
	}{
		{"c.yaml", nil, "<nil>"},
		{"c.yaml", []*pluginv1.Diagnostic{fault("TOKEN", "is empty")}, "configuration refused: TOKEN: is empty"},
		{"c.yaml", []*pluginv1.Diagnostic{fault("ACME_X", "is odd"), fault("a.b", "line 3: is missing")},
			"configuration refused (file \"c.yaml\"): ACME_X: is odd\na.b: line 3: is missing"},
		{"c.yaml", []*pluginv1.Diagnostic{fault("", "no YAML")}, `configuration refused (file "c.yaml"): no YAML`},
		{"", []*pluginv1.Diagnostic{fault("a.b", "is missing")}, "configuration refused: a.b: is missing"},
	} {
		if got := fmt.Sprint(diagnose(slog.New(slog.DiscardHandler), Plan{configFile: tc.file}, about, tc.list)); got != tc.want {
			t.Errorf("%v of file %q: %s, want %s", tc.list, tc.file, got, tc.want)
		}
	}
	log := &testplugin.Log{}
	remarks := []*pluginv1.Diagnostic{{Path: "a.b", Text: "is old"}, {Path: "TOKEN", Text: "is short"}}
	if err := diagnose(slog.New(slog.NewTextHandler(log, nil)), Plan{configFile: "c.yaml"}, about, remarks); err != nil {
		t.Error(err)
	}
	wantCounts(t, log.String(), map[string]int{`text="a.b: is old" file=c.yaml`: 1, `text="TOKEN: is short"`: 1, "file=": 1})
}

// TestWhoMayBeToBlame checks that a signal from outside is no fault of the plugin.
func TestWhoMayBeToBlame(t *testing.T) {
	for _, c := range []struct {
		report launch.Report
		want   bool
	}{
		{launch.Report{ExitCode: 2}, true},
		{launch.Report{Signal: "SIGSEGV"}, true},
		{launch.Report{Signal: "SIGKILL", OOM: true}, true},
		{launch.Report{Signal: "SIGKILL", Killed: "it did not answer"}, true},
		{launch.Report{Signal: "SIGKILL"}, false},
		{launch.Report{Signal: "SIGTERM"}, false},
	} {
		if got := mayBeToBlame(c.report); got != c.want {
			t.Errorf("%+v: %v", c.report, got)
		}
	}
}

// TestEndedByOthers checks that an end with status 0 is no fault of the plugin, unless the
// kernel has killed a process for lack of memory.
func TestEndedByOthers(t *testing.T) {
	for _, c := range []struct {
		report launch.Report
		want   bool
	}{
		{launch.Report{Exit: "exit status 0"}, true},
		{launch.Report{Exit: "exit status 0", OOM: true}, false},
		{launch.Report{Exit: "exit status 2", ExitCode: 2}, false},
		{launch.Report{Exit: "signal: terminated", ExitCode: -1, Signal: "SIGTERM"}, true},
	} {
		if got := endedByOthers(c.report); got != c.want {
			t.Errorf("%+v: %v", c.report, got)
		}
	}
}

// TestFlushBehindACrash flushes a plugin after the end of its only process, so that
// nothing is left to flush.
func TestFlushBehindACrash(t *testing.T) {
	x := testPlugin(t)
	f := newPeerFake(func(context.Context, string, any) error {
		return status.Error(codes.Unavailable, "error reading from server: EOF")
	})
	x.sending.add(&life{x: x, sender: newSender(x, f)})
	f.die()
	if err := x.Flush(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// FuzzAnswer reads a plugin's answer. The accounting must not have more spans than the
// batch, whatever the counts are.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{0x0a, 0x02, 0x08, 0x01}, "redact=3")
	f.Add([]byte{0x0a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, "a=4294967295")
	f.Add([]byte{0x0a, 0x04, 0x12, 0x02, 0xff, 0xfe}, "\xff=1")
	f.Add([]byte("garbage"), "a=-1")
	f.Fuzz(func(t *testing.T, reply []byte, filtered string) {
		x := testPlugin(t)
		q := x.Queue
		ans := ReadAnswer(launch.Redactor{}, reply, map[string][]string{"servetrace-filtered": {filtered, filtered}})
		ans.Reached, ans.Said = true, true
		sealOne(x)
		l := pipeline.NewLane(q, func() bool { return false })
		l.Open(limitsOf(nil))
		defer l.Close()
		l.Settle(l.Take(t.Context()), ans)
		all := x.sup.pipeline.Stats()
		s := all.Queues[q]
		if sum := s.Delivered + total.Of(s.Rejected) + total.Of(s.Filtered); sum != 10 || s.Waiting != 0 || all.Bytes != 0 {
			t.Errorf("%d spans booked of 10, %d waiting: %+v", sum, s.Waiting, s)
		}
	})
}

// TestCrashReportIsBounded: a plugin describes itself by giant texts.
func TestCrashReportIsBounded(t *testing.T) {
	huge := strings.Repeat("é", 1<<18)
	d := Description{About: &pluginv1.DescribeResponse{Name: huge, Version: huge, Sdk: &pluginv1.Sdk{Name: huge, Version: huge}}}
	report := crashText(testPlugin(t), Plan{}, d, launch.Report{}, fmt.Errorf("cause %s", huge), nil)
	if len(report) > 8<<10 {
		t.Errorf("a report of %d bytes", len(report))
	}
}
