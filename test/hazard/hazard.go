// Package hazard reads the list of docs/internals/hazards.md: the promises about
// plugins that fail, and their tests. It runs nothing. The test of the page
// (internal/archtest) checks the names, and a command (test/hazards) runs the tests.
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

// Row is a numbered promise of the page.
type Row struct {
	// Number counts from 1. Promise is one line of text.
	Number  int
	Promise string
	// Tests has at least one item; the test of the page checks that.
	Tests []Test
}

// Test is a test that the page names, as `folder/TestName`, in bold if it is
// release-blocking.
type Test struct {
	// Name is the name of the function. Dir is the folder of its package, relative to
	// the root of the repository.
	Name, Dir string
	Blocking  bool
}

var (
	row  = regexp.MustCompile("(?m)^(\\d+)\\. (.+?): ([`*].+)$")
	test = regexp.MustCompile("(\\*\\*)?`([\\w./-]+)/((?:Test|Fuzz)\\w+)`")
)

// Read returns the numbered promises of the page at path, in order, and all tests
// that the page names, below them too. A test may occur twice.
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
			Promise: strings.TrimSpace(cells[2]),
			Tests:   testsIn(cells[3]),
		})
	}
	return rows, testsIn(string(page)), nil
}

func testsIn(text string) []Test {
	var list []Test
	for _, m := range test.FindAllStringSubmatch(text, -1) {
		list = append(list, Test{Name: m[3], Dir: m[2], Blocking: m[1] != ""})
	}
	return list
}
