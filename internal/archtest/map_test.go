package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxSpanTypes is the largest number of types that may hold or view a span on its way.
const maxSpanTypes = 12

var (
	spanTypeRow = regexp.MustCompile(`(?m)^//\t(\w+)\.(\w+) +\S`)
	callRow     = regexp.MustCompile(`(?m)^//\t([a-z/]+/\w+\.go) +(\w+(?: \w+)*)$`)
	orderRow    = regexp.MustCompile(`(?m)^//\t([a-z/]+) +(\w+\.go(?: \w+\.go)*)$`)
)

// TestMapNamesTypesAndFiles compares the lists of doc.go in the root with the code: the types
// on the way of a span, the declarations on the way of a request, and the files in the order
// to read them.
func TestMapNamesTypesAndFiles(t *testing.T) {
	root := moduleRoot(t)
	text, err := os.ReadFile(filepath.Join(root, "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]bool{}
	for name, d := range loadTypes(t) {
		if d.spec != nil {
			folder, name := path.Split(strings.Replace(name, ".", "/", 1))
			types[path.Base(folder)+"."+name] = true
		}
	}
	spanTypes := spanTypeRow.FindAllStringSubmatch(string(text), -1)
	if n := len(spanTypes); n == 0 || n > maxSpanTypes {
		t.Errorf("doc.go lists %d types that hold or view a span, want 1 to %d", n, maxSpanTypes)
	}
	for _, row := range spanTypes {
		if name := row[1] + "." + row[2]; !types[name] {
			t.Errorf("doc.go lists the type %s, which does not exist", name)
		}
	}
	calls := callRow.FindAllStringSubmatch(string(text), -1)
	if len(calls) == 0 {
		t.Error("doc.go lists no functions to read")
	}
	for _, row := range calls {
		declared := declaredIn(t, filepath.Join(root, row[1]))
		for _, name := range strings.Fields(row[2]) {
			i := slices.Index(declared, name)
			if i < 0 {
				t.Errorf("doc.go lists %s in %s, which does not declare it there, in this order", name, row[1])
				break
			}
			declared = declared[i+1:]
		}
	}
	order := orderRow.FindAllStringSubmatch(string(text), -1)
	if len(order) == 0 {
		t.Error("doc.go lists no files to read")
	}
	for _, row := range order {
		for _, file := range strings.Fields(row[2]) {
			if _, err := os.Stat(filepath.Join(root, row[1], file)); err != nil {
				t.Errorf("doc.go lists a file to read that does not exist: %v", err)
			}
		}
	}
}

// declaredIn returns the names of the types, functions and methods that a file declares, in
// their order in the file.
func declaredIn(t *testing.T, file string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names
}
