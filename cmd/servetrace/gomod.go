package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

const ownModule = "github.com/servetrace/servetrace"

const (
	// goRelease is the oldest Go release that can build servetrace, as in its go.mod.
	goRelease = "1.26.0"
	// noVersion is the version that the go command writes for a replaced module.
	noVersion = "v0.0.0-00010101000000-000000000000"
)

// base is the servetrace module that a new module requires: a release, or a clone.
type base struct {
	version string // version in the require line
	goLine  string // version of Go in the go line
	// replace is the absolute path of the clone. Empty for a release. With the clone's
	// requires and goSum, the new module can be built without "go mod tidy".
	replace  string
	requires []*modfile.Require
	goSum    []byte
}

// base returns the servetrace module to require: the clone of --replace, or else the release
// of this command, or else the clone that has this command or the working folder.
func (s scaffold) base(info *debug.BuildInfo) (base, error) {
	if s.Replace != "" {
		b, err := readClone(s.Replace)
		if err != nil {
			return base{}, usagef("--replace %s: %w", s.Replace, err)
		}
		return b, nil
	}
	version, ok := released(info)
	if ok {
		return base{version: version, goLine: goRelease}, nil
	}
	for _, dir := range s.clones() {
		if b, err := readClone(dir); err == nil {
			return b, nil
		}
	}
	return base{}, usagef("this servetrace was built from a clone (version %s), which go.mod cannot require, and neither "+
		"it nor the working folder lies in one: name the clone with --replace DIR, or use a servetrace of a release", version)
}

// clones returns the working folder, the folder of this binary, and all folders above them.
// One of these folders may be a clone.
func (s scaffold) clones() []string {
	var dirs []string
	above := func(dir string) {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	if exe, err := os.Executable(); err == nil {
		above(filepath.Dir(exe))
	}
	if wd, err := os.Getwd(); err == nil {
		above(wd)
	}
	return dirs
}

// pseudoVersion matches a version that the go command has made of a commit without a tag.
var pseudoVersion = regexp.MustCompile(`[-.]\d{14}-[0-9a-f]{12}$`)

// released returns the version of this binary. ok reports whether a module of this version
// can be downloaded. It can if "go install" has built the binary, or if the binary was built
// from a tagged commit without changes.
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

// readClone returns the clone of servetrace in a folder.
func readClone(dir string) (base, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return base{}, err
	}
	data, err := os.ReadFile(filepath.Join(abs, "go.mod"))
	if err != nil {
		return base{}, fmt.Errorf("no clone of servetrace: %w", err)
	}
	mod, err := modfile.Parse(filepath.Join(abs, "go.mod"), data, nil)
	if err != nil {
		return base{}, fmt.Errorf("no clone of servetrace: %w", err)
	}
	if path := modfile.ModulePath(data); path != ownModule {
		return base{}, fmt.Errorf("its go.mod is of module %q, not of %s", path, ownModule)
	}
	b := base{version: noVersion, goLine: goRelease, replace: abs, requires: mod.Require}
	if mod.Go != nil {
		b.goLine = mod.Go.Version
	}
	if b.goSum, err = os.ReadFile(filepath.Join(abs, "go.sum")); err != nil {
		return base{}, fmt.Errorf("no clone of servetrace: %w", err)
	}
	return b, nil
}

// goMod returns the go.mod of a new module with the path path. imports are the packages that
// its code imports.
func (b base) goMod(path string, imports []string) ([]byte, error) {
	var mod modfile.File
	needed := []*modfile.Require{{Mod: module.Version{Path: ownModule, Version: b.version}}}
	for _, r := range b.requires {
		direct := slices.ContainsFunc(imports, func(i string) bool { return i == r.Mod.Path || strings.HasPrefix(i, r.Mod.Path+"/") })
		needed = append(needed, &modfile.Require{Mod: r.Mod, Indirect: !direct})
	}
	errs := []error{mod.AddModuleStmt(path), mod.AddGoStmt(b.goLine)}
	mod.SetRequireSeparateIndirect(needed)
	if b.replace != "" {
		errs = append(errs, mod.AddReplace(ownModule, "", b.replace, ""))
	}
	mod.Cleanup()
	mod.SortBlocks()
	text, err := mod.Format()
	return text, errors.Join(append(errs, err)...)
}
