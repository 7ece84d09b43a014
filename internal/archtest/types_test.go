package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The limits of a type.
const (
	maxMethods = 20
	maxFiles   = 3  // with its declaration and its methods
	maxFields  = 15 // of a type with methods that change it
)

// largeTypes are the types that may pass the limits, and why.
var largeTypes = []struct{ name, why string }{
	{"pluginsdk.Span", "a view of one span, with a method for each field of OTLP's span and each edit of it"},
	{"internal/otlpwire.Request", "the reader of OTLP: entries, edits and searches of one batch share its memory"},
	{"internal/otlpwire.Span", "the reader's view of one span, with a method for each field of OTLP's span"},
	{"internal/otlpwire.Writer", "a method for each kind of value that the wire has"},
}

// TestNoGodObjects: no type of the product has over 20 methods, is spread over more
// than three files, or has over 15 fields if its methods change it.
//
// It reads the declarations outside of tests, of test/ and of generated code, without
// the type checker, and counts like this:
//
//   - A type's methods are its own and the methods of the module's types that it
//     embeds, by value or by pointer. An interface has its own and embedded ones.
//   - Its files are the files of these methods and of the declarations.
//   - Its fields are its own. Instead of an embedded struct of the module, or a field
//     with an anonymous struct, its fields count.
//   - A method with a pointer receiver changes the type if it assigns to, increments,
//     deletes from, clears or takes the address of something that is reached through
//     the receiver. A field by value of package sync or atomic is state, too.
//   - Other types are plain data, such as settings and statistics, and may have any
//     number of fields.
func TestNoGodObjects(t *testing.T) {
	all := loadTypes(t)
	if len(all) == 0 {
		t.Fatal("no type found")
	}
	offends := map[string]string{}
	for name := range all {
		if faults := all.faults(name); len(faults) > 0 {
			offends[name] = strings.Join(faults, ", ")
		}
	}
	for _, row := range largeTypes {
		if offends[row.name] == "" {
			t.Errorf("largeTypes has %s, which is within the limits: delete the row", row.name)
		}
		delete(offends, row.name)
	}
	for _, name := range slices.Sorted(maps.Keys(offends)) {
		t.Errorf("%s has %s: split it by what it is about", name, offends[name])
	}
}

// declaredType is a type of the module as its source declares it.
type declaredType struct {
	spec    *ast.TypeSpec
	imports map[string]string // the folders of the module that its file imports, by name
	file    string
	methods []declaredMethod
}

type declaredMethod struct {
	name, file string
	changes    bool // its receiver
}

// declaredTypes are types by "folder.Name".
type declaredTypes map[string]*declaredType

func loadTypes(tb testing.TB) declaredTypes {
	tb.Helper()
	root, all := moduleRoot(tb), declaredTypes{}
	for _, p := range loadModule(tb) {
		for _, f := range p.files {
			if f.test || f.generated || strings.HasPrefix(f.path, "test/") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, f.path), nil, parser.SkipObjectResolution)
			if err != nil {
				tb.Fatal(err)
			}
			all.add(f.path, tree)
		}
	}
	return all
}

// add adds the types and methods that a file declares.
func (all declaredTypes) add(file string, tree *ast.File) {
	imports := map[string]string{}
	for _, spec := range tree.Imports {
		importPath, _ := strconv.Unquote(spec.Path.Value)
		if dir, ours := internalDir(importPath); ours {
			name := path.Base(importPath)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			imports[name] = dir
		}
	}
	for _, decl := range tree.Decls {
		switch decl := decl.(type) {
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					d := all.at(path.Dir(file), spec.Name.Name)
					d.spec, d.imports, d.file = spec, imports, file
				}
			}
		case *ast.FuncDecl:
			if decl.Recv != nil {
				d := all.at(path.Dir(file), typeName(decl.Recv.List[0].Type))
				d.methods = append(d.methods, declaredMethod{decl.Name.Name, file, changesReceiver(decl)})
			}
		}
	}
}

func (all declaredTypes) at(dir, name string) *declaredType {
	key := dir + "." + name
	if all[key] == nil {
		all[key] = &declaredType{}
	}
	return all[key]
}

// typeName returns the name in T, *T, T[P] and pkg.T, or "" for other types.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok {
			return pkg.Name + "." + e.Sel.Name
		}
	}
	return ""
}

// changesReceiver reports whether a method changes something that is reached through
// its receiver.
func changesReceiver(f *ast.FuncDecl) (changes bool) {
	names := f.Recv.List[0].Names
	if _, pointer := f.Recv.List[0].Type.(*ast.StarExpr); !pointer || len(names) == 0 || f.Body == nil {
		return false
	}
	check := func(e ast.Expr) { changes = changes || reachedThrough(e, names[0].Name) }
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				check(left)
			}
		case *ast.IncDecStmt:
			check(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				check(n.X)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") {
				check(n.Args[0])
			}
		}
		return true
	})
	return changes
}

// reachedThrough reports whether e is a part of the receiver: r.a, r.a.b, r.a[i] or *r.
func reachedThrough(e ast.Expr, receiver string) bool {
	for {
		switch inner := e.(type) {
		case *ast.SelectorExpr:
			e = inner.X
		case *ast.IndexExpr:
			e = inner.X
		case *ast.ParenExpr:
			e = inner.X
		case *ast.StarExpr:
			e = inner.X
		case *ast.CompositeLit:
			return false
		default:
			id, ok := e.(*ast.Ident)
			return ok && id.Name == receiver
		}
	}
}

// extent is how large a type is.
type extent struct {
	types, methods, files map[string]bool
	fields                int
	changes               bool
}

func (all declaredTypes) extent(name string) extent {
	e := extent{types: map[string]bool{}, methods: map[string]bool{}, files: map[string]bool{}}
	all.measure(name, &e)
	return e
}

func (all declaredTypes) faults(name string) (faults []string) {
	e := all.extent(name)
	if n := len(e.methods); n > maxMethods {
		faults = append(faults, fmt.Sprintf("%d methods (at most %d)", n, maxMethods))
	}
	if n := len(e.files); n > maxFiles {
		faults = append(faults, fmt.Sprintf("%d files (at most %d): %s", n, maxFiles, strings.Join(slices.Sorted(maps.Keys(e.files)), " ")))
	}
	if e.changes && e.fields > maxFields {
		faults = append(faults, fmt.Sprintf("%d fields and methods that change it (at most %d)", e.fields, maxFields))
	}
	return faults
}

// measure adds a type and its embedded types to e.
func (all declaredTypes) measure(name string, e *extent) {
	d := all[name]
	if e.types[name] || d.spec == nil {
		return
	}
	e.types[name], e.files[d.file] = true, true
	for _, m := range d.methods {
		e.methods[m.name], e.files[m.file] = true, true
		e.changes = e.changes || m.changes
	}
	switch shape := d.spec.Type.(type) {
	case *ast.StructType:
		all.measureFields(shape, path.Dir(d.file), d.imports, e)
	case *ast.InterfaceType:
		for _, m := range shape.Methods.List {
			for _, id := range m.Names {
				e.methods[id.Name] = true
			}
			if embedded := all.embedded(m.Type, path.Dir(d.file), d.imports); len(m.Names) == 0 && embedded != "" {
				all.measure(embedded, e)
			}
		}
	}
}

func (all declaredTypes) measureFields(s *ast.StructType, dir string, imports map[string]string, e *extent) {
	for _, field := range s.Fields.List {
		if inner, ok := field.Type.(*ast.StructType); ok {
			all.measureFields(inner, dir, imports, e)
			continue
		}
		if len(field.Names) == 0 {
			embedded := all.embedded(field.Type, dir, imports)
			if embedded != "" {
				all.measure(embedded, e)
				if _, isStruct := all[embedded].spec.Type.(*ast.StructType); isStruct {
					continue
				}
			}
		}
		e.fields += max(1, len(field.Names))
		if isState(field.Type) {
			e.changes = true
		}
	}
}

// embedded returns the key of the module's type that a field without a name embeds,
// or "".
func (all declaredTypes) embedded(e ast.Expr, dir string, imports map[string]string) string {
	name := typeName(e)
	if pkg, typ, ok := strings.Cut(name, "."); ok {
		if imports[pkg] == "" {
			return ""
		}
		dir, name = imports[pkg], typ
	}
	if d := all[dir+"."+name]; d == nil || d.spec == nil {
		return ""
	}
	return dir + "." + name
}

// isState reports whether the type of a field exists to be changed.
func isState(e ast.Expr) bool {
	if _, pointer := e.(*ast.StarExpr); pointer {
		return false
	}
	pkg, _, _ := strings.Cut(typeName(e), ".")
	return pkg == "sync" || pkg == "atomic"
}

// TestExtent: the rule counts as its comment describes.
func TestExtent(t *testing.T) {
	const source = `package p

import (
	"sync"
	"github.com/servetrace/servetrace/q"
)

type plain struct{ a, b, c int }

func (p plain) Sum() int { p.a += p.b; return p.a }
func (p *plain) Text(a [3]int) { a[0] = p.a }

type state struct {
	plain
	at struct{ x, y int }
	n  []int
	_  func()
}

func (s *state) One() { s.at.x = 1 }

type (
	list    struct{ n []int }
	counter struct{ by map[string]int }
	guarded struct{ mu sync.Mutex }
	shared  struct{ mu *sync.Mutex }
	handed  struct{ n int }
	number  int
	generic[K any] struct{ *q.Other; k K }
	wide    interface{ narrow; B() }
	narrow  interface{ A() }
)

func (l *list) set() { l.n[0]++ }
func (c *counter) remove(k string) { delete(c.by, k) }
func (h *handed) at() *int { return &h.n }
func (n *number) add() { *n += 1 }
func (*generic[K]) Do() {}
`
	all := declaredTypes{}
	for name, text := range map[string]string{"p/p.go": source, "q/q.go": "package q\ntype Other struct{ a, b int }\n", "q/more.go": "package q\nfunc (o *Other) A() { o.a = 1 }"} {
		tree, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		all.add(name, tree)
	}
	for name, want := range map[string]string{
		"p.plain":   "2 methods, 1 files, 3 fields, changes: false",
		"p.state":   "3 methods, 1 files, 7 fields, changes: true",
		"p.list":    "1 methods, 1 files, 1 fields, changes: true",
		"p.counter": "1 methods, 1 files, 1 fields, changes: true",
		"p.guarded": "0 methods, 1 files, 1 fields, changes: true",
		"p.shared":  "0 methods, 1 files, 1 fields, changes: false",
		"p.handed":  "1 methods, 1 files, 1 fields, changes: true",
		"p.number":  "1 methods, 1 files, 0 fields, changes: true",
		"p.generic": "2 methods, 3 files, 3 fields, changes: true",
		"p.wide":    "2 methods, 1 files, 0 fields, changes: false",
	} {
		e := all.extent(name)
		got := fmt.Sprintf("%d methods, %d files, %d fields, changes: %v", len(e.methods), len(e.files), e.fields, e.changes)
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
