package peer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/servetrace/servetrace/test/peers/recipe"
)

// modulePath is the path in the go.mod of this module.
const modulePath = "github.com/servetrace/servetrace/test/peers"

// moduleDir finds the folder of this module's go.mod, upwards from the test's.
func moduleDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatalf("find the module: %v", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			tb.Fatalf("find the module %s: no go.mod above the test", modulePath)
		}
		dir = filepath.Dir(dir)
	}
}

// builtDir gives the folder of a built peer, or ends the test: where CI is
// true and the peer is not an optional one it fails, elsewhere it is skipped.
func builtDir(tb testing.TB, name string) string {
	tb.Helper()
	module := moduleDir(tb)
	dir, err := recipe.Dir(module, recipe.Peers(module, os.Getenv), name) //nolint:forbidigo // a process is put together
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		missing(tb, name)
	} else if err != nil {
		tb.Fatal(err)
	}
	return dir
}

func missing(tb testing.TB, name string) {
	tb.Helper()
	r, _ := recipe.Find(name)
	if os.Getenv("CI") == "true" && !r.Optional && len(r.Missing()) == 0 { //nolint:forbidigo // a process is put together
		tb.Fatalf("the peer %s is not built, and CI=true demands it: make peers", name)
	}
	tb.Skipf("the peer %s is not built: make peers", name)
}

// Plugin gives the path of bin/plugins/NAME of the repository, which `make
// test-peers` builds before the tests. It ends the test where it is not there.
func Plugin(tb testing.TB, name string) string {
	tb.Helper()
	return Command(tb, "plugins/"+name)
}

// Command gives the path of bin/NAME of the repository, an example say, which
// `make test-peers` builds before the tests. It ends the test where it is not
// there.
func Command(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(moduleDir(tb), "..", "..", "bin", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("%s is not built: make build (%v)", name, err)
	}
	return path
}
