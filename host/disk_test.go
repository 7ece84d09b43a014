package host

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host/internal/slowdisk"
)

// silenceDisk has every further look at the files of the only plugin hang, as
// that of a file server that is gone, until answer is called.
func (l *lived) silenceDisk() (answer func()) {
	disk := l.plugins[0].files.disk
	hangs, held := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = slowdisk.Look(l.t.Context(), disk, func() bool { close(held); <-hangs; return true })
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
		l.pass(l.cfg.StartTimeout + 3*slowdisk.Patience)
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
