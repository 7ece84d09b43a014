package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// ownModule is the module of this command.
const ownModule = "github.com/servetrace/servetrace"

const (
	// goRelease is the least Go release that servetrace builds with, as in its
	// go.mod.
	goRelease = "1.26.0"
	// noVersion is how the go command writes a module that is replaced and has
	// no version.
	noVersion = "v0.0.0-00010101000000-000000000000"
)

// base is the servetrace that a new module is built on: a version, or a clone.
type base struct {
	version string
	goLine  string
	// replace is a clone's absolute path; requires and goSum are then what it
	// needs, and so enough to build on it.
	replace  string
	requires []requirement
	goSum    []byte
}

// requirement is one line of a go.mod.
type requirement struct{ path, version string }

// complete tells whether the module can be built as it is, without
// "go mod tidy".
func (b base) complete() bool { return b.replace != "" }

// base finds out what the module is built on.
func (s scaffold) base(info *debug.BuildInfo) (base, error) {
	if s.Replace != "" {
		return readClone(s.Replace)
	}
	version, ok := released(info)
	if !ok {
		return base{}, usagef("this servetrace was built from a clone (version %s), which go.mod cannot require: "+
			"name the clone with --replace DIR, or use a servetrace of a release", version)
	}
	return base{version: version, goLine: goRelease}, nil
}

// pseudoVersion is a version made of a commit instead of a tag.
var pseudoVersion = regexp.MustCompile(`[-.]\d{14}-[0-9a-f]{12}$`)

// released gives the version of this binary, and whether the module can be
// downloaded by it: what "go install" has downloaded can, and so can a clean
// build of a tagged commit.
func released(info *debug.BuildInfo) (version string, ok bool) {
	if info == nil || info.Main.Path != ownModule || info.Main.Version == "" {
		return "unknown", false
	}
	version = info.Main.Version
	fromClone := slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs" })
	switch {
	case version == "(devel)", strings.Contains(version, "+dirty"):
		return version, false
	case fromClone && pseudoVersion.MatchString(version):
		return version, false
	}
	return version, true
}

// readClone reads what a clone of servetrace needs.
func readClone(dir string) (base, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return base{}, usageError{err}
	}
	goMod, err := os.ReadFile(filepath.Join(abs, "go.mod"))
	if err != nil {
		return base{}, usagef("--replace %s: no clone of servetrace: %w", dir, err)
	}
	b := base{version: noVersion, goLine: goRelease, replace: abs}
	path := b.read(goMod)
	if path != ownModule {
		return base{}, usagef("--replace %s: its go.mod is that of %q, not of %s", dir, path, ownModule)
	}
	if b.goSum, err = os.ReadFile(filepath.Join(abs, "go.sum")); err != nil {
		return base{}, usagef("--replace %s: no clone of servetrace: %w", dir, err)
	}
	return b, nil
}

// read takes the go line and the requirements of a go.mod and gives the path of
// its module. The form is the one that the go command writes.
func (b *base) read(goMod []byte) (modulePath string) {
	inRequire := false
	for line := range strings.Lines(string(goMod)) {
		line, _, _ = strings.Cut(line, "//")
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "module":
			modulePath = words[1]
		case len(words) == 2 && words[0] == "go":
			b.goLine = words[1]
		case len(words) == 2 && words[0] == "require" && words[1] == "(":
			inRequire = true
		case len(words) == 1 && words[0] == ")":
			inRequire = false
		case len(words) == 2 && inRequire:
			b.requires = append(b.requires, requirement{words[0], words[1]})
		case len(words) == 3 && words[0] == "require":
			b.requires = append(b.requires, requirement{words[1], words[2]})
		}
	}
	return modulePath
}

// goMod is the go.mod of a module with these imports.
func (b base) goMod(module string, imports []string) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "module %s\n\ngo %s\n\nrequire (\n", module, b.goLine)
	needed := slices.Concat(b.requires, []requirement{{ownModule, b.version}})
	slices.SortFunc(needed, func(a, b requirement) int { return strings.Compare(a.path, b.path) })
	var indirect bytes.Buffer
	for _, r := range needed {
		if slices.ContainsFunc(imports, func(path string) bool { return path == r.path || strings.HasPrefix(path, r.path+"/") }) {
			fmt.Fprintf(&text, "\t%s %s\n", r.path, r.version)
		} else {
			fmt.Fprintf(&indirect, "\t%s %s // indirect\n", r.path, r.version)
		}
	}
	text.WriteString(")\n")
	if indirect.Len() > 0 {
		fmt.Fprintf(&text, "\nrequire (\n%s)\n", indirect.String())
	}
	if b.replace != "" {
		fmt.Fprintf(&text, "\nreplace %s => %s\n", ownModule, modWord(b.replace))
	}
	return text.Bytes()
}

// modWord is a path as go.mod takes it.
func modWord(path string) string {
	if strings.ContainsAny(path, " \t\"'`()[]{},;") || strings.Contains(path, "//") {
		return strconv.Quote(path)
	}
	return path
}
