package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxSpanTypes is the largest number of types that may hold or view a span on its way.
const maxSpanTypes = 12

var (
	spanTypeRow = regexp.MustCompile(`(?m)^//\t(\w+)\.(\w+) +\S`)
	orderRow    = regexp.MustCompile(`(?m)^//\t([a-z/]+) +(\w+\.go(?: \w+\.go)*)$`)
)

// TestMapNamesTypesAndFiles compares the two lists of doc.go in the root with the code:
// the types on the way of a span, and the files in the order to read them.
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
