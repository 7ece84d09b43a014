// Command size counts the product's lines of Go: lines that are neither blank nor
// comment. It leaves out tests, generated code, testdata, and the folders bench,
// test and examples.
//
//	size [-most N] [FOLDER]
//
// It prints a line for each package, the largest first, then the sum and the share
// of comments. With -most it exits with status 1 if the sum is larger than N.
//
// Open main.go first; there is no other file.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// count is of one package, or of all.
type count struct {
	dir           string
	code, comment int // lines
}

func main() {
	most := flag.Int("most", 0, "exit with status 1 if there are more lines of code; 0: no limit")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	packages, err := measure(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
	var sum count
	for _, p := range packages {
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

// measure counts the packages below root, the largest first.
func measure(root string) ([]count, error) {
	found := map[string]*count{}
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
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		code, comment, generated := lines(source)
		if generated {
			return nil
		}
		dir := filepath.Dir(rel)
		if found[dir] == nil {
			found[dir] = &count{dir: dir}
		}
		found[dir].code += code
		found[dir].comment += comment
		return nil
	})
	if err != nil {
		return nil, err
	}
	var list []count
	for _, c := range found {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b count) int {
		if a.code != b.code {
			return b.code - a.code
		}
		return strings.Compare(a.dir, b.dir)
	})
	return list, nil
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
func lines(source []byte) (code, comment int, generated bool) {
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
			generated = generated || bytes.HasPrefix([]byte(text), []byte("// Code generated "))
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
	return len(withCode), comment, generated
}
