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
)

// reliabilityPage is the page whose table names a test for each hazard.
const reliabilityPage = "docs/reliability.md"

// hazards is how many there are. Blocking tests are few, so that each is known.
const (
	hazards       = 33
	leastBlocking = 10
	mostBlocking  = 16
)

// namedTest is a test as the page names it: `TestName` (`package`), in bold
// where it is release-blocking.
type namedTest struct {
	name, dir string
	blocking  bool
}

var (
	hazardRow = regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
	testName  = regexp.MustCompile("(\\*\\*)?`((?:Test|Fuzz)\\w+)` \\(`([^`]+)`\\)")
)

func namedTests(text string) []namedTest {
	var list []namedTest
	for _, m := range testName.FindAllStringSubmatch(text, -1) {
		list = append(list, namedTest{name: m[2], dir: m[3], blocking: m[1] != ""})
	}
	return list
}

func TestEveryHazardHasItsTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(moduleRoot(t), reliabilityPage))
	if err != nil {
		t.Fatal(err)
	}
	next := 1
	for _, row := range hazardRow.FindAllStringSubmatch(string(page), -1) {
		if row[1] != strconv.Itoa(next) {
			t.Errorf("%s: the row of hazard %s stands where that of %d should", reliabilityPage, row[1], next)
		}
		if len(namedTests(row[4])) == 0 {
			t.Errorf("%s: hazard %s has no test", reliabilityPage, row[1])
		}
		next++
	}
	if next != hazards+1 {
		t.Errorf("%s: %d rows, there are %d hazards", reliabilityPage, next-1, hazards)
	}
	blocking := map[string]bool{}
	for _, test := range namedTests(string(page)) {
		body := findTest(t, test)
		if body == nil {
			t.Errorf("%s: %s is not to be found in %s", reliabilityPage, test.name, test.dir)
			continue
		}
		if test.blocking {
			blocking[test.name] = true
			if at := skips(body); at != "" {
				t.Errorf("%s: %s is release-blocking, and can be skipped by %s", reliabilityPage, test.name, at)
			}
		}
	}
	if n := len(blocking); n < leastBlocking || n > mostBlocking {
		t.Errorf("%s: %d release-blocking tests, want %d to %d", reliabilityPage, n, leastBlocking, mostBlocking)
	}
}

// findTest is the body of a test, nil where there is none.
func findTest(t *testing.T, test namedTest) *ast.BlockStmt {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleRoot(t), test.dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == test.name {
				return f.Body
			}
		}
	}
	return nil
}

// skips gives the call by which a test can skip itself, empty where there is
// none. What its helpers do is not seen.
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
