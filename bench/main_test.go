package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/bench/internal/benchtest"
	"github.com/servetrace/servetrace/bench/internal/measure"
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
	cmd, temp := bench(t, "run", "-shape", "^saturated$", "-row", "^(SDK floor|ours)$", "-repeat", "1", "-foreign", "1000")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	report, err := os.ReadFile(filepath.Join(filepath.Dir(temp), "out", "report.md"))
	if err != nil || !bytes.Contains(out, report) || !bytes.Contains(report, []byte("\n| ours | ")) || bytes.Contains(report, []byte("Failed")) {
		t.Errorf("error %v, report %q, output\n%s", err, report, out)
	}
	nothingLeft(t, temp)
}

func TestInterrupt(t *testing.T) {
	cmd, temp := bench(t, "run", "-shape", "^saturated$", "-row", "^ours$", "-repeat", "1000", "-foreign", "1000")
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
		t.Fatalf("no row was measured: %v", log.Err())
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
		says string
	}{
		{nil, exitUsage, "usage"},
		{[]string{"fly"}, exitUsage, "usage"},
		{[]string{"run", "now"}, exitUsage, `not "now"`},
		{[]string{"run", "-shape", "no such shape"}, exitUsage, "no row matches"},
		{[]string{"run", "-shape", "("}, exitUsage, "missing closing"},
		{[]string{"soak", "-for", "1s"}, exitUsage, "1m30s at least"},
		{[]string{"child", "unknown"}, exitFailed, `no role "unknown"`},
		{[]string{"run", "-h"}, 0, "-patience"},
		// No machine is as idle.
		{[]string{"run", "-shape", "span to bytes", "-foreign", "-1", "-patience", "1ms"}, exitBusy, "the machine is busy"},
	} {
		cmd, temp := bench(t, c.args...)
		out, err := cmd.CombinedOutput()
		status := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			status = exit.ExitCode()
		}
		if status != c.want || !strings.Contains(string(out), c.says) {
			t.Errorf("bench %q: status %d, want %d and %q\n%s", c.args, status, c.want, c.says, out)
		}
		nothingLeft(t, temp)
	}
}

func TestPrintGate(t *testing.T) {
	result := func(best float64, rounds int) suite.ClaimResult {
		return suite.ClaimResult{
			Claim: suite.Claim{Name: "ours, vs theirs", Bound: 0.6, Unit: "×"}.Gated(), Shape: "saturated",
			Measured: measure.Summary{Min: best, N: rounds},
		}
	}
	var out bytes.Buffer
	if err := printGate(&out, []suite.ClaimResult{result(0.89, 2)}); err != nil {
		t.Error(err)
	}
	if err := printGate(&out, []suite.ClaimResult{result(0.91, 3), result(0, 0)}); !errors.Is(err, errGate) {
		t.Errorf("error %v, want %v", err, errGate)
	}
	const want = `ok  saturated  ours, vs theirs  best 0.89× of 2 rounds  bound 0.9×
OVER  saturated  ours, vs theirs  best 0.91× of 3 rounds  bound 0.9×
OVER  saturated  ours, vs theirs  best 0× of 0 rounds     bound 0.9×
`
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestPageHasTheBounds compares the bounds and goals of two pages with the claims. The
// README has all claims with a goal, and docs/explanation/performance.md some.
func TestPageHasTheBounds(t *testing.T) {
	claims, names := map[string][]suite.Claim{}, map[string]bool{}
	for _, s := range shapes() {
		if names[s.Name] {
			t.Errorf("two shapes are named %q", s.Name)
		}
		names[s.Name] = true
		for _, c := range s.Claims {
			claims[c.Name] = append(claims[c.Name], c)
			claims[rowOf(s, c)] = append(claims[rowOf(s, c)], c)
		}
	}
	seen := map[string]bool{} // rows of the last page
	for _, page := range []string{"../docs/explanation/performance.md", "README.md"} {
		text, err := os.ReadFile(page)
		_, table, found := strings.Cut(string(text), "| bound on | bound | goal | measured | |\n")
		if !found {
			t.Fatalf("%s has no table of bounds (%v)", page, err)
		}
		clear(seen)
		for line := range strings.Lines(table) {
			cells := strings.Split(line, " | ")
			if len(cells) < 5 {
				break
			}
			name, bound, goal := strings.TrimPrefix(cells[0], "| "), cells[1], cells[2]
			seen[name] = true
			if !strings.HasPrefix(name, "---") && !slices.ContainsFunc(claims[name], func(c suite.Claim) bool {
				return bound == figure(c.Bound)+c.Unit && (goal == "–" || goal == figure(c.Goal)+c.Unit)
			}) {
				t.Errorf("%s: no claim %q has the bound %s and the goal %s", page, name, bound, goal)
			}
		}
	}
	for _, s := range shapes() {
		for _, c := range s.Claims {
			if c.Goal > 0 && !seen[c.Name] && !seen[rowOf(s, c)] {
				t.Errorf("README.md has no row for %s", rowOf(s, c))
			}
		}
	}
}

// rowOf returns the name of a claim's row, when the shape belongs to it.
func rowOf(s suite.Shape, c suite.Claim) string { return c.Name + " (" + s.Name + ")" }

func figure(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }
