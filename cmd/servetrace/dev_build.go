package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// goBuild builds a package in Go, and watches the files that the build depends on.
type goBuild struct {
	folder string   // folder of the package
	file   string   // path of the executable to build
	more   []string // files to watch besides the code

	watched []string // folders and files to watch, which watch sets after each build
	seen    prints   // prints of the watched files at the beginning of the last build
}

// prints has the size and the time of the last change of each file, by path.
type prints map[string]filePrint

type filePrint struct {
	size     int64
	modified time.Time
}

// aside returns the path of a folder beside the built file, for the previous build and for a
// build in progress.
func (b *goBuild) aside() string { return filepath.Join(filepath.Dir(b.file), ".servetrace-dev") }

// before returns the path of the previous build. Its file has the name of the built file,
// because a plugin is named after its file.
func (b *goBuild) before() string { return filepath.Join(b.aside(), filepath.Base(b.file)) }

// run builds the package. The flag -w omits debugging data, which halves the time of the
// linker.
func (b *goBuild) run(ctx context.Context) error {
	b.seen = b.look()
	partial := b.before() + ".new"
	if text, err := b.command(ctx, "build", "-buildvcs=false", "-ldflags=-w", "-o", partial, "."); err != nil {
		return fmt.Errorf("the build has failed: %w\n%s", err, text)
	}
	return b.replace(partial)
}

// replace replaces the built file by a new build, and keeps the previous build. A single
// rename replaces the file, so that a service always finds a complete file.
func (b *goBuild) replace(partial string) error {
	_ = os.Remove(b.before())
	_ = os.Link(b.file, b.before()) // after a failure, plugin dev prints the whole output and no difference
	return os.Rename(partial, b.file)
}

// clean removes the folder with the previous build.
func (b *goBuild) clean() { _ = os.RemoveAll(b.aside()) }

// command runs the go command in the folder of the package, and returns its output.
func (b *goBuild) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.folder
	cmd.WaitDelay = time.Second
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	err := cmd.Run()
	return out.String() + failure.String(), err
}

// localPackages is a template for "go list". For each package that was not downloaded, it
// prints the folder, the embedded files, and go.mod and go.sum of the module.
const localPackages = `{{if not .Standard}}{{with .Module}}{{if or .Main (and .Replace (not .Replace.Version))}}{{$.Dir}}
{{range $.EmbedFiles}}{{$.Dir}}/{{.}}
{{end}}{{$module := .Dir}}{{with .Replace}}{{$module = .Dir}}{{end}}{{$module}}/go.mod
{{$module}}/go.sum
{{end}}{{end}}{{end}}`

// watch sets b.watched to the folders and files of the package and of all packages that it
// imports now. A file counts as unchanged if it was not watched at the last build.
func (b *goBuild) watch(ctx context.Context) {
	text, err := b.command(ctx, "list", "-deps", "-f", localPackages, ".")
	if err != nil {
		return // the code has errors, which the build has reported
	}
	before := b.watched
	b.watched = append(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }), append(b.more, b.folder)...)
	slices.Sort(b.watched)
	if b.watched = slices.Compact(b.watched); !slices.Equal(b.watched, before) {
		added := b.look()
		maps.Copy(added, b.seen)
		b.seen = added
	}
}

// look returns the prints of the watched files. In a watched folder it looks only at Go files
// that are no tests.
func (b *goBuild) look() prints {
	found := prints{}
	add := func(path string, info fs.FileInfo, err error) {
		if err == nil && info.Mode().IsRegular() {
			found[path] = filePrint{info.Size(), info.ModTime()}
		}
	}
	for _, path := range b.watched {
		entries, err := os.ReadDir(path)
		if err != nil { // the path is no folder
			info, err := os.Stat(path)
			add(path, info, err)
			continue
		}
		for _, entry := range entries {
			name := entry.Name()
			if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, ".") {
				info, err := entry.Info()
				add(filepath.Join(path, name), info, err)
			}
		}
	}
	return found
}

// lookPause is the time between two calls of look.
const lookPause = 200 * time.Millisecond

// awaitChange waits until watched files differ from the last build, and stay the same for
// lookPause, because an editor may still be writing. It returns the time of the first
// difference, or the error of ctx.
func (b *goBuild) awaitChange(ctx context.Context) (changed time.Time, err error) {
	b.watch(ctx)
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for before := b.seen; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return changed, ctx.Err()
		}
		now := b.look()
		if maps.Equal(now, b.seen) {
			before = b.seen
			continue
		}
		if !maps.Equal(now, before) {
			before = now
			if changed.IsZero() {
				changed = time.Now()
			}
			continue
		}
		return changed, nil
	}
}
