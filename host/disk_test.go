package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// silenceDisk has every further look at the files of the only plugin hang, as
// that of a file server that is gone, until answer is called.
func (l *lived) silenceDisk() (answer func()) {
	disk := l.plugins[0].files.disk
	hangs, held := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = onDisk(l.t.Context(), disk, func() bool { close(held); <-hangs; return true })
	}()
	<-held
	return func() { close(hangs) }
}

func TestDiskThatDoesNotAnswerHoldsUpNoEnd(t *testing.T) {
	plugin := newFakePlugin(well)
	live(t, func(int) (*fakePlugin, error) { return renewed(plugin), nil }, func(c *Config) { c.Watch = time.Second }, func(l *lived) {
		l.pass(time.Second)
		l.wantState(StateReady)
		defer l.silenceDisk()()
		l.pass(time.Minute)
		l.wantState(StateReady) // what runs, runs
		begun := time.Now()
		_ = l.Shutdown(context.Background()) // what it says does not matter
		if took := time.Since(begun); took > l.cfg.StopTimeout {
			t.Errorf("Shutdown took %v, and may take %v", took, l.cfg.StopTimeout)
		}
	})
}

func TestPluginOnDiskThatDoesNotAnswerIsTriedUntilItDoes(t *testing.T) {
	plugin := newFakePlugin(well)
	live(t, func(int) (*fakePlugin, error) { return renewed(plugin), nil }, nil, func(l *lived) {
		l.pass(time.Second)
		answer := l.silenceDisk()
		plugin.die()
		l.pass(l.cfg.StartTimeout + 3*diskPatience)
		if last := l.plugin().LastError; !strings.Contains(last, "the disk does not answer") {
			t.Errorf("the last error is %q", last)
		}
		if n := l.launches.Load(); n != 1 {
			t.Errorf("%d launches without an answer of the disk", n)
		}
		answer()
		l.pass(time.Minute)
		l.wantState(StateReady)
	})
}

func TestLookThatHangsIsLeftBehind(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	hangs := make(chan struct{})
	defer close(hangs)
	if _, err := aside(ctx, func() bool { <-hangs; return true }); !errors.Is(err, errDiskSilent) {
		t.Errorf("a look that hangs gave %v", err)
	}
	why := errors.New("the host shuts down")
	stopped, stop := context.WithCancelCause(t.Context())
	stop(why)
	if _, err := aside(stopped, func() bool { <-hangs; return true }); !errors.Is(err, why) {
		t.Errorf("a look that was called off gave %v", err)
	}
	if ok, err := aside(t.Context(), func() bool { return true }); !ok || err != nil {
		t.Errorf("a look gave %t, %v", ok, err)
	}
}

// TestFolderThatDoesNotAnswerKeepsItsPlugins is Reload's side: what has no
// answer is what it was.
func TestFolderThatDoesNotAnswerKeepsItsPlugins(t *testing.T) {
	from := entry{name: "a", where: "/dead/a", from: "/dead"}
	for _, folder := range []bool{false, true} { // written without its slash, and with it
		x := expansion{running: []entry{from}}
		x.take(entry{name: "dead", where: "/dead", folder: folder}, sight{folder: folder, err: errDiskSilent})
		if len(x.list) != 1 || x.list[0] != from || len(x.warnings) != 1 {
			t.Errorf("folder %t: list %v, warnings %q", folder, x.list, x.warnings)
		}
	}
	x := expansion{}
	x.take(entry{name: "p", where: "/dead/p"}, sight{err: errDiskSilent})
	if len(x.list) != 1 {
		t.Errorf("a plugin on a disk that does not answer is not on the list: %v", x.list)
	}
}
