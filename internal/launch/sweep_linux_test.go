package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/servetrace/servetrace/test/testplugin"
)

// privateFolder is the folder of a plugin that a host has made in base, when
// only one is there that is not in known.
func privateFolder(t *testing.T, base string, known ...string) string {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(base, "servetrace-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if !strings.Contains(strings.Join(known, "\n"), folder) {
			return folder
		}
	}
	t.Fatalf("no folder in %s but %q", base, known)
	return ""
}

// A plugin that heeds neither SIGTERM nor the end of its input outlives a host
// that is killed; the next host ends it.
func TestHazard01SweepRemovesWhatADeadHostHasLeft(t *testing.T) {
	base := testplugin.SocketFolder(t)
	dead := startHost(t, base, testplugin.Install(t, "immortal"))
	deads := privateFolder(t, base)
	living := startHost(t, base, testplugin.Install(t, "record"))
	livings := privateFolder(t, base, deads)
	cmd, _ := command(t, "record")
	cmd.SocketDirs = []string{base}
	own := start(t, cmd)
	dead.kill()

	log := &testplugin.Log{}
	Sweep(t.Context(), []string{base}, textLog(log))
	gone(t, "the dead host's plugin", dead.pids[0])
	if _, err := os.Stat(deads); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead host's folder is there: %v", err)
	}
	// Other hosts may have left something in /tmp: more than one is swept then.
	if got := log.String(); !strings.Contains(got, "removed folders and processes of plugins of killed hosts") ||
		strings.Contains(got, "processes=0") || !strings.Contains(got, "error=<nil>") {
		t.Errorf("the log does not say what was removed:\n%s", got)
	}
	if _, err := os.Stat(livings); err != nil || testplugin.Gone(living.pids[0]) {
		t.Errorf("a living host has lost its folder (%v) or its plugin", err)
	}
	if _, err := healthpb.NewHealthClient(own.Conn()).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "plugin"}); err != nil {
		t.Errorf("the plugin of the host that sweeps: %v", err)
	}
	if !strings.HasPrefix(privateFolder(t, base, livings), base) {
		t.Error("the folder of the host that sweeps is gone")
	}
}

// A host that stops at once leaves the work to the next.
func TestSweepEndsWithItsContext(t *testing.T) {
	base := testplugin.SocketFolder(t)
	dead := startHost(t, base, testplugin.Install(t, "immortal"))
	folder := privateFolder(t, base)
	dead.kill()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Sweep(ctx, []string{base}, textLog(&testplugin.Log{}))
	if _, err := os.Stat(folder); err != nil || testplugin.Gone(dead.pids[0]) {
		t.Errorf("folder or plugin are gone: %v", err)
	}
	Sweep(t.Context(), []string{base}, textLog(&testplugin.Log{}))
	gone(t, "the dead host's plugin", dead.pids[0])
	if !isEmptyFolder(t, base) {
		t.Error("the folder is there after the second sweep")
	}
}

// A cleaner of temporary folders may empty the folder of a running plugin. Its host then
// does not count as dead.
func TestSweepOfAFolderThatWasEmptied(t *testing.T) {
	base := testplugin.SocketFolder(t)
	living := startHost(t, base, testplugin.Install(t, "record"))
	folder := privateFolder(t, base)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	Sweep(t.Context(), []string{base}, textLog(&testplugin.Log{}))
	if !isEmptyFolder(t, base) {
		t.Error("the empty folder is there")
	}
	if testplugin.Gone(living.pids[0]) {
		t.Error("the plugin of a living host is gone")
	}
}

func TestSweepLeavesAlone(t *testing.T) {
	mkdir := func(name string, mode os.FileMode, lock bool, files ...string) func(*testing.T, string) {
		return func(t *testing.T, base string) {
			dir := filepath.Join(base, name)
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
				t.Fatal(err)
			}
			if lock {
				files = append(files, "host.lock")
			}
			for _, file := range files {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	old := func(name string) func(*testing.T, string) {
		return func(t *testing.T, base string) {
			mkdir(name, 0o700, false, "plugin.sock")(t, base)
			then := time.Now().Add(-sweepAge - time.Minute)
			if err := os.Chtimes(filepath.Join(base, name), then, then); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name, folder string
		prepare      func(*testing.T, string)
		swept        bool
	}{
		{"a dead host's", "servetrace-4194999-123", mkdir("servetrace-4194999-123", 0o700, true, "socket"), true},
		{"a dead host's that got no further", "servetrace-4194999-123", mkdir("servetrace-4194999-123", 0o700, false), true},
		{"a name of a user's own", "servetrace-notes", mkdir("servetrace-notes", 0o700, true), false},
		{"a name that goes on", "servetrace-1-2-old", mkdir("servetrace-1-2-old", 0o700, true), false},
		{"open to others", "servetrace-4194999-123", mkdir("servetrace-4194999-123", 0o755, true), false},
		{"without a lock, with something in it", "servetrace-4194999-123", mkdir("servetrace-4194999-123", 0o700, false, "notes"), false},
		{"the same, of old", "servetrace-4194999-123", old("servetrace-4194999-123"), true},
		{"the same, of a process that lives", fmt.Sprintf("servetrace-%d-123", os.Getpid()), old(fmt.Sprintf("servetrace-%d-123", os.Getpid())), false},
		{"the same, that a process carries", "servetrace-4194999-123", func(t *testing.T, base string) {
			old("servetrace-4194999-123")(t, base)
			cmd := exec.Command("sleep", "600")
			cmd.Env = []string{"PLUGIN_UNIX_SOCKET_DIR=" + filepath.Join(base, "servetrace-4194999-123")}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		}, false},
		{"a file", "servetrace-4194999-123", func(t *testing.T, base string) {
			if err := os.WriteFile(filepath.Join(base, "servetrace-4194999-123"), nil, 0o700); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a link", "servetrace-4194999-123", func(t *testing.T, base string) {
			mkdir("elsewhere", 0o700, true)(t, base)
			if err := os.Symlink("elsewhere", filepath.Join(base, "servetrace-4194999-123")); err != nil {
				t.Fatal(err)
			}
		}, false},
		// As seen from another container: no process here has this number.
		{"a living host's whose number is nobody's", "servetrace-4194999-123", func(t *testing.T, base string) {
			mkdir("servetrace-4194999-123", 0o700, false)(t, base)
			held, err := openLocked(filepath.Join(base, "servetrace-4194999-123"), os.O_CREATE|os.O_EXCL)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = held.Close() })
		}, false},
		{"another user's", "servetrace-4194999-123", func(t *testing.T, base string) {
			mkdir("servetrace-4194999-123", 0o700, true)(t, base)
			if err := os.Chown(filepath.Join(base, "servetrace-4194999-123"), 65534, 65534); err != nil {
				t.Skipf("give the folder away: %v", err)
			}
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := testplugin.SocketFolder(t)
			test.prepare(t, base)
			Sweep(t.Context(), []string{base}, textLog(&testplugin.Log{}))
			_, err := os.Lstat(filepath.Join(base, test.folder))
			if swept := errors.Is(err, os.ErrNotExist); swept != test.swept {
				t.Errorf("swept %v (%v), want %v", swept, err, test.swept)
			}
		})
	}
}

// A new folder has no lock for a moment: its maker must notice if it was swept meanwhile.
func TestSweepAndNewFolderConcurrentSafe(t *testing.T) {
	base := testplugin.SocketFolder(t)
	done := make(chan struct{})
	var sweeping, making sync.WaitGroup
	for range 2 {
		sweeping.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					Sweep(t.Context(), []string{base}, textLog(&testplugin.Log{}))
				}
			}
		})
	}
	for range 4 {
		making.Go(func() {
			for range 100 {
				f, err := newFolderIn(base)
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(f.Path, "socket"), nil, 0o600); err != nil {
					t.Errorf("a folder that was just made: %v", err)
				}
				f.Remove()
			}
		})
	}
	making.Wait()
	close(done)
	sweeping.Wait()
	Sweep(t.Context(), []string{base}, textLog(&testplugin.Log{}))
	if !isEmptyFolder(t, base) {
		entries, err := os.ReadDir(base)
		t.Errorf("left: %v", fmt.Sprint(entries, err))
	}
}
