// Command hazards runs the tests that docs/internals/hazards.md names, and prints its table
// with the result of each. Start it by `make hazards`.
//
//	hazards              all rows
//	hazards -hazard 8    one of them
//	hazards -race=false  without the race detector
//
// It runs the go command in the working folder, which must be the root of the repository,
// one package after the other, and reads the result of each test. The exit status is 1 if a
// test failed, was skipped or did not run. The command is this file.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/progress"
	"github.com/servetrace/servetrace/test/hazard"
)

func main() {
	only := flag.Int("hazard", 0, "run the tests of this row alone")
	race := flag.Bool("race", true, "run them under the race detector")
	flag.Parse()
	report, ok, err := run(*only, *race)
	if err == nil {
		_, err = os.Stdout.WriteString(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hazards:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run gives the table with the results; ok: all tests passed.
func run(only int, race bool) (report string, ok bool, err error) {
	rows, _, err := hazard.Read(hazard.Page)
	if err != nil {
		return "", false, fmt.Errorf("%w; run it in the root of the repository", err)
	}
	if only != 0 {
		rows = slices.DeleteFunc(rows, func(r hazard.Row) bool { return r.Number != only })
	}
	if len(rows) == 0 {
		return "", false, fmt.Errorf("there is no hazard %d in %s", only, hazard.Page)
	}
	results, said, err := runTests(rows, race)
	if err != nil {
		return "", false, err
	}
	var out strings.Builder
	ok = true
	fmt.Fprintln(&out, "| # | promise | test | result |")
	fmt.Fprintln(&out, "| --- | --- | --- | --- |")
	for _, r := range rows {
		for _, t := range r.Tests {
			got, ran := results[key(t.Dir, t.Name)]
			if !ran {
				got.Action = "not run"
			}
			ok = ok && got.Action == "pass"
			fmt.Fprintf(&out, "| %d | %s | `%s/%s` | %s |\n", r.Number, r.Promise, t.Dir, t.Name, got)
		}
	}
	if !ok {
		fmt.Fprintf(&out, "\nFAIL: what the tests said:\n%s", said)
	}
	return out.String(), ok, nil
}

// event is an event of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// String is a result for people.
func (e event) String() string {
	if e.Elapsed == 0 {
		return e.Action
	}
	return fmt.Sprintf("%s (%.1f s)", e.Action, e.Elapsed)
}

// runTests runs all tests of the rows and returns the result of each by its key. said is
// the output of the packages, and of the tests that did not pass.
func runTests(rows []hazard.Row, race bool) (results map[string]event, said []byte, err error) {
	byDir := map[string][]string{}
	for _, r := range rows {
		for _, t := range r.Tests {
			byDir[t.Dir] = append(byDir[t.Dir], t.Name)
		}
	}
	results = map[string]event{}
	report := progress.Start(os.Stderr, "make hazards", 0)
	defer report.End()
	for i, dir := range slices.Sorted(maps.Keys(byDir)) {
		report.At(dir, i, len(byDir))
		args := []string{"test", "-json", "-count=1", "-run", "^(" + strings.Join(byDir[dir], "|") + ")$", "./" + dir}
		if race {
			args = slices.Insert(args, 1, "-race")
		}
		cmd := exec.Command("go", args...)
		cmd.Stderr = report
		events, err := cmd.Output()
		var failed *exec.ExitError
		if err != nil && !errors.As(err, &failed) { // failed: the events say which test
			return nil, nil, fmt.Errorf("run the tests of %s: %w", dir, err)
		}
		printed, err := read(events, dir, results)
		if err != nil {
			return nil, nil, fmt.Errorf("read what go test -json says of %s: %w", dir, err)
		}
		said = append(said, printed...)
	}
	return results, said, nil
}

// read adds the results of one package's tests, and returns the output without that of
// passed tests.
func read(events []byte, dir string, results map[string]event) (printed []byte, err error) {
	byTest := map[string][]byte{}
	var order []string
	for decoder := json.NewDecoder(bytes.NewReader(events)); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(e.Test, "/")
		switch e.Action {
		case "output", "build-output":
			if byTest[name] == nil {
				order = append(order, name)
			}
			byTest[name] = append(byTest[name], e.Output...)
		case "pass", "fail", "skip":
			if e.Test == name && name != "" { // not a subtest, nor the package
				results[key(dir, name)] = e
			}
		}
	}
	for _, name := range order {
		if results[key(dir, name)].Action != "pass" {
			printed = append(printed, byTest[name]...)
		}
	}
	return printed, nil
}

func key(dir, test string) string { return dir + " " + test }
