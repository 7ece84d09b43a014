package host_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/launch"
)

// TestFileThatChangesDuringAFailedStart is not missed: the one that failed was
// the one before.
func TestFileThatChangesDuringAFailedStart(t *testing.T) {
	path := filepath.Join(executables(t, "plugin"), "plugin")
	live(t, func(n int) (*fakePlugin, error) {
		if n > 1 {
			return newFakePlugin(well), nil
		}
		if err := os.WriteFile(path, []byte("a new one, of the right version"), 0o700); err != nil {
			t.Error(err)
		}
		return nil, &launch.Error{Reason: launch.ReasonVersion, Path: path, Err: errors.New("no")}
	}, func(c *host.Config) { c.Plugins = path }, func(l *lived) {
		l.pass(2 * timeBetweenLooks)
		l.wantState(host.StateReady)
	})
}

// TestOldProcessThatEndsIsNotSaidToRun, while the one that is to replace it
// starts; and if that fails, nothing goes on.
func TestOldProcessThatEndsIsNotSaidToRun(t *testing.T) {
	for name, fails := range map[string]error{"the new one starts": nil, "the new one fails": errors.New("no such file")} {
		t.Run(name, func(t *testing.T) {
			live(t, func(n int) (*fakePlugin, error) {
				f := newFakePlugin(well)
				switch n {
				case 1:
					time.AfterFunc(11*time.Second, f.die)
				case 2:
					<-time.After(5 * time.Second)
					return f, fails
				}
				return f, nil
			}, nil, func(l *lived) {
				l.pass(10 * time.Second)
				asked := make(chan error, 1)
				go func() { asked <- l.Reload(context.Background()) }()
				l.pass(2 * time.Second)
				l.wantState(host.StateStarting)
				if x := l.plugin(); x.PID != 0 || !strings.Contains(x.Cause, "fake end") {
					t.Errorf("process %d, cause %q; want none, and how it ended", x.PID, x.Cause)
				}
				err := <-asked
				if fails != nil && fmt.Sprint(err) != `plugin "plugin" does not start, and the old process has ended: no such file` {
					t.Errorf("Reload = %v", err)
				} else if fails == nil && err != nil {
					t.Error(err)
				}
				l.pass(time.Second)
				if x := l.plugin(); x.Starts != 2 || x.Crashes != 1 || x.State != host.StateReady {
					t.Errorf("%d starts, %d crashes, %v", x.Starts, x.Crashes, x.State)
				}
			})
		})
	}
}

// TestReloadEndsTheJitter: an operator asks for a start now.
func TestReloadEndsTheJitter(t *testing.T) {
	live(t, func(int) (*fakePlugin, error) { return newFakePlugin(well), nil },
		func(c *host.Config) { c.StartJitter = 1000 * time.Hour }, func(l *lived) {
			l.pass(time.Second)
			ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
			defer cancel()
			err := l.Reload(ctx)
			synctest.Wait() // the state follows the end of the start
			if err != nil || l.plugin().Starts != 1 {
				t.Errorf("Reload = %v, %d starts", err, l.plugin().Starts)
			}
		})
}

// TestPauseBeginsAgainAfterReload: the first process after it crashes.
func TestPauseBeginsAgainAfterReload(t *testing.T) {
	live(t, func(n int) (*fakePlugin, error) { return nil, errors.New("no such file") }, nil, func(l *lived) {
		l.pass(5 * time.Minute)
		before := l.launches.Load()
		if err := l.Reload(l.t.Context()); err == nil {
			t.Error("Reload says that it started")
		}
		l.pass(2 * time.Second)
		if got := l.launches.Load() - before; got < 3 {
			t.Errorf("%d launches within 2 s of Reload, want that and two more", got)
		}
	})
}

// A plugin that leaves the list hangs. Meanwhile the other plugin is replaced, and the Host
// shuts down in its time.
func TestLeavingPluginThatHangs(t *testing.T) {
	dir := executables(t, "a", "b")
	live(t, func(int) (*fakePlugin, error) {
		f := newFakePlugin(nil)
		f.export = func(ctx context.Context, _ int) error { return silence(f)(ctx) }
		f.slowEnd = true
		return f, nil
	}, func(c *host.Config) { c.Plugins = dir + "/" }, func(l *lived) {
		synctest.Wait()
		endSpans(l.Host, 2)
		l.pass(time.Second)
		if err := os.Remove(filepath.Join(dir, "a")); err != nil {
			t.Fatal(err)
		}
		asked := make(chan error, 1)
		go func() { asked <- l.Reload(context.Background()) }()
		l.pass(time.Second)
		if got := l.launches.Load(); got != 3 {
			t.Errorf("%d launches while one leaves, want 3", got)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begun := time.Now()
		_ = l.Shutdown(ctx)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("Shutdown took %v of 1s", took)
		}
		if err := <-asked; err == nil {
			t.Error("Reload succeeded, although no plugin answers")
		}
		for _, x := range l.Stats().Exporters {
			if x.Dropped["shutdown"] != 2 || x.State != host.StateStopped {
				t.Errorf("plugin %s: dropped %v, state %v", x.Name, x.Dropped, x.State)
			}
		}
	})
}

// TestShutdownAtAnyMoment: Shutdown comes in each phase of a plugin's life, and of a
// Reload that removes, adds and replaces a plugin, with slow calls. synctest finds
// goroutines that are left.
func TestShutdownAtAnyMoment(t *testing.T) {
	const step = 70 * time.Millisecond
	for at := time.Duration(0); at < 5*time.Second; at += step {
		t.Run(at.String(), func(t *testing.T) {
			dir := executables(t, "a", "b")
			live(t, func(int) (*fakePlugin, error) {
				<-time.After(150 * time.Millisecond)
				f := newFakePlugin(nil)
				f.slow = 150 * time.Millisecond
				f.export = func(context.Context, int) error { <-time.After(f.slow); return nil }
				return f, nil
			}, func(c *host.Config) {
				c.Plugins, c.StartJitter, c.Watch = dir+"/", 300*time.Millisecond, 200*time.Millisecond
			}, func(l *lived) {
				stop := l.flow()
				var asked sync.WaitGroup
				for range 2 {
					asked.Go(func() {
						<-time.After(1500 * time.Millisecond)
						_ = os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c"))
						_ = os.WriteFile(filepath.Join(dir, "b"), []byte("changed"), 0o700)
						_ = l.Reload(context.Background()) // cut off, or not
					})
				}
				l.pass(at)
				begun := time.Now()
				_ = l.Shutdown(context.Background()) // the accounting has the lost spans
				if took := time.Since(begun); took > host.DefaultStopTimeout {
					t.Errorf("Shutdown took %v", took)
				}
				stop()
				asked.Wait()
				for _, x := range l.Stats().Exporters {
					if x.State != host.StateStopped || x.Waiting != 0 || x.PID != 0 {
						t.Errorf("%s: %v, %d spans waiting, process %d", x.Name, x.State, x.Waiting, x.PID)
					}
				}
				if stats := l.Stats(); stats.Bytes != 0 {
					t.Errorf("%d bytes are still in use", stats.Bytes)
				}
			})
		})
	}
}

// TestAccountingBalancesWhileTheListChangesConcurrentSafe: plugins come, go and come back under
// load, some of them faulty. The accounting always balances, and no count shrinks.
func TestAccountingBalancesWhileTheListChangesConcurrentSafe(t *testing.T) {
	dir := executables(t, "a", "b")
	h := fakeHost(t, func(n int) (*fakePlugin, error) {
		f := newFakePlugin(well)
		if n%5 == 0 {
			f.export = func(context.Context, int) error { f.die(); return silence(f)(t.Context()) }
		}
		return f, nil
	}, func(c *host.Config) {
		c.Plugins, c.BatchAge, c.QueueBytes = dir+"/", time.Millisecond, 1<<20
	})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				endSpans(h, 20)
			}
		})
	}
	all.Go(func() {
		before := map[string]host.ExporterStats{}
		for ctx.Err() == nil {
			stats := h.Stats()
			if err := stats.Check(); err != nil {
				t.Error(err)
			}
			for _, x := range stats.Exporters {
				if was := before[x.Name]; x.Accepted < was.Accepted || x.Delivered < was.Delivered || x.Starts < was.Starts {
					t.Errorf("%s had accepted %d, delivered %d in %d starts; now %d, %d, %d", x.Name,
						was.Accepted, was.Delivered, was.Starts, x.Accepted, x.Delivered, x.Starts)
				}
				before[x.Name] = x
			}
		}
	})
	random := rand.New(rand.NewPCG(5, 2026))
	names := []string{"a", "b", "c", "d"}
	for range 15 {
		path := filepath.Join(dir, names[random.IntN(len(names))])
		if os.Remove(path) != nil { // it was not there
			if err := os.WriteFile(path, nil, 0o700); err != nil {
				t.Error(err)
			}
		}
		_ = h.Reload(t.Context()) // of bad ones it tells
	}
	cancel()
	all.Wait()
	_ = h.Shutdown(context.Background()) // the accounting has the lost spans
	stats := h.Stats()
	if err := stats.Check(); err != nil || stats.Bytes != 0 {
		t.Errorf("%d bytes in use at the end: %v", stats.Bytes, err)
	}
}
