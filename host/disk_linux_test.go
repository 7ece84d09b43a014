package host_test

import (
	"context"
	"log/slog"
	"os"

	ossignal "os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestExecutableThatCanNotBeReadHoldsUpNobody: a lease acts as a disk that does not
// answer. The kernel blocks every open of the file until the lease ends. The start of a
// process blocks, too, and Go's runtime with it.
func TestExecutableThatCanNotBeReadHoldsUpNobody(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	record := testplugin.Install(t, "record")
	path := filepath.Join(t.TempDir(), filepath.Base(record)) // the test binary itself is being run, which allows no lease
	if err := os.WriteFile(path, bytes, 0o755); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	opened := make(chan os.Signal, 1)
	ossignal.Notify(opened, syscall.SIGIO)
	defer ossignal.Stop(opened)
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no leases on this file system: %v", err)
	}
	h, err := host.New(host.Config{Plugins: path, StartTimeout: time.Minute}, host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Shutdown(context.Background()) }()
	<-opened
	runtime.GC() // would wait, if the start of the process and not a look at the file were held
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	testplugin.WaitFor(t, "the plugin to be ready", func() bool { return h.Stats().Exporters[0].State == host.StateReady })
}
