package supervise

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/servetrace/servetrace/test/testplugin"
)

// fakeBatch counts its references.
type fakeBatch struct {
	data []byte
	refs atomic.Int32
}

func (b *fakeBatch) Bytes() []byte { return b.data }
func (b *fakeBatch) Size() int64   { return int64(len(b.data)) }
func (b *fakeBatch) Retain()       { b.refs.Add(1) }
func (b *fakeBatch) Release()      { b.refs.Add(-1) }

func testKeeper(dir string) (*crashFiles, *testplugin.Log) {
	log := &testplugin.Log{}
	return newCrashFiles(&Settings{CrashDir: dir, QueueBytes: 32 << 20}, slog.New(slog.NewTextHandler(log, nil))), log
}

// keepAndWait keeps one report and waits until it is written, or is not.
func keepAndWait(t *testing.T, k *crashFiles, at time.Time) {
	t.Helper()
	if _, err := k.keepReport("p", at, 7, []byte("a crash\n")); err != nil {
		t.Error(err)
	}
	k.wait(t.Context())
}

func TestKeeperKeepsTheNewest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	k, _ := testKeeper(dir)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range mostReports + 5 {
		keepAndWait(t, k, start.Add(time.Duration(i)*time.Second))
	}
	// Half of the bound each, as another process of the service may have left.
	for i := range 3 {
		name := filepath.Join(dir, "p", fmt.Sprintf("batch-2026010%dT000000.000000Z-x-1.binpb", i+1))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, mostKeptBytes/2); err != nil {
			t.Fatal(err)
		}
	}
	keepAndWait(t, k, start.Add(time.Hour))
	reports, _ := filepath.Glob(filepath.Join(dir, "p", "crash-*"))
	batches, _ := filepath.Glob(filepath.Join(dir, "p", "batch-*"))
	if len(reports) != mostReports || !strings.HasSuffix(reports[len(reports)-1], "crash-20260102T040405.000000Z-7.txt") {
		t.Errorf("%d reports, want the newest %d: %v", len(reports), mostReports, reports)
	}
	if len(batches) != 2 || !strings.Contains(batches[0], "20260102T") {
		t.Errorf("batches %v, want the newest two", batches)
	}
}

// TestKeeperThatCanNotWrite: a failed write is logged once and counted, and the next
// success is logged.
func TestKeeperThatCanNotWrite(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string) (mend func()){
		"a file in its place": func(t *testing.T, dir string) func() {
			if err := os.WriteFile(dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(dir) }
		},
		"a link in its place": func(t *testing.T, dir string) func() {
			if err := os.MkdirAll(filepath.Join(dir, "elsewhere"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("elsewhere", filepath.Join(dir, "p")); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(filepath.Join(dir, "p")) }
		},
		"others may read": func(t *testing.T, dir string) func() {
			if err := os.MkdirAll(filepath.Join(dir, "p"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, "p"), 0o755); err != nil { //nolint:gosec // that is the fault
				t.Fatal(err)
			}
			return func() { _ = os.Chmod(filepath.Join(dir, "p"), 0o700) } //nolint:gosec // a folder
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "crashes")
			mend := spoil(t, dir)
			k, log := testKeeper(dir)
			for i := range 3 {
				keepAndWait(t, k, time.Unix(int64(i), 0))
			}
			if got := k.unkept("p"); got != 3 {
				t.Errorf("%d files counted as not kept, want 3", got)
			}
			mend()
			keepAndWait(t, k, time.Unix(9, 0))
			wantCounts(t, log.String(), map[string]int{"level=ERROR": 1, notKept: 1, "kept again": 1})
			if files, _ := filepath.Glob(filepath.Join(dir, "p", "*")); len(files) != 1 {
				t.Errorf("files %v, want one", files)
			}
		})
	}
}

// TestKeeperBehindADiskThatHangs: no caller waits, and memory stays bounded.
func TestKeeperBehindADiskThatHangs(t *testing.T) {
	k, _ := testKeeper(t.TempDir())
	hang := make(chan struct{})
	k.idle = hang // a worker that writes one file for ever
	told, kept := 0, 0
	for i := range 100 {
		path, err := k.keepBatch("p", time.Unix(int64(i), 0), "x-1", &fakeBatch{data: make([]byte, (768 << 10))})
		if err != nil {
			told++
		}
		if path != "" {
			kept++
		}
	}
	if most := int(k.most/(768<<10)) + 1; told != 1 || kept == 0 || kept > most || k.unkept("p") != uint64(100-kept) {
		t.Errorf("told %d times, %d batches wait, %d counted; want once, at most %d, and the rest", told, kept, k.unkept("p"), most)
	}
	close(hang)
}
