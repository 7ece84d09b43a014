package host_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/total"
	"github.com/servetrace/servetrace/test/testplugin"
)

// heapInUse is the heap after all that can be freed is.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // objects that finalizers of the first cycle had held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// roomOfCycles is how many more bytes may be in use after any number of cycles, because
// the runtime keeps a varying amount.
const roomOfCycles = 2 << 20

// envCycles set to "full" asks for all cycles of the tests that call cyclesOf. They take
// minutes under the race detector. "make chaos" sets it.
const envCycles = "SERVETRACE_TEST_CYCLES"

// cyclesOf returns the full number of cycles, or a tenth of it.
func cyclesOf(t *testing.T, full int) int {
	switch text := os.Getenv(envCycles); text {
	case "full":
		return full
	case "":
		return full / 10
	default:
		t.Fatalf("%s=%q: want full, or nothing", envCycles, text)
		return 0
	}
}

// TestCyclesLeakNothing crashes and starts a plugin 100,000 times in fake time,
// with a batch in each life, answered or not: months with the breaker open.
func TestCyclesLeakNothing(t *testing.T) {
	cycles, warm := cyclesOf(t, 100_000), 1000
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int64
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			starts.Store(int64(n))
			if n%7 == 0 {
				return nil, &launch.Error{Reason: launch.ReasonNotPlugin}
			}
			var plugin *fakePlugin
			plugin = newFakePlugin(func(_ context.Context, _ int) error {
				defer plugin.Kill("test")
				if n%2 == 0 {
					return status.Error(codes.Unavailable, "connection broken")
				}
				return nil
			})
			time.AfterFunc(10*time.Second, func() { plugin.Kill("test") }) // where it gets no batch
			return plugin, nil
		}, func(c *host.Config) { c.MaxAge = time.Hour })
		spans := 0
		until := func(n int) {
			for int(starts.Load()) < n {
				endSpans(h, 1)
				spans++
				time.Sleep(2 * pauseOfBroken)
			}
		}
		until(warm)
		goroutines, heap := runtime.NumGoroutine(), heapInUse()
		until(cycles)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		stats := h.Stats()
		x := stats.Exporters[0]
		if err := stats.Check(); err != nil || stats.Ended != uint64(spans) || stats.Bytes != 0 {
			t.Errorf("%d spans ended, %d in the accounting, %d bytes in use: %v", spans, stats.Ended, stats.Bytes, err)
		}
		if x.Crashes < uint64(cycles)/2 || x.Delivered+total.Of(x.Dropped) != stats.Accepted {
			t.Errorf("%d crashes in %d cycles, %d delivered and %v dropped of %d", x.Crashes, cycles, x.Delivered, x.Dropped, stats.Accepted)
		}
		if got := runtime.NumGoroutine(); got > goroutines+5 {
			t.Errorf("%d goroutines, after %d cycles there were %d", got, warm, goroutines)
		}
		if got := heapInUse(); got > heap+roomOfCycles {
			t.Errorf("%d bytes of heap in use, after %d cycles there were %d", got, warm, heap)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// footprint counts resources of a process.
type footprint struct{ descriptors, threads, goroutines int }

func footprintOfSelf(t *testing.T) footprint {
	t.Helper()
	count := func(dir string) int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Skipf("no /proc: %v", err)
		}
		return len(entries)
	}
	return footprint{count("/proc/self/fd"), count("/proc/self/task"), runtime.NumGoroutine()}
}

// within reports whether f is at most before, except for threads that the runtime keeps.
func (f footprint) within(before footprint) bool {
	return f.descriptors <= before.descriptors && f.goroutines <= before.goroutines && f.threads <= before.threads+8
}

// TestRealCyclesLeaveNothing kills and starts real processes, in several ways,
// over the breaker, which a Reload resets.
func TestRealCyclesLeaveNothing(t *testing.T) {
	cycles := cyclesOf(t, 200)
	sockets := testplugin.SocketFolder(t)
	path := testplugin.Install(t, "record")
	r := startHost(t, func(c *host.Config) { c.Environ = append(c.Environ, "XDG_RUNTIME_DIR="+sockets) }, path)
	ready := func(after uint64) int {
		var pid int
		testplugin.WaitFor(t, "another process", func() bool {
			x := r.Stats().Exporters[0]
			pid = x.PID
			return x.State == host.StateReady && x.Starts > after
		})
		return pid
	}
	ready(0)
	r.spans("first", 1)
	r.flush()
	before, heap := footprintOfSelf(t), heapInUse()
	var pids []int
	for n := range cycles {
		t.Logf("cycle %d of %d", n, cycles) // for make chaos
		started := r.Stats().Exporters[0].Starts
		pid := ready(started - 1)
		pids = append(pids, pid)
		r.spans(strconv.Itoa(n), 1)
		r.flush() // or it would be alone in flight at two crashes one day
		if err := syscall.Kill(pid, []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT}[n%3]); err != nil {
			t.Fatal(err)
		}
		testplugin.WaitFor(t, "its end to be seen", func() bool { return r.Stats().Exporters[0].PID != pid })
		if err := r.Reload(t.Context()); err != nil {
			t.Error(err)
		}
		ready(started)
	}
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": uint64(cycles + 1)})
	if got := testplugin.Spans(t, path); len(got) != cycles+1 {
		t.Errorf("%d different spans delivered, want %d", len(got), cycles+1)
	}
	if got := r.Stats().Exporters[0].Crashes; got != uint64(cycles) {
		t.Errorf("%d crashes counted, want %d", got, cycles)
	}
	for _, pid := range pids {
		if !testplugin.Gone(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	var now footprint
	testplugin.WaitFor(t, "no more descriptors, threads and goroutines than before", func() bool {
		now = footprintOfSelf(t)
		return now.within(before)
	})
	// The log grows by each crash, and its buffer may be twice as long.
	if got, logged := heapInUse(), 2*uint64(len(r.log.String())); got > heap+logged+roomOfCycles {
		t.Errorf("%d bytes of heap in use, %d for the log; before there were %d", got, logged, heap)
	}
	left, err := filepath.Glob(filepath.Join(sockets, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("folders of sockets: %v, %v; want that of the running process", left, err)
	}
}
