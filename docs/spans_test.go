package docs

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

// The page of the spans names every key and every family that package semconv
// has, and no key below serve. that it has not.
func TestSpansPageIsWhole(t *testing.T) {
	page, err := os.ReadFile("reference/spans.md")
	if err != nil {
		t.Fatal(err)
	}
	known := semconvTexts(t)
	for name, value := range known {
		form := "`" + value + "`"
		if strings.HasPrefix(name, "Span") {
			form = "`" + value + " " // and the rest of the name
		}
		if !strings.Contains(string(page), form) {
			t.Errorf("spans.md does not say %s (semconv.%s)", form, name)
		}
	}
	values := map[string]bool{}
	for _, value := range known {
		values[value] = true
	}
	for _, key := range regexp.MustCompile("`(serve\\.[a-z_]+)`").FindAllStringSubmatch(string(page), -1) {
		if !values[key[1]] {
			t.Errorf("spans.md says %s, which semconv has not", key[1])
		}
	}
}

// semconvTexts are the constants of package semconv, but for the schema's
// address, names of applications and events, and values.
func semconvTexts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../semconv/*.go")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !spec.Names[0].IsExported() {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				texts[spec.Names[0].Name] = value
			}
			return true
		})
	}
	delete(texts, "SchemaURL")
	delete(texts, "DefaultApp")
	if len(texts) < 60 {
		t.Fatalf("semconv has %d constants, which cannot be", len(texts))
	}
	return texts
}
