package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/internal/progress"
)

// module writes a module with these files and returns its folder.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	dir := t.TempDir()
	files["go.mod"] = "module m\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var modulesFiles = map[string]string{
	"a/a.go":      "package a\n",
	"b/b_test.go": "package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) { t.Log(\"all is well\") }\n",
	"c/c_test.go": `package c

import "testing"

func TestGood(t *testing.T) { t.Log("all is well") }

func TestBad(t *testing.T) {
	t.Log("before")
	t.Run("below", func(t *testing.T) { t.Error("wrong") })
}
`,
	"d/d_test.go": "package d\n\nimport \"testing\"\n\nfunc TestD(t *testing.T) { panic(\"over\") }\n",
	"e/e_test.go": "package e\n\nfunc broken() { missing() }\n",
}

// TestRun compares the lines with the lines of go test itself.
func TestRun(t *testing.T) {
	dir := module(t, modulesFiles)
	var stdout, stderr bytes.Buffer
	status, err := run(&stdout, &stderr, "test", dir, []string{"./..."}, []string{"-count=1"})
	if err != nil || status != 1 {
		t.Errorf("status %d, %v; want 1", status, err)
	}
	got := regexp.MustCompile(`[\d.]+s\b`).ReplaceAllString(stdout.String(), "0s")
	for _, want := range []string{
		"?   \tm/a\t[no test files]\n", "ok  \tm/b\t0s\n",
		"--- FAIL: TestBad/below (0s)\n    c_test.go:9: wrong\n--- FAIL: TestBad (0s)\n    c_test.go:8: before\nFAIL\nFAIL\tm/c\t0s\n",
		"panic: over", "FAIL\tm/d\t0s\n",
		"# m/e [m/e.test]\ne/e_test.go:3:17: undefined: missing\n", "FAIL\tm/e [build failed]\n",
	} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is not there once", want)
		}
	}
	if strings.Contains(got, "all is well") || strings.Contains(got, "=== RUN") {
		t.Error("there are lines of tests that have passed")
	}
	if t.Failed() {
		t.Logf("standard output:\n%s\nstandard error:\n%s", got, &stderr)
	}
}

// TestRunAsItIs: with -v, the lines are those of go test.
func TestRunAsItIs(t *testing.T) {
	dir := module(t, map[string]string{"b/b_test.go": modulesFiles["b/b_test.go"]})
	var stdout, stderr bytes.Buffer
	status, err := run(&stdout, &stderr, "test", dir, []string{"./..."}, []string{"-v"})
	if want := "    b_test.go:5: all is well\n"; status != 0 || err != nil || !strings.Contains(stdout.String(), want) {
		t.Errorf("status %d, %v:\n%s%s\nwant %q", status, err, &stdout, &stderr, want)
	}
}

// TestProgress reads events of two packages at once, and of a single package.
func TestProgress(t *testing.T) {
	two := `{"Action":"start","Package":"m/a"}
{"Action":"start","Package":"m/b"}
{"Action":"output","Package":"m/b","Output":"ok  \tm/b\n"}
{"Action":"pass","Package":"m/b"}
no event
`
	one := `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"pass","Package":"m/a","Test":"TestA"}
{"Action":"run","Package":"m/a","Test":"TestB"}
{"Action":"output","Package":"m/a","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"m/a","Test":"TestB","Output":"    a_test.go:7: cycle 3 of 9\n"}
`
	for _, c := range []struct {
		events           string
		total            int
		printed, current string
		running          string
	}{
		{two, 2, "ok  \tm/b\nno event\n", "", "a"},
		{one, 1, "", "TestB: a_test.go:7: cycle 3 of 9", "a"},
	} {
		var out bytes.Buffer
		report := progress.Start(new(bytes.Buffer), "test", 0)
		r := runner{out: &out, report: report, total: c.total, running: map[string]*packageRun{}}
		if err := r.read(strings.NewReader(c.events)); err != nil {
			t.Error(err)
		}
		report.End()
		var names []string
		for name := range r.running {
			names = append(names, name)
		}
		if diff := cmp.Diff([]string{c.printed, c.current, c.running}, []string{out.String(), r.current, namesOf(names)}); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if got, want := namesOf([]string{"a", "b", "c", "d", "e", "f"}), "a, b, c, d and 2 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
