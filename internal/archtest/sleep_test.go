package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// TestTestsDoNotSleep forbids time.Sleep in tests, outside functions that are
// written into a call of synctest.Test: there it moves a clock and takes no
// time. Elsewhere a test that sleeps is slow, or fails on a busy machine.
func TestTestsDoNotSleep(t *testing.T) {
	root := moduleRoot(t)
	for _, p := range loadRepository(t) {
		for _, f := range p.files {
			if !f.test {
				continue
			}
			files := token.NewFileSet()
			tree, err := parser.ParseFile(files, filepath.Join(root, f.path), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range sleeps(tree) {
				t.Errorf("%s:%d: a test sleeps: use testing/synctest, or wait for what you wait for", f.path, files.Position(at).Line)
			}
		}
	}
}

// sleeps finds the uses of time.Sleep that are outside of a bubble.
func sleeps(tree *ast.File) []token.Pos {
	var bubbles []ast.Node
	var found []token.Pos
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if isSelector(n.Fun, "synctest", "Test") {
				bubbles = append(bubbles, n)
			}
		case *ast.SelectorExpr:
			inside := func(bubble ast.Node) bool { return bubble.Pos() <= n.Pos() && n.End() <= bubble.End() }
			// A bubble begins before its content, so it is already in the list.
			if isSelector(n, "time", "Sleep") && !slices.ContainsFunc(bubbles, inside) {
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}

// isSelector reports whether an expression is PACKAGE.NAME.
func isSelector(e ast.Expr, packageName, name string) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	left, ok := selector.X.(*ast.Ident)
	return ok && left.Name == packageName
}

func TestSleeps(t *testing.T) {
	const source = `package p

func a() { time.Sleep(1) }

func b(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		go func() { time.Sleep(1) }()
	})
	wait := time.Sleep
	other.Sleep(1)
}
`
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, at := range sleeps(tree) {
		lines = append(lines, files.Position(at).Line)
	}
	if want := []int{3, 9}; !slices.Equal(lines, want) {
		t.Errorf("sleeps on lines %v, want %v", lines, want)
	}
}
