package main

import (
	"bufio"
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

	"github.com/servetrace/servetrace/bench/internal/benchtest"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// asBench is the variable that makes this binary the program bench.
const asBench = "SERVETRACE_TEST_AS_BENCH"

func TestMain(m *testing.M) {
	benchtest.Main()
	if os.Getenv(asBench) != "" {
		main()
	}
	os.Exit(m.Run())
}

// bench prepares the program with a temporary folder of its own, which it returns.
func bench(t *testing.T, args ...string) (cmd *exec.Cmd, temp string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := benchtest.Bin(t)
	temp = filepath.Join(root, "t")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asBench+"=1", "TMPDIR="+temp)
	if len(args) > 0 && args[0] == "run" {
		cmd.Args = append(cmd.Args, "-bin", root, "-out", filepath.Join(root, "out"))
	}
	return cmd, temp
}

// nothingLeft checks that the program left no file and no process.
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

// processesOf returns the processes with the folder in their environment.
func processesOf(temp string) (left []string) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environs {
		text, err := os.ReadFile(file)
		if err == nil && bytes.Contains(text, []byte(temp)) {
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
	data, err := os.ReadFile(filepath.Join(filepath.Dir(temp), "out", suite.JSONFile))
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
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	measured := false
	log := bufio.NewScanner(stderr)
	for !measured && log.Scan() {
		measured = strings.Contains(log.Text(), "msg=measured")
	}
	if !measured {
		t.Fatalf("no case was measured: %v", log.Err())
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, stderr); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("ended with %v, want status %d", err, exitFailed)
	}
	if files, err := os.ReadDir(filepath.Join(filepath.Dir(temp), "out")); err == nil {
		t.Errorf("an interrupted run has a report: %v", files)
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
		// No machine is as idle.
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

func TestListNamesEachCaseOnce(t *testing.T) {
	var out bytes.Buffer
	if err := list(&out); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		if seen[line] {
			t.Errorf("twice: %q", line)
		}
		seen[line] = true
	}
	if len(seen) != len(suites().Cases) {
		t.Errorf("%d lines for %d cases", len(seen), len(suites().Cases))
	}
}

// TestClaimsHaveTheirCases checks that each claim can be computed from the rows of its
// shape, and each gated claim from quick rows, because bench gate runs only these.
func TestClaimsHaveTheirCases(t *testing.T) {
	set := suites()
	parts := []string{"host", "plugin", "total", "p50", "p99", "lost", "server", "reference", "server of reference", "total of reference"}
	for _, claim := range set.Claims {
		round := suite.Round{}
		for _, c := range (suite.Options{Quick: claim.Gated}).Select(set.Cases) {
			if c.Suite != claim.Suite || c.Shape != claim.Shape {
				continue
			}
			figure := 2.0
			if c.Row == "SDK floor" {
				figure = 1
			}
			sample := suite.Sample{}
			for _, metric := range []string{suite.CPU, suite.Bytes, suite.Allocs, suite.OnEnd, suite.PeakRSS, suite.Spans, suite.Encode, suite.Requests, suite.RequestCPU, suite.RequestAllocs} {
				sample[metric] = figure
				for _, part := range parts {
					sample[suite.Of(metric, part)] = figure
				}
			}
			round[c.Row] = sample
		}
		if _, ok := claim.Value(round); !ok {
			t.Errorf("claim %q of %q cannot be computed from its rows", claim.Name, claim.Shape)
		}
	}
}

func TestPrintGate(t *testing.T) {
	claim := suite.Claim{Name: "ours, vs theirs", Suite: "s", Shape: "saturated", Target: 0.6, Unit: "×"}
	var out bytes.Buffer
	if err := printGate(&out, []suite.Held{{Claim: claim, Best: 0.89, Rounds: 2}}, suite.Options{}); err != nil {
		t.Error(err)
	}
	err := printGate(&out, []suite.Held{{Claim: claim, Best: 0.91, Rounds: 3}, {Claim: claim}}, suite.Options{})
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
