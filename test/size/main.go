// Command size counts the product's lines of Go: lines that are neither blank nor
// comment. It leaves out tests, generated code, testdata, and the folders bench,
// test and examples.
//
//	size [-most N] [-draw N -seed TEXT] [FOLDER]
//
// It prints a line for each package, the largest first, then the sum and the share
// of comments. With -most it exits with status 1 if the sum is larger than N. With
// -draw it prints N comments instead, each with the code below, for a reader who
// judges whether they are clear.
//
// Open main.go first; draw.go has the draw.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// count has the lines of one package, or of all packages together.
type count struct {
	dir           string
	code, comment int // lines
}

func main() {
	most := flag.Int("most", 0, "exit with status 1 if there are more lines of code; 0: no limit")
	draw := flag.Int("draw", 0, "print this number of comments, drawn at random, instead of the lines")
	seed := flag.String("seed", "", "text that decides the draw, such as the hash of a commit")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	files, err := sources(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
	if *draw > 0 {
		for _, c := range drawComments(files, *draw, *seed) {
			_, _ = fmt.Fprintln(os.Stdout, c)
		}
		return
	}
	var sum count
	for _, p := range measure(files) {
		_, _ = fmt.Fprintf(os.Stdout, "%7d  %s\n", p.code, p.dir)
		sum.code += p.code
		sum.comment += p.comment
	}
	_, _ = fmt.Fprintf(os.Stdout, "%7d  total lines of code; %.1f %% of %d lines with code or comment are comments\n",
		sum.code, 100*float64(sum.comment)/float64(max(1, sum.code+sum.comment)), sum.code+sum.comment)
	if *most > 0 && sum.code > *most {
		fmt.Fprintf(os.Stderr, "size: %d lines of code, more than %d\n", sum.code, *most)
		os.Exit(1)
	}
}

// source is a Go file of the product.
type source struct {
	path string // relative to the root, with slashes
	text []byte
}

// sources reads the product's Go files below root, in the order of their paths.
func sources(root string) ([]source, error) {
	var files []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if leftOut(rel) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !generated.Match(text) {
			files = append(files, source{filepath.ToSlash(rel), text})
		}
		return nil
	})
	return files, err
}

// generated matches the line that the Go project prescribes for generated files.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// measure counts the lines of each package, the largest package first.
func measure(files []source) []count {
	found := map[string]*count{}
	for _, f := range files {
		dir := path.Dir(f.path)
		if found[dir] == nil {
			found[dir] = &count{dir: dir}
		}
		code, comment := lines(f.text)
		found[dir].code += code
		found[dir].comment += comment
	}
	var list []count
	for _, c := range found {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b count) int {
		return cmp.Or(b.code-a.code, strings.Compare(a.dir, b.dir))
	})
	return list
}

// leftOut reports whether a folder, relative to the root, is not of the product.
func leftOut(rel string) bool {
	switch rel {
	case ".":
		return false
	case "bench", "test", "examples", "bin":
		return true
	}
	base := filepath.Base(rel)
	return base == "testdata" || strings.HasPrefix(base, ".")
}

// lines counts the lines of a Go file that have code, and those that have a
// comment alone. A line with both counts as code.
func lines(source []byte) (code, comment int) {
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	withCode, withComment := map[int]bool{}, map[int]bool{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue // the scanner's own
		}
		on := withCode
		if tok == token.COMMENT {
			on = withComment
		}
		first := file.Line(pos)
		for n, line := range strings.Split(text, "\n") {
			if n == 0 || strings.TrimSpace(line) != "" {
				on[first+n] = true
			}
		}
	}
	for line := range withComment {
		if !withCode[line] {
			comment++
		}
	}
	return len(withCode), comment
}
