package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/bench/internal/report"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// asBench has this binary be the program, and all processes that it starts.
const asBench = "SERVETRACE_TEST_AS_BENCH"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "otlp" {
		pluginsdk.Main(pluginsdk.Spec{Name: "otlp", Env: otlpexporter.EnvPatterns(), Exporter: otlpexporter.New})
	}
	if os.Getenv(asBench) != "" {
		main()
	}
	os.Exit(m.Run())
}

// bench prepares the program. Its folders are in a temporary one of its own,
// which is given.
func bench(t *testing.T, args ...string) (cmd *exec.Cmd, temp string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "b") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	temp = filepath.Join(root, "t")
	for _, dir := range []string{temp, filepath.Join(root, "plugins")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(self, filepath.Join(root, "plugins", "otlp")); err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asBench+"=1", "TMPDIR="+temp)
	if len(args) > 0 && args[0] == "run" {
		cmd.Args = append(cmd.Args, "-bin", root, "-out", filepath.Join(root, "out"))
	}
	return cmd, temp
}

// nothingLeft: no file, and no process that had its folder there.
func nothingLeft(t *testing.T, temp string) {
	t.Helper()
	if files, err := os.ReadDir(temp); err != nil || len(files) != 0 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	// A plugin whose host was killed ends by itself, within a second.
	for deadline := time.Now().Add(10 * time.Second); ; {
		left := processesOf(temp)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("still there: %v", left)
			return
		}
	}
}

// processesOf are the processes whose environment names a folder.
func processesOf(temp string) (left []string) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environs {
		text, err := os.ReadFile(file)
		if err == nil && bytes.Contains(text, []byte("TMPDIR="+temp)) {
			left = append(left, file)
		}
	}
	return left
}

func TestRun(t *testing.T) {
	cmd, temp := bench(t, "run", "-suite", "spanpath", "-shape", "^(saturated|span to bytes)$", "-row", "^(SDK floor|ours|ours, span to bytes)$",
		"-repeat", "1", "-foreign", "1000")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(temp), "out", report.JSONFile))
	if err != nil {
		t.Fatal(err)
	}
	results := &suite.Results{}
	if err := json.Unmarshal(data, results); err != nil {
		t.Fatal(err)
	}
	if len(results.Shapes) != 2 || len(results.Shapes[0].Rows) != 2 || results.Failed() {
		t.Errorf("%+v", results)
	}
	if !strings.Contains(string(out), "| ours |") {
		t.Errorf("no table with our row in it:\n%s", out)
	}
	nothingLeft(t, temp)
}

func TestInterrupt(t *testing.T) {
	cmd, temp := bench(t, "run", "-suite", "spanpath", "-shape", "^saturated$", "-row", "^ours$", "-repeat", "1000", "-foreign", "1000")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1) // the first word of the first case that was measured
	if _, err := io.ReadFull(said, first); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, said); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("ended with %v, want status %d", err, exitFailed)
	}
	if files, err := os.ReadDir(filepath.Join(filepath.Dir(temp), "out")); err == nil {
		t.Errorf("a run that was interrupted has a report: %v", files)
	}
	nothingLeft(t, temp)
}

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, exitUsage},
		{[]string{"fly"}, exitUsage},
		{[]string{"run", "now"}, exitUsage},
		{[]string{"run", "-shape", "no such shape"}, exitUsage},
		{[]string{"run", "-shape", "("}, exitUsage},
		{[]string{"child", "unknown"}, exitFailed},
		{[]string{"list"}, 0},
		{[]string{"run", "-h"}, 0},
		// No machine is as idle as that.
		{[]string{"run", "-shape", "span to bytes", "-foreign", "-1", "-patience", "1ms"}, exitBusy},
	} {
		cmd, temp := bench(t, c.args...)
		out, err := cmd.CombinedOutput()
		status := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			status = exit.ExitCode()
		}
		if status != c.want {
			t.Errorf("bench %q: status %d, want %d\n%s", c.args, status, c.want, out)
		}
		if c.want == exitBusy && !strings.Contains(string(out), "the machine is busy") {
			t.Errorf("bench %q does not say why:\n%s", c.args, out)
		}
		nothingLeft(t, temp)
	}
}

func TestListNamesEveryCase(t *testing.T) {
	var out bytes.Buffer
	if err := list(&out); err != nil {
		t.Fatal(err)
	}
	if got, want := bytes.Count(out.Bytes(), []byte("\n")), len(suites().Cases); got != want {
		t.Errorf("%d lines for %d cases", got, want)
	}
}

// TestCasesAreUnique: rows are found again by their names.
func TestCasesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range suites().Cases {
		key := c.Suite + "\n" + c.Shape + "\n" + c.Row
		if seen[key] {
			t.Errorf("twice: %q", key)
		}
		seen[key] = true
	}
}

// TestGatedClaimsAreQuick: bench gate runs quick cases only, and a claim that
// none of them belongs to would never hold.
func TestGatedClaimsAreQuick(t *testing.T) {
	set := suites()
	quick := suite.Options{Quick: true}.Select(set.Cases)
	for _, claim := range set.Claims {
		if !claim.Gated {
			continue
		}
		found := false
		for _, c := range quick {
			found = found || (c.Suite == claim.Suite && c.Shape == claim.Shape)
		}
		if !found {
			t.Errorf("%s, %s: gated, and no case of it is quick", claim.Shape, claim.Name)
		}
	}
}

func TestTell(t *testing.T) {
	claim := suite.Claim{Name: "ours, vs theirs", Suite: "s", Shape: "saturated", Target: 0.6, Unit: "×"}
	var out bytes.Buffer
	if err := tell(&out, []suite.Held{{Claim: claim, Best: 0.89, Rounds: 2}}, suite.Options{}); err != nil {
		t.Error(err)
	}
	err := tell(&out, []suite.Held{{Claim: claim, Best: 0.91, Rounds: 3}, {Claim: claim}}, suite.Options{})
	if !errors.Is(err, errGate) {
		t.Errorf("error %v, want %v", err, errGate)
	}
	const want = `ok  saturated  ours, vs theirs  best 0.89× of 2 rounds  bound 0.9×
OVER  saturated  ours, vs theirs  best 0.91× of 3 rounds      bound 0.9×
OVER  saturated  ours, vs theirs  best no figure of 0 rounds  bound 0.9×
`
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
