// Package hazard reads the table of docs/internals/hazards.md: what can go wrong with a
// plugin, what is promised, and which tests hold it. It runs nothing: the test of
// the page (internal/archtest) and the command that runs what it names
// (test/hazards) do.
package hazard

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Page is the page in this repository, from its root.
const Page = "docs/internals/hazards.md"

// Row is a row of the table.
type Row struct {
	// Number counts from 1. Hazard and Promise are for people, one line each.
	Number          int
	Hazard, Promise string
	// Tests are at least one, by the test of the page.
	Tests []Test
}

// Test is a test that the page names: `TestName` (`folder`), in bold where it is
// release-blocking.
type Test struct {
	// Name is the function's, Dir the folder of its package, from the root.
	Name, Dir string
	Blocking  bool
}

var (
	row  = regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$`)
	test = regexp.MustCompile("(\\*\\*)?`((?:Test|Fuzz)\\w+)` \\(`([^`]+)`\\)")
)

// Read reads the page at a path: the rows of the table in their order, and all
// tests that the page names, in the table or elsewhere, some of them twice.
func Read(path string) (rows []Row, named []Test, err error) {
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	for _, cells := range row.FindAllStringSubmatch(string(page), -1) {
		number, err := strconv.Atoi(cells[1])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: row %q: %w", path, cells[1], err)
		}
		rows = append(rows, Row{
			Number:  number,
			Hazard:  strings.TrimSpace(cells[2]),
			Promise: strings.TrimSpace(cells[3]),
			Tests:   testsIn(cells[4]),
		})
	}
	return rows, testsIn(string(page)), nil
}

func testsIn(text string) []Test {
	var list []Test
	for _, m := range test.FindAllStringSubmatch(text, -1) {
		list = append(list, Test{Name: m[2], Dir: m[3], Blocking: m[1] != ""})
	}
	return list
}
