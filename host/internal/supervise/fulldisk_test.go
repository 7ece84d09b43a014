package supervise

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/test/testplugin"
)

// TestDiskThatIsFull: a process writes reports and batches to a full disk. No
// half-written file stays, a lost file is counted and logged once, no batch keeps its
// memory, and files are kept again when there is room.
func TestDiskThatIsFull(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envFullDisk+"="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v, output %s", err, out)
	}
	want := `full: 2 not kept, 0 files, 0 references left, told 1 times
mended: 2 not kept, 2 files, 0 references left, told 1 times
again: 1 times
`
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// envFullDisk has the folder, for that process.
const envFullDisk = "SERVETRACE_TEST_FULL_DISK"

// fillDisk is that process.
func fillDisk() {
	ossignal.Ignore(syscall.SIGXFSZ) // the write fails instead
	var room syscall.Rlimit
	must(syscall.Getrlimit(syscall.RLIMIT_FSIZE, &room))
	must(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 4 << 10, Max: room.Max}))
	dir, log := os.Getenv(envFullDisk), &testplugin.Log{}
	k := newCrashFiles(&Settings{CrashDir: dir, QueueBytes: 32 << 20}, slog.New(slog.NewTextHandler(log, nil)))
	keep := func(what string, at int64) {
		_, err := k.keepReport("p", time.Unix(at, 0), 7, make([]byte, 100<<10))
		must(err)
		b := &fakeBatch{data: make([]byte, 100<<10)}
		_, err = k.keepBatch("p", time.Unix(at, 0), "x-1", b)
		must(err)
		k.wait(context.Background())
		files, err := filepath.Glob(filepath.Join(dir, "p", "*"))
		must(err)
		fmt.Printf("%s: %d not kept, %d files, %d references left, told %d times\n", what, k.unkept("p"),
			len(files), b.refs.Load(), strings.Count(log.String(), "file too large"))
	}
	keep("full", 1)
	must(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &room))
	keep("mended", 2)
	fmt.Printf("again: %d times\n", strings.Count(log.String(), "kept again"))
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
