package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

const settingsPage = "docs/reference/settings.md"

// variableName is the form of the variables that operators set.
var variableName = regexp.MustCompile(`^(SERVE|OTEL|RAY)(_[A-Z0-9]+)+$`)

// variableMention finds such names in running text.
var variableMention = regexp.MustCompile(`\b(SERVE|OTEL|RAY)(_[A-Z0-9]+)+\b`)

// TestSettingsPageIsWhole compares the variables in the text of the code with the
// variables on the settings page, both ways.
func TestSettingsPageIsWhole(t *testing.T) {
	root := moduleRoot(t)
	page, err := os.ReadFile(filepath.Join(root, settingsPage))
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, name := range variableMention.FindAllString(string(page), -1) {
		described[name] = true
	}
	read := map[string]bool{}
	for _, p := range loadModule(t) {
		for _, f := range p.files {
			if f.test || f.generated {
				continue
			}
			for _, name := range variablesIn(t, filepath.Join(root, f.path)) {
				read[name] = true
				if !described[name] {
					t.Errorf("%s reads %s, which %s does not have", f.path, name, settingsPage)
				}
			}
		}
	}
	for name := range described {
		if !read[name] {
			t.Errorf("%s has %s, which no code reads", settingsPage, name)
		}
	}
}

// variablesIn lists the string literals of a file that have the form of a
// variable.
func variablesIn(tb testing.TB, name string) []string {
	tb.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		tb.Fatal(err)
	}
	var found []string
	ast.Inspect(tree, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if text, err := strconv.Unquote(literal.Value); err == nil && variableName.MatchString(text) {
			found = append(found, text)
		}
		return true
	})
	slices.Sort(found)
	return slices.Compact(found)
}
