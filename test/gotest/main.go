// Command gotest runs go test and reports its progress. Start it by `make test` and the
// like.
//
//	gotest [-what NAME] [-C FOLDER] -packages 'PACKAGE...' -- [FLAG...]
//
// A run has these steps:
//
//  1. It counts the packages by go list.
//  2. It runs go test -json with the flags. The events come at once, while go test
//     without -json holds the line of a package until all packages before it have ended.
//  3. It prints the lines of go test: a line for each package that has ended, and the
//     output of each failed test, which begins with its line "--- FAIL".
//  4. Meanwhile, package progress reports the running packages to standard error. Of
//     a single package, it reports the running test and its last line.
//
// With -v, -json or -bench among the flags, go test runs as it is, because it reports its
// progress itself. The exit status is the status of go test. The Makefile chooses the
// flags. Open this file first: there is no other.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/progress"
)

func main() {
	what := flag.String("what", "make test", "the name of the run in its reports")
	folder := flag.String("C", ".", "the folder of the module")
	packages := flag.String("packages", "./...", "the packages, separated by spaces")
	flag.Parse()
	status, err := run(os.Stdout, os.Stderr, *what, *folder, strings.Fields(*packages), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(2)
	}
	os.Exit(status)
}

// run runs the tests of packages, and returns the exit status of go test.
func run(stdout, stderr io.Writer, what, folder string, packages, flags []string) (status int, err error) {
	args := append(slices.Concat([]string{"-C", folder, "test"}, flags), packages...)
	if slices.ContainsFunc(flags, reportsItself) {
		cmd := exec.Command("go", args...)
		cmd.Stdout, cmd.Stderr = stdout, stderr
		return exitStatus(cmd.Run())
	}
	list := exec.Command("go", append([]string{"-C", folder, "list"}, packages...)...)
	list.Stderr = io.Discard // go test repeats it
	names, _ := list.Output()
	report := progress.Start(stderr, what, 0)
	defer report.End()
	r := runner{out: stdout, report: report, total: strings.Count(string(names), "\n"), running: map[string]*packageRun{}}
	report.At("build", 0, r.total)

	cmd := exec.Command("go", slices.Insert(args, 3, "-json")...)
	cmd.Stderr = report
	events, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err = r.read(events)
	status, waitErr := exitStatus(cmd.Wait())
	return status, errors.Join(err, waitErr)
}

// reportsItself reports whether a flag makes go test print lines all the time.
func reportsItself(text string) bool {
	name, _, _ := strings.Cut(text, "=")
	return slices.Contains([]string{"-v", "-json", "-bench"}, name)
}

func exitStatus(err error) (int, error) {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// event is an event of go test -json.
type event struct{ Action, Package, Test, Output string }

// packageRun is a package whose tests run.
type packageRun struct {
	tests map[string][]string // lines of the tests that have not ended
	lines []string            // of failed tests, then of the package itself
	ended int                 // tests, without subtests
}

// runner prints the events of a run. Its methods are called by one goroutine.
type runner struct {
	out         io.Writer
	report      *progress.Report
	running     map[string]*packageRun
	done, total int
	current     string // the running test and its last line, of a single package
}

// read prints events to their end. A line that is no event is printed as it is.
func (r *runner) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) != nil:
			err = errors.Join(err, r.print(string(line)))
		default:
			err = errors.Join(err, r.take(e))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *runner) take(e event) error {
	if e.Action == "build-output" {
		return r.print(e.Output)
	}
	if e.Package == "" {
		return nil
	}
	p := r.running[e.Package]
	if p == nil {
		p = &packageRun{tests: map[string][]string{}}
		r.running[e.Package] = p
	}
	ended := e.Action == "pass" || e.Action == "fail" || e.Action == "skip"
	switch {
	case e.Action == "output":
		p.add(e)
	case ended && e.Test == "":
		delete(r.running, e.Package)
		r.done++
		if err := r.print(p.text(e.Action == "fail")); err != nil {
			return err
		}
	case ended:
		p.end(e)
	}
	r.at(e, p)
	return nil
}

// at reports the progress after an event.
func (r *runner) at(e event, p *packageRun) {
	if r.total != 1 {
		r.report.At(namesOf(slices.Sorted(maps.Keys(r.running))), r.done, r.total)
		return
	}
	if text := strings.TrimSpace(e.Output); e.Test != "" && !isFrame(text) {
		r.current = strings.TrimSuffix(e.Test+": "+text, ": ")
	}
	r.report.At(fmt.Sprintf("test %d, %s", p.ended+1, r.current), 0, 0)
}

// namesOf returns the last elements of some import paths.
func namesOf(packages []string) string {
	const most = 4
	var names []string
	for _, name := range packages[:min(most, len(packages))] {
		names = append(names, path.Base(name))
	}
	text := strings.Join(names, ", ")
	if more := len(packages) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// add keeps a line of output.
func (p *packageRun) add(e event) {
	switch {
	case e.Test == "":
		p.lines = append(p.lines, e.Output)
	case !strings.HasPrefix(e.Output, "=== "):
		p.tests[e.Test] = append(p.tests[e.Test], e.Output)
	}
}

// isFrame reports whether a line is of package testing, and not of a test.
func isFrame(text string) bool {
	return strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- ")
}

// end forgets the lines of a test that has ended, unless it has failed.
func (p *packageRun) end(e event) {
	lines := p.tests[e.Test]
	delete(p.tests, e.Test)
	if !strings.Contains(e.Test, "/") {
		p.ended++
	}
	if e.Action != "fail" {
		return
	}
	verdict := func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "--- FAIL: ") }
	if at := slices.IndexFunc(lines, verdict); at > 0 {
		lines = slices.Insert(slices.Delete(slices.Clone(lines), at, at+1), 0, lines[at])
	}
	p.lines = append(p.lines, lines...)
}

// text returns the output of a package that has ended: its last line, or all lines after a
// failure. A test without an end has ended the process.
func (p *packageRun) text(failed bool) string {
	if !failed {
		return strings.Join(p.lines[max(0, len(p.lines)-1):], "")
	}
	var unended []string
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		unended = append(unended, p.tests[name]...)
	}
	return strings.Join(append(unended, p.lines...), "")
}

// print writes to the output, in the place of a terminal's line.
func (r *runner) print(text string) error {
	_, err := r.report.Write(nil) // clears it
	_, writeErr := io.WriteString(r.out, text)
	return errors.Join(err, writeErr)
}
