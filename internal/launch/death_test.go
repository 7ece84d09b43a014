package launch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/test/testplugin"
)

// reportOf has a plugin of a mode die at its first batch.
func reportOf(t *testing.T, cmd Command) (*Process, Report) {
	t.Helper()
	p := serving(t, cmd)
	if got := p.Report(); got.Exit != "" {
		t.Errorf("a report of a process that runs: %q", got.Exit)
	}
	if err := export(t, p); err == nil {
		t.Error("the export has no error")
	}
	testplugin.WaitFor(t, "the plugin's death", func() bool { return p.Report().Exit != "" })
	return p, p.Report()
}

func TestReportOfAPanic(t *testing.T) {
	cmd, log := command(t, "crash:1")
	p, r := reportOf(t, cmd)
	if r.Exit != "exit status 2" || r.ExitCode != 2 || r.Signal != "" || r.Killed != "" || r.OOM {
		t.Errorf("report %+v", r)
	}
	if want := "exit status 2; its last line: panic: testplugin: crash"; p.Exit() != want {
		t.Errorf("Exit = %q, want %q", p.Exit(), want)
	}
	if !strings.HasPrefix(r.Stack, "panic: testplugin: crash\n\ngoroutine ") || !strings.Contains(r.Stack, "modes.go:") {
		t.Errorf("stack:\n%s", r.Stack)
	}
	if !strings.Contains(string(r.Output), "panic: testplugin: crash") || !strings.Contains(log.String(), "level=INFO msg=\"panic: testplugin: crash\"") {
		t.Errorf("output:\n%s\nlog:\n%s", r.Output, log)
	}
	if r.PID != p.PID() && p.PID() != 0 || !r.Started.Before(r.StackTime) || r.Ended.Before(r.Started) ||
		r.UserTime+r.SystemTime <= 0 || r.MaxRSS < 1<<20 || r.MaxRSS > 1<<40 {
		t.Errorf("report %+v", r)
	}
}

func TestReportOfSignals(t *testing.T) {
	t.Run("by another", func(t *testing.T) {
		cmd, _ := command(t, "lastwords:about to go~  and gone")
		p, r := reportOf(t, cmd)
		if r.Signal != "SIGKILL" || r.ExitCode != -1 || r.Killed != "" || r.OOM || !strings.HasPrefix(r.Exit, "signal: killed (not by this host") {
			t.Errorf("report %+v", r)
		}
		if out := string(r.Output); !strings.HasSuffix(out, "\nabout to go\n  and gone\n") || strings.Contains(out, "|grpc") {
			t.Errorf("output %q, want the last words and no handshake", out)
		}
		if want := r.Exit + "; its last line:   and gone"; p.Exit() != want {
			t.Errorf("Exit = %q, want %q", p.Exit(), want)
		}
	})
	t.Run("by this host", func(t *testing.T) {
		cmd, _ := command(t, "record")
		p := start(t, cmd)
		p.Kill("a test")
		<-p.Done()
		if r := p.Report(); r.Killed != "a test" || r.Exit != "signal: killed (by this host: a test)" || r.Signal != "SIGKILL" {
			t.Errorf("report %+v", r)
		}
	})
}

func TestReportOfAPythonTraceback(t *testing.T) {
	cmd, _ := command(t, `lastwords:Traceback (most recent call last):~  File "p.py", line 3, in export~ValueError: no`)
	p, r := reportOf(t, cmd)
	if want := "Traceback (most recent call last):\n  File \"p.py\", line 3, in export\nValueError: no\n"; r.Stack != want {
		t.Errorf("stack:\n%s\nwant:\n%s", r.Stack, want)
	}
	if !strings.HasSuffix(p.Exit(), "; its last line: ValueError: no") {
		t.Errorf("Exit = %q", p.Exit())
	}
}

// TestSecretsOfARealPlugin: in no line, in no text of the end, in no report.
func TestSecretsOfARealPlugin(t *testing.T) {
	const secret = "tok3n<&>-that-nobody-must-see"
	cmd, log := command(t, "leaky")
	cmd.Environ = append(cmd.Environ, "TESTPLUGIN_SECRET="+secret)
	cmd.Secrets = []string{secret}
	p, r := reportOf(t, cmd)
	for name, text := range map[string]string{
		"log": log.String(), "exit": p.Exit(), "stack": r.Stack, "output": string(r.Output), "report": r.String(),
	} {
		if strings.Contains(text, "tok3n") || strings.Contains(text, "must-see") {
			t.Errorf("the %s shows the secret:\n%.5000s", name, text)
		}
		if name != "log" && !strings.Contains(text, redacted) {
			t.Errorf("the %s shows nothing of it: %.2000s", name, text)
		}
	}
	for _, want := range []string{`msg="the token is <redacted>"`, `msg="token <redacted>" error="<redacted> is refused"`, "zz<redacted>"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%.5000s", want, log)
		}
	}
}

// TestSuppressedWhileItRuns: the number of suppressed lines is counted and logged while the
// plugin runs.
func TestSuppressedWhileItRuns(t *testing.T) {
	t.Parallel() // it waits for the notice
	cmd, log := command(t, "chatty:lines-5000")
	p := serving(t, cmd)
	if err := export(t, p); err != nil {
		t.Fatalf("Export: %v", err)
	}
	testplugin.WaitFor(t, "suppressed lines", func() bool { return p.Suppressed() > 1000 })
	testplugin.WaitFor(t, "a word of them in the log", func() bool { return strings.Contains(log.String(), "suppressed=") })
	// The flood is over: the pipes are in the poller again, and read from it.
	if err := export(t, p); err != nil {
		t.Errorf("Export: %v", err)
	}
	if p.Report().Exit != "" {
		t.Errorf("it has ended: %v", p.Report())
	}
}

func TestReportForPeople(t *testing.T) {
	begun := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	r := Report{
		Exit: "exit status 2", ExitCode: 2, PID: 77, Started: begun, Ended: begun.Add(90 * time.Second),
		UserTime: 2 * time.Second, SystemTime: time.Second, MaxRSS: 3 << 19, Suppressed: 12,
		Stack: "panic: \x1b[31mno\n\tat x", StackTime: begun.Add(89 * time.Second), Output: []byte("a\x00b\n"), Variables: []string{"PATH", "DD_SITE"},
	}
	want := `exit:       exit status 2
process:    77
started:    2026-01-02T03:04:05.006Z
ended:      2026-01-02T03:05:35.006Z, after 1m30s
CPU:        2s in user mode, 1s in the kernel
memory:     1.5 MiB resident at most
variables:  PATH DD_SITE
not logged: 12 lines

stack, begun 1s before the end:
panic: ␛[31mno
	at x

the last 4 bytes of its output:
a␀b
`
	if diff := cmp.Diff(want, r.String()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if got, want := (Report{}).String(), "exit:       there was no process\n"; got != want {
		t.Errorf("report of nothing %q, want %q", got, want)
	}
}
