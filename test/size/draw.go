package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
)

const (
	largePackage = 1000 // lines of code from which a package has a share in each draw
	fromEach     = 3    // comments from each large package
	linesBelow   = 10   // lines of the file that follow a comment
)

// drawComments draws n comments at random, three of them from each package of more
// than 1,000 lines, and returns each with its place and the ten lines that follow. The
// same files and the same seed give the same comments.
func drawComments(files []source, n int, seed string) []string {
	hash := fnv.New64a()
	hash.Write([]byte(seed))
	random := rand.New(rand.NewPCG(hash.Sum64(), 0)) //nolint:gosec // must be repeatable
	shuffle := func(list []string) {
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}

	byPackage := map[string][]string{}
	for _, f := range files {
		dir := path.Dir(f.path)
		byPackage[dir] = append(byPackage[dir], commentsOf(f)...)
	}
	var drawn, others []string
	for _, p := range measure(files) {
		all := byPackage[p.dir]
		shuffle(all)
		share := 0
		if p.code > largePackage {
			share = min(fromEach, len(all))
		}
		drawn, others = append(drawn, all[:share]...), append(others, all[share:]...)
	}
	shuffle(others)
	drawn = append(drawn, others[:min(len(others), max(0, n-len(drawn)))]...)
	slices.Sort(drawn)
	return drawn
}

// commentsOf returns each comment of a file with its place and the lines from its first
// to ten below its last. Directives to tools are no comments.
func commentsOf(f source) []string {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, f.path, f.text, parser.ParseComments)
	if err != nil {
		return nil // go vet reports it
	}
	text := strings.Split(string(f.text), "\n")
	var list []string
	for _, group := range file.Comments {
		if !hasProse(group) {
			continue
		}
		first, last := set.Position(group.Pos()).Line, set.Position(group.End()).Line
		list = append(list, fmt.Sprintf("%s:%d\n\t%s\n", f.path, first,
			strings.Join(text[first-1:min(len(text), last+linesBelow)], "\n\t")))
	}
	return list
}

// hasProse reports whether a comment has a line that is not a directive such as
// //go:build or //nolint.
func hasProse(group *ast.CommentGroup) bool {
	return strings.TrimSpace(group.Text()) != ""
}
