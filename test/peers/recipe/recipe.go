// Package recipe defines how each real peer is built, and its place.
//
//  1. All lists the recipes: a name, the files that define the peer, and the
//     commands that build it.
//  2. Key is a checksum of all of that, so that a peer whose definition changes is another
//     folder, and no test uses an old one.
//  3. Build runs the commands in a folder of its own and puts the result in place by one
//     rename, so that an interrupted build leaves nothing that looks like a peer.
//
// It starts no peer: package peer does. Command build of this module is
// `make peers`. Open recipes.go for the list, then this file.
package recipe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// EnvDir is the variable that names another folder of built peers than
// .tools/peers of the repository, so that several checkouts may share one.
const EnvDir = "SERVETRACE_PEERS"

// Recipe is how one peer is built.
type Recipe struct {
	// Name is the name of the peer and of its executable, if it has one.
	Name string
	// Files define the peer: paths relative to the folder of this module, with
	// wildcards as filepath.Glob has them, which the checksum covers and which
	// the commands may read.
	Files []string
	// Commands run one after another.
	Commands []Command
	// Needs are programs without which the peer is left out, with a notice.
	Needs []string
	// Optional: a peer that cannot be built is a notice, not a failure. Its
	// tests are skipped then.
	Optional bool
}

// Command is one program to run. In Dir and Args {module} stands for the folder
// of this module, {work} for an empty folder that is thrown away, {out} for the
// folder that becomes the peer's, and a first argument "go" for the go command
// that Build is given.
type Command struct {
	Dir  string
	Args []string
}

// Find gives the recipe of a name, and whether there is one.
func Find(name string) (Recipe, bool) {
	for _, r := range All() {
		if r.Name == name {
			return r, true
		}
	}
	return Recipe{}, false
}

// Dir is the folder of a built peer, whether it is there or not: KEY of the
// recipe in folder peers.
func Dir(module, peers, name string) (string, error) {
	r, known := Find(name)
	if !known {
		return "", fmt.Errorf("no peer %q", name)
	}
	key, err := r.Key(module)
	if err != nil {
		return "", err
	}
	return filepath.Join(peers, key), nil
}

// Peers returns the folder of the built peers: EnvDir, or else .tools/peers of the
// repository that module belongs to. A relative path is below the repository.
func Peers(module string, getenv func(string) string) string {
	repository := filepath.Dir(filepath.Dir(module))
	dir := getenv(EnvDir)
	if dir == "" {
		dir = filepath.Join(".tools", "peers")
	}
	if filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(repository, dir)
}

// Key is the name of the peer's folder: its own name and a checksum over the
// recipe and its files. It fails where a file cannot be read.
func (r Recipe) Key(module string) (string, error) {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(r); err != nil {
		return "", err
	}
	for _, pattern := range r.Files {
		names, err := filepath.Glob(filepath.Join(module, pattern))
		if err == nil && len(names) == 0 {
			err = fs.ErrNotExist
		}
		if err != nil {
			return "", fmt.Errorf("checksum of peer %s: %s: %w", r.Name, pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return "", fmt.Errorf("checksum of peer %s: %w", r.Name, err)
			}
			sum.Write(fmt.Appendf(nil, "%s %d\n%s", filepath.Base(name), len(text), text))
		}
	}
	return r.Name + "-" + hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// Missing lists the programs that the recipe needs and that PATH does not have.
func (r Recipe) Missing() []string {
	var missing []string
	for _, name := range r.Needs {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// Builder has the place and the tools for building peers.
type Builder struct {
	// Module is the folder of this module, Peers the one that peers lie in.
	Module, Peers string
	// Go is the go command.
	Go string
	// Output gets the output of the commands.
	Output io.Writer
	// Environ is the environment of the commands. Of the go command's variables, only
	// those for the proxy and the checksums are kept, and none that changes the result.
	Environ []string
}

// Build builds a peer unless it is there, and gives its folder and whether it
// has built it. A link of the peer's plain name leads there, for people. It
// blocks for minutes; the end of ctx stops it. Builds of the same peer at the
// same time are wasteful and safe.
func (b Builder) Build(ctx context.Context, r Recipe) (dir string, built bool, err error) {
	key, err := r.Key(b.Module)
	if err != nil {
		return "", false, err
	}
	dir = filepath.Join(b.Peers, key)
	if _, err := os.Stat(dir); err != nil {
		if built, err = b.build(ctx, r, dir); err != nil {
			return "", false, err
		}
	}
	return dir, built, link(key, filepath.Join(b.Peers, r.Name))
}

// link makes a symbolic link, in place of one that leads elsewhere.
func link(target, name string) error {
	if now, err := os.Readlink(name); err == nil && now == target {
		return nil
	}
	fresh := fmt.Sprintf("%s.%d", name, os.Getpid())
	if err := os.Symlink(target, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, name)
}

// build builds a peer in a folder beside dir and renames it to that.
func (b Builder) build(ctx context.Context, r Recipe, dir string) (built bool, err error) {
	if err := os.MkdirAll(b.Peers, 0o755); err != nil {
		return false, err
	}
	// Beside its place, so that the rename stays on one file system.
	scratch, err := os.MkdirTemp(b.Peers, "."+r.Name+"-building-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	work, out, temp := filepath.Join(scratch, "work"), filepath.Join(scratch, "out"), filepath.Join(scratch, "temp")
	for _, d := range []string{work, out, temp} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return false, err
		}
	}
	for _, c := range r.Commands {
		if err := b.run(ctx, c, work, out, temp); err != nil {
			return false, fmt.Errorf("build peer %s: %w", r.Name, err)
		}
	}
	if err := os.Rename(out, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return false, nil // another process was faster
		}
		return false, err
	}
	return true, nil
}

func (b Builder) run(ctx context.Context, c Command, work, out, temp string) error {
	fill := strings.NewReplacer("{module}", b.Module, "{work}", work, "{out}", out)
	args := make([]string, len(c.Args))
	for i, arg := range c.Args {
		args[i] = fill.Replace(arg)
	}
	if args[0] == "go" {
		args[0] = b.Go
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = fill.Replace(c.Dir)
	// An empty GOFLAGS would have the value of `go env -w`. The Collector's builder
	// leaves a folder among the temporary files.
	cmd.Env = append(environ(b.Environ), "GOBIN="+out, "TMPDIR="+temp, "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false", "PWD="+cmd.Dir)
	cmd.Stdout, cmd.Stderr = b.Output, b.Output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// environ removes variables that would change the result, such as those for another
// platform.
func environ(all []string) []string {
	var kept []string
	for _, v := range all {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "GOOS", "GOARCH", "GOEXPERIMENT", "GO111MODULE", "GOBIN", "GOFLAGS", "GOWORK", "CGO_ENABLED", "PWD":
		default:
			kept = append(kept, v)
		}
	}
	return kept
}
