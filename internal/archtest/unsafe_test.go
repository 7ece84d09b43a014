package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unsafeFiles are the files that may use package unsafe, and why. Generated code is
// free: protoc-gen-go writes it.
var unsafeFiles = []struct{ path, why string }{
	{"internal/launch/background_linux.go", "sched_setscheduler takes the address of its parameter, and golang.org/x/sys has no call for it"},
	{"internal/proctree/proctree_linux.go", "prctl(PR_GET_CHILD_SUBREAPER) takes the address of its answer as a number"},
}

// TestNoUnsafe: product code reads no memory but by the language's rules, and no
// private state of other packages. System calls are the exception, file by file.
func TestNoUnsafe(t *testing.T) {
	root := moduleRoot(t)
	used := map[string]bool{}
	for _, p := range loadModule(t) {
		for _, f := range p.files {
			if f.test || f.generated {
				continue
			}
			found := unsafeUses(t, filepath.Join(root, f.path))
			used[f.path] = len(found) > 0
			allowed := slices.ContainsFunc(unsafeFiles, func(row struct{ path, why string }) bool { return row.path == f.path })
			if len(found) > 0 && !allowed {
				t.Errorf("%s uses %s: only system calls may, and then the file stands in unsafeFiles with the reason", f.path, strings.Join(found, ", "))
			}
		}
	}
	for _, row := range unsafeFiles {
		if !used[row.path] {
			t.Errorf("unsafeFiles has %s, which uses nothing of the kind: delete the row", row.path)
		}
	}
}

// unsafeUses returns a file's uses of package unsafe and similar means.
func unsafeUses(tb testing.TB, name string) (found []string) {
	tb.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		tb.Fatal(err)
	}
	for _, spec := range tree.Imports {
		if spec.Path.Value == `"unsafe"` {
			found = append(found, "unsafe")
		}
	}
	for _, group := range tree.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:linkname ") {
				found = append(found, "go:linkname")
			}
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "NewAt" {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "reflect" {
				found = append(found, "reflect.NewAt")
			}
		}
		return true
	})
	return found
}

// TestUnsafeUses: the rule finds its cases.
func TestUnsafeUses(t *testing.T) {
	for source, want := range map[string]string{
		"import \"unsafe\"\nvar _ unsafe.Pointer":                                          "unsafe",
		"import _ \"unsafe\"\n//go:linkname now runtime.nanotime\nfunc now() int64":        "unsafe,go:linkname",
		"import \"reflect\"\nvar v = reflect.NewAt(nil, nil)":                              "reflect.NewAt",
		"import \"reflect\"\n// unsafe, go:linkname and reflect.NewAt\nvar t reflect.Type": "",
	} {
		name := filepath.Join(t.TempDir(), "a.go")
		if err := os.WriteFile(name, []byte("package a\n"+source+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(unsafeUses(t, name), ","); got != want {
			t.Errorf("%q uses %q, want %q", source, got, want)
		}
	}
}
