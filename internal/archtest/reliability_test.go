package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/test/hazard"
)

// hazards is how many there are. Blocking tests are few, so that each is known.
const (
	hazards       = 33
	leastBlocking = 10
	mostBlocking  = 16
)

func TestEveryHazardHasItsTests(t *testing.T) {
	rows, named, err := hazard.Read(filepath.Join(moduleRoot(t), hazard.Page))
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if row.Number != i+1 {
			t.Errorf("%s: the row of hazard %d stands where that of %d should", hazard.Page, row.Number, i+1)
		}
		if len(row.Tests) == 0 {
			t.Errorf("%s: hazard %d has no test", hazard.Page, row.Number)
		}
	}
	if len(rows) != hazards {
		t.Errorf("%s: %d rows, there are %d hazards", hazard.Page, len(rows), hazards)
	}
	blocking := map[string]bool{}
	for _, test := range named {
		body := findTest(t, test)
		if body == nil {
			t.Errorf("%s: %s is not to be found in %s", hazard.Page, test.Name, test.Dir)
			continue
		}
		if test.Blocking {
			blocking[test.Name] = true
			if at := skips(body); at != "" {
				t.Errorf("%s: %s is release-blocking, and can be skipped by %s", hazard.Page, test.Name, at)
			}
		}
	}
	if n := len(blocking); n < leastBlocking || n > mostBlocking {
		t.Errorf("%s: %d release-blocking tests, want %d to %d", hazard.Page, n, leastBlocking, mostBlocking)
	}
}

// promises is the number of promises of the page on reliability.
const promises = 8

// TestPromisesNameTheirHazards checks that each promise names hazards that the table has.
func TestPromisesNameTheirHazards(t *testing.T) {
	const page = "docs/explanation/reliability.md"
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), page))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\d+\. \*\*.*\(Hazards ([\d, ]+)\.\)$`).FindAllStringSubmatch(string(text), -1)
	if len(found) != promises {
		t.Errorf("%s: %d promises name hazards, want %d", page, len(found), promises)
	}
	for _, promise := range found {
		for number := range strings.SplitSeq(promise[1], ", ") {
			if n, err := strconv.Atoi(number); err != nil || n < 1 || n > hazards {
				t.Errorf("%s: there is no hazard %q", page, number)
			}
		}
	}
}

// findTest is the body of a test, nil where there is none.
func findTest(t *testing.T, test hazard.Test) *ast.BlockStmt {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleRoot(t), test.Dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == test.Name {
				return f.Body
			}
		}
	}
	return nil
}

// skips returns the call by which a test can skip itself, "" for none. It does not
// examine helpers.
func skips(body *ast.BlockStmt) (call string) {
	ast.Inspect(body, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && (strings.HasPrefix(s.Sel.Name, "Skip") || s.Sel.Name == "Short") {
			call = s.Sel.Name
		}
		return true
	})
	return call
}

func TestSkips(t *testing.T) {
	for source, want := range map[string]string{
		`t.Errorf("x")`: "",
		`t.Run("a", func(t *testing.T) { if x { t.Skipf("no /proc") } })`: "Skipf",
		`if testing.Short() { return }`:                                   "Short",
	} {
		f, err := parser.ParseExpr("func() { " + source + " }")
		if err != nil {
			t.Fatal(err)
		}
		if got := skips(f.(*ast.FuncLit).Body); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}
