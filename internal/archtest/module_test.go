package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modulePath is the path that go.mod declares.
const modulePath = "github.com/servetrace/servetrace"

// sourceFile is one Go file of the module.
type sourceFile struct {
	// path is relative to the module's root, with slashes.
	path string
	// test: the name ends in _test.go.
	test bool
	// generated: it carries the standard line "Code generated ... DO NOT EDIT."
	generated bool
	// packageName is the name in the package clause.
	packageName string
	// doc is its package comment, empty where it has none.
	doc string
	// comments is the text of all comments.
	comments string
	// imports are import paths as written.
	imports []string
	// codeLines counts lines that hold more than space and comments.
	codeLines int
}

// goPackage is one folder of the module that holds Go files.
type goPackage struct {
	// dir is relative to the module's root, with slashes; the root is ".".
	dir   string
	files []sourceFile
}

// imports returns the imports of the package's files, with the imports of tests if tests
// is set.
func (p goPackage) imports(tests bool) []string {
	var all []string
	for _, f := range p.files {
		if tests || !f.test {
			all = append(all, f.imports...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// comments returns the text of the package's comments, except in tests and generated
// files.
func (p goPackage) comments() string {
	var text strings.Builder
	for _, f := range p.files {
		if !f.test && !f.generated {
			text.WriteString(f.comments)
		}
	}
	return text.String()
}

// hasCode reports whether there is a file that is no test.
func (p goPackage) hasCode() bool {
	return slices.ContainsFunc(p.files, func(f sourceFile) bool { return !f.test })
}

// handWritten reports whether there is code that is neither test nor generated.
func (p goPackage) handWritten() bool {
	return slices.ContainsFunc(p.files, func(f sourceFile) bool { return !f.test && !f.generated })
}

// internalDir returns the folder of an import path, and whether it is of this module.
func internalDir(importPath string) (string, bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// loadModule parses every Go file of the module, with all build constraints, in the order
// of its folders. Like the go command, it leaves out testdata, names that begin with a
// dot or an underscore, and modules inside the module.
func loadModule(tb testing.TB) []goPackage {
	tb.Helper()
	return load(tb, false)
}

// loadRepository is loadModule with the modules inside the module, for rules about all
// our code.
func loadRepository(tb testing.TB) []goPackage {
	tb.Helper()
	return load(tb, true)
}

// loaded holds the results of load by its argument, because most tests need them.
var loaded = map[bool][]goPackage{}

func load(tb testing.TB, nested bool) []goPackage {
	tb.Helper()
	if packages, ok := loaded[nested]; ok {
		return packages
	}
	root := moduleRoot(tb)
	byDir := map[string]*goPackage{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return enter(root, name, nested)
		}
		if !strings.HasSuffix(name, ".go") || ignored(entry.Name()) {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		file, err := parseFile(name, filepath.ToSlash(rel))
		if err != nil {
			return err
		}
		dir := path.Dir(file.path)
		if byDir[dir] == nil {
			byDir[dir] = &goPackage{dir: dir}
		}
		byDir[dir].files = append(byDir[dir].files, file)
		return nil
	})
	if err != nil {
		tb.Fatalf("read the module: %v", err)
	}
	var packages []goPackage
	for _, p := range byDir {
		packages = append(packages, *p)
	}
	slices.SortFunc(packages, func(a, b goPackage) int { return strings.Compare(a.dir, b.dir) })
	loaded[nested] = packages
	return packages
}

// moduleRoot finds the folder of go.mod, upwards from the test's own.
func moduleRoot(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatalf("find the module: %v", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			if !strings.Contains(string(text), "module "+modulePath+"\n") {
				tb.Fatalf("%s is not the go.mod of %s", dir, modulePath)
			}
			return dir
		}
		if dir == filepath.Dir(dir) {
			tb.Fatalf("find the module: no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// enter decides whether WalkDir goes into a folder.
func enter(root, dir string, nested bool) error {
	if dir == root {
		return nil
	}
	base := filepath.Base(dir)
	if base == "testdata" || base == "vendor" || ignored(base) {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil && !nested {
		return fs.SkipDir
	}
	return nil
}

// ignored reports whether the go command ignores a name.
func ignored(base string) bool {
	return strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

// parseFile reads one file; rel is the name that it goes by.
func parseFile(name, rel string) (sourceFile, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return sourceFile{}, err
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, rel, text, parser.ParseComments)
	if err != nil {
		return sourceFile{}, err
	}
	file := sourceFile{
		path:        rel,
		test:        strings.HasSuffix(rel, "_test.go"),
		generated:   ast.IsGenerated(tree),
		packageName: tree.Name.Name,
		doc:         tree.Doc.Text(),
		codeLines:   codeLines(files, tree, text),
	}
	for _, group := range tree.Comments {
		file.comments += group.Text()
	}
	for _, spec := range tree.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return sourceFile{}, err
		}
		file.imports = append(file.imports, importPath)
	}
	return file, nil
}

// codeLines counts the lines of text that are neither empty nor wholly taken
// by a comment.
func codeLines(files *token.FileSet, tree *ast.File, text []byte) int {
	source := slices.Clone(text)
	for _, group := range tree.Comments {
		for _, comment := range group.List {
			from, to := files.Position(comment.Pos()).Offset, files.Position(comment.End()).Offset
			for i := from; i < to; i++ {
				if source[i] != '\n' {
					source[i] = ' '
				}
			}
		}
	}
	count := 0
	for line := range strings.Lines(string(source)) {
		if strings.TrimSpace(line) != "" {
			count++
		}
	}
	return count
}
