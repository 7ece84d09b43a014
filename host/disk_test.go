package host_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/slowdisk"
)

// slowDisk has the configuration of the only plugin, which hangs when it is read, as
// the file of a server that is gone, from silence until answer.
type slowDisk struct {
	mu    sync.Mutex
	hangs chan struct{} // nil: it answers
}

func (d *slowDisk) configure(t *testing.T, c *host.Config) {
	c.PluginConfigs = map[string]host.PluginConfig{"plugin": {File: file(t, "c.yaml", "a: 1"), Pick: func(text []byte) ([]byte, error) {
		d.mu.Lock()
		hangs := d.hangs
		d.mu.Unlock()
		if hangs != nil {
			<-hangs
		}
		return text, nil
	}}}
}

func (d *slowDisk) silence() (answer func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs = make(chan struct{})
	return func() { close(d.hangs) }
}

func TestDiskThatDoesNotAnswerHoldsUpNoEnd(t *testing.T) {
	plugin := newFakePlugin(well)
	disk := &slowDisk{}
	live(t, func(int) (*fakePlugin, error) { return renewed(plugin), nil }, func(c *host.Config) {
		c.Watch = time.Second
		disk.configure(t, c)
	}, func(l *lived) {
		l.pass(time.Second)
		l.wantState(host.StateReady)
		defer disk.silence()()
		var reload sync.WaitGroup
		defer reload.Wait()
		reload.Go(func() { _ = l.Reload(l.t.Context()) }) // it reads the file
		l.pass(time.Minute)
		l.wantState(host.StateReady) // a running plugin goes on
		begun := time.Now()
		_ = l.Shutdown(context.Background()) // its error does not matter
		if took := time.Since(begun); took > host.DefaultStopTimeout {
			t.Errorf("Shutdown took %v, and may take %v", took, host.DefaultStopTimeout)
		}
	})
}

func TestPluginOnDiskThatDoesNotAnswerIsTriedUntilItDoes(t *testing.T) {
	plugin := newFakePlugin(well)
	disk := &slowDisk{}
	live(t, func(int) (*fakePlugin, error) { return renewed(plugin), nil }, func(c *host.Config) { disk.configure(t, c) }, func(l *lived) {
		l.pass(time.Second)
		answer := disk.silence()
		plugin.die()
		l.pass(host.DefaultStartTimeout + 3*slowdisk.Patience)
		if last := l.plugin().LastError; !strings.Contains(last, "the disk does not answer") {
			t.Errorf("the last error is %q", last)
		}
		if n := l.launches.Load(); n != 1 {
			t.Errorf("%d launches without an answer of the disk", n)
		}
		answer()
		l.pass(time.Minute)
		l.wantState(host.StateReady)
	})
}
