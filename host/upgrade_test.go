package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"

	"github.com/servetrace/servetrace/host"
)

// flow ends a span every 100 ms of fake time until stop is called.
func (l *lived) flow() (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var flowing sync.WaitGroup
	flowing.Go(func() {
		for ctx.Err() == nil {
			endSpans(l.Host, 1)
			<-time.After(100 * time.Millisecond)
		}
	})
	return func() { cancel(); flowing.Wait() }
}

// wantAllDelivered flushes, and checks that no span was lost.
func (l *lived) wantAllDelivered() {
	l.t.Helper()
	if err := l.ForceFlush(l.t.Context()); err != nil {
		l.t.Errorf("ForceFlush: %v", err)
	}
	if x := l.plugin(); x.Delivered != x.Accepted || x.Accepted == 0 {
		l.t.Errorf("%d of %d spans delivered; dropped %v, rejected %v", x.Delivered, x.Accepted, x.Dropped, x.Rejected)
	}
}

func TestUpgradeAfterThreeBatches(t *testing.T) {
	var all []*fakePlugin
	live(t, func(int) (*fakePlugin, error) {
		all = append(all, newFakePlugin(well))
		return all[len(all)-1], nil
	}, nil, func(l *lived) {
		defer l.flow()()
		l.pass(5 * time.Second)
		begun := time.Now()
		if err := l.Reload(l.t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("three batches took %v", took)
		}
		before := len(all[0].calls)
		l.pass(5 * time.Second)
		if len(all[0].calls) != before || len(all[1].calls) < 10 {
			t.Errorf("after the upgrade the old one got %d calls, the new one %d", len(all[0].calls)-before, len(all[1].calls))
		}
		if methods := all[0].methods; methods[len(methods)-1] != pluginv1.Lifecycle_Shutdown_FullMethodName {
			t.Errorf("the old one was told %v, want Shutdown at last", methods[len(methods)-1])
		}
		select {
		case <-all[0].done:
		default:
			t.Error("the old one has not ended")
		}
		if x := l.plugin(); x.Starts != 2 || x.Crashes != 0 || x.State != host.StateReady {
			t.Errorf("%d starts, %d crashes, %v", x.Starts, x.Crashes, x.State)
		}
		l.wantAllDelivered()
	})
}

// TestUpgradeWithoutTraffic: the new process waits beside the old process, and Reload
// does not wait for it. Then the remaining process delivers, and no span is lost.
func TestUpgradeWithoutTraffic(t *testing.T) {
	const waits, replaced, refused = "it waits beside the old one", "plugin is replaced", "plugin is not replaced"
	spans := func(l *lived, _, _ *fakePlugin) { endSpans(l.Host, 5) }
	for name, test := range map[string]struct {
		next   func(context.Context, int) error
		then   func(l *lived, old, next *fakePlugin)
		starts uint64
		log    string
	}{
		"it delivers":               {well, spans, 2, replaced},
		"it does not deliver":       {down, spans, 1, refused},
		"it refuses":                {func(context.Context, int) error { return status.Error(codes.PermissionDenied, "403") }, spans, 1, refused},
		"it crashes while it waits": {well, func(_ *lived, _, next *fakePlugin) { next.Kill("") }, 1, refused},
		"the old one ends":          {well, func(_ *lived, old, _ *fakePlugin) { old.Kill("") }, 2, replaced},
		"nothing happens":           {well, func(*lived, *fakePlugin, *fakePlugin) {}, 1, waits},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*fakePlugin
			live(t, func(int) (*fakePlugin, error) {
				f := newFakePlugin(well)
				if len(all) == 1 {
					f.export = test.next
				}
				all = append(all, f)
				return f, nil
			}, nil, func(l *lived) {
				synctest.Wait()
				begun := time.Now()
				if err := l.Reload(l.t.Context()); err != nil || time.Since(begun) != quietOfProof {
					t.Errorf("Reload = %v after %v, want nil after %v", err, time.Since(begun), quietOfProof)
				}
				l.pass(time.Hour)
				if x := l.plugin(); x.Starts != 1 || x.State != host.StateReady || all[0].ended() || all[1].ended() {
					t.Errorf("%d starts, %v; want both processes, and the old one in charge", x.Starts, x.State)
				}
				test.then(l, all[0], all[1])
				l.pass(2 * quietOfProof)
				if x := l.plugin(); x.Starts != test.starts || x.State != host.StateReady {
					t.Errorf("%d starts, %v; want %d, ready", x.Starts, x.State, test.starts)
				}
				if test.log != waits && all[0].ended() == all[1].ended() {
					t.Error("want one process of the two")
				}
				endSpans(l.Host, 1)
				l.wantAllDelivered()
				wantLines(t, l.log.String(), map[string]int{waits: 1, test.log: 1, "has changed since": 0})
			})
		})
	}
}

// TestReloadWhileAProcessWaitsForItsProof: another takes its place.
func TestReloadWhileAProcessWaitsForItsProof(t *testing.T) {
	var all []*fakePlugin
	live(t, func(int) (*fakePlugin, error) {
		all = append(all, newFakePlugin(well))
		return all[len(all)-1], nil
	}, nil, func(l *lived) {
		synctest.Wait()
		for range 3 {
			if err := l.Reload(l.t.Context()); err != nil {
				t.Error(err)
			}
		}
		l.pass(time.Minute)
		if got := []bool{all[0].ended(), all[1].ended(), all[2].ended(), all[3].ended()}; !slices.Equal(got, []bool{false, true, true, false}) {
			t.Errorf("ended: %v, want the first and the last process", got)
		}
		endSpans(l.Host, 1)
		l.pass(2 * quietOfProof)
		l.wantAllDelivered()
		if x := l.plugin(); x.Starts != 2 || x.Crashes != 0 || !all[0].ended() || len(all[3].calls) != 1 {
			t.Errorf("%d starts, %d crashes, %d calls of the last process", x.Starts, x.Crashes, len(all[3].calls))
		}
		wantLines(t, l.log.String(), map[string]int{"level=ERROR": 0, "plugin is replaced": 1})
	})
}

// TestUpgradeThatFailsKeepsTheOld: however the new one fails, no span is lost
// and the old one goes on, loudly.
func TestUpgradeThatFailsKeepsTheOld(t *testing.T) {
	bad := func(change func(f *fakePlugin)) func() (*fakePlugin, error) {
		return func() (*fakePlugin, error) {
			f := newFakePlugin(well)
			change(f)
			return f, nil
		}
	}
	for name, next := range map[string]func() (*fakePlugin, error){
		"handshake": func() (*fakePlugin, error) { return nil, errors.New("no handshake") },
		"configure": bad(func(f *fakePlugin) { f.configure = status.Error(codes.InvalidArgument, "no token") }),
		"health":    bad(func(f *fakePlugin) { f.health = silence(f) }),
		"crash at its first batch": bad(func(f *fakePlugin) {
			f.export = func(context.Context, int) error { f.Kill(""); return status.Error(codes.Unavailable, "EOF") }
		}),
		"crash at its third batch": bad(func(f *fakePlugin) {
			f.export = func(_ context.Context, n int) error {
				if n < 3 {
					return nil
				}
				f.Kill("")
				return status.Error(codes.Unavailable, "EOF")
			}
		}),
		"final refusal": bad(func(f *fakePlugin) {
			f.export = func(context.Context, int) error { return status.Error(codes.PermissionDenied, "403 wrong token") }
		}),
		"back end down": bad(func(f *fakePlugin) { f.export = down }),
		"no answer": bad(func(f *fakePlugin) {
			f.export = func(ctx context.Context, _ int) error { return silence(f)(ctx) }
		}),
	} {
		t.Run(name, func(t *testing.T) {
			var failed *fakePlugin
			live(t, func(n int) (*fakePlugin, error) {
				if n == 1 {
					return newFakePlugin(well), nil
				}
				f, err := next()
				failed = f
				return f, err
			}, nil, func(l *lived) {
				stop := l.flow()
				l.pass(time.Second)
				err := l.Reload(l.t.Context())
				if err == nil || !strings.HasPrefix(err.Error(), `plugin "plugin" is not replaced, the old process goes on: `) {
					t.Errorf("Reload = %v", err)
				}
				if is, ok := errors.AsType[*host.PluginError](err); !ok || is.Plugin != "plugin" || is.Err == nil {
					t.Errorf("Reload = %#v, want a PluginError", err)
				}
				if got := l.plugin().LastError; err != nil && got != err.Error() {
					t.Errorf("LastError = %s, want %v", got, err)
				}
				wantLines(t, l.log.String(), map[string]int{"level=ERROR msg=\"plugin is not replaced": 1})
				l.pass(5 * time.Second)
				stop()
				l.wantAllDelivered()
				if x := l.plugin(); x.Starts != 1 || x.State != host.StateReady {
					t.Errorf("%d starts, %v", x.Starts, x.State)
				}
				if failed != nil {
					select {
					case <-failed.done:
					default:
						t.Error("the new one has not ended")
					}
				}
			})
		})
	}
}

// TestUpgradeWhileTheBackEndIsDown: the old process could not deliver when the new
// process came. The new process fails only if it refuses a batch for good.
func TestUpgradeWhileTheBackEndIsDown(t *testing.T) {
	for name, test := range map[string]struct {
		next   func(context.Context, int) error
		starts uint64
	}{
		"down for both":         {down, 2},
		"mended by the new one": {well, 2},
		"refused for good":      {func(context.Context, int) error { return status.Error(codes.PermissionDenied, "403") }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var up atomic.Bool
			until := func(f func(context.Context, int) error) func(context.Context, int) error {
				return func(ctx context.Context, n int) error {
					if up.Load() {
						return nil
					}
					return f(ctx, n)
				}
			}
			live(t, func(n int) (*fakePlugin, error) {
				if n == 1 {
					return newFakePlugin(until(down)), nil
				}
				return newFakePlugin(until(test.next)), nil
			}, nil, func(l *lived) {
				stop := l.flow()
				l.pass(3 * time.Second)
				l.wantState(host.StateDegraded)
				begun := time.Now()
				err := l.Reload(l.t.Context())
				if x := l.plugin(); x.Starts != test.starts || (err == nil) != (test.starts == 2) {
					t.Errorf("Reload = %v, %d starts, want %d", err, x.Starts, test.starts)
				}
				if took := time.Since(begun); took > 30*time.Second {
					t.Errorf("the upgrade took %v", took)
				}
				l.pass(5 * time.Second)
				up.Store(true)
				stop()
				l.wantAllDelivered()
			})
		})
	}
}

// TestOldCrashesDuringTheUpgrade: then there is nothing to go back to.
func TestOldCrashesDuringTheUpgrade(t *testing.T) {
	for name, when := range map[string]time.Duration{"while the new one starts": time.Second, "in probation": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			live(t, func(n int) (*fakePlugin, error) {
				f := newFakePlugin(well)
				if n == 1 {
					time.AfterFunc(10*time.Second+when, func() { f.Kill("") })
				} else {
					<-time.After(2 * time.Second)
				}
				return f, nil
			}, nil, func(l *lived) {
				l.pass(10 * time.Second)
				if err := l.Reload(l.t.Context()); err != nil {
					t.Errorf("Reload = %v", err)
				}
				endSpans(l.Host, 5)
				l.wantAllDelivered()
				l.pass(time.Second)
				if x := l.plugin(); x.Starts != 2 || x.Crashes != 1 || x.State != host.StateReady {
					t.Errorf("%d starts, %d crashes, %v", x.Starts, x.Crashes, x.State)
				}
			})
		})
	}
}

// TestShutdownDuringAnUpgradeIsBounded, in every phase of one.
func TestShutdownDuringAnUpgradeIsBounded(t *testing.T) {
	for name, next := range map[string]func(*fakePlugin){
		"describe": nil,
		"health":   func(f *fakePlugin) { f.health = silence(f) },
		"probation": func(f *fakePlugin) {
			f.export = func(ctx context.Context, _ int) error { return silence(f)(ctx) }
			f.slowEnd = true
		},
		"retirement":   func(*fakePlugin) {},
		"no proof yet": func(f *fakePlugin) { f.slowEnd = true },
	} {
		t.Run(name, func(t *testing.T) {
			live(t, func(n int) (*fakePlugin, error) {
				f := newFakePlugin(well)
				if n == 1 {
					f.slowEnd = true
					if name == "retirement" {
						f.export = func(ctx context.Context, n int) error {
							if n == 1 {
								return silence(f)(ctx)
							}
							return nil
						}
					}
					return f, nil
				}
				if next == nil {
					<-time.After(2 * time.Second) // of its start timeout
					return nil, errors.New("too late")
				}
				next(f)
				return f, nil
			}, func(c *host.Config) { c.StartTimeout = time.Second }, func(l *lived) {
				stop := func() {}
				if name != "no proof yet" {
					stop = l.flow()
				}
				l.pass(time.Second)
				asked := make(chan error, 1)
				go func() { asked <- l.Reload(context.Background()) }()
				if l.pass(1500 * time.Millisecond); name == "no proof yet" {
					l.pass(quietOfProof)
				}
				stop()
				begun := time.Now()
				_ = l.Shutdown(context.Background()) // the counts have the lost spans
				if took := time.Since(begun); took > host.DefaultStopTimeout {
					t.Errorf("Shutdown took %v", took)
				}
				if err := <-asked; err != nil {
					t.Log(err) // it is over, whatever it says
				}
			})
		})
	}
}

func TestReloadsAtOnceAreOne(t *testing.T) {
	live(t, func(int) (*fakePlugin, error) { return newFakePlugin(well), nil }, nil, func(l *lived) {
		synctest.Wait()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := l.Reload(l.t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := l.launches.Load(); got < 2 || got > 3 { // one may come while the first is under way
			t.Errorf("%d launches for five reloads at once", got)
		}
		l.pass(time.Minute)
		if x := l.plugin(); x.State != host.StateReady || x.Crashes != 0 {
			t.Errorf("%v, %d crashes", x.State, x.Crashes)
		}
	})
}

func TestWatchReplacesWhatHasChangedAndStaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	live(t, func(n int) (*fakePlugin, error) {
		if n == 3 {
			return nil, errors.New("no handshake")
		}
		return newFakePlugin(well), nil
	}, func(c *host.Config) { c.Plugins, c.Watch = path, 5*time.Second }, func(l *lived) {
		wantStarts := func(launches int64, starts uint64) {
			t.Helper()
			if got := l.plugin(); l.launches.Load() != launches || got.Starts != starts {
				t.Errorf("%d launches, %d starts; want %d, %d", l.launches.Load(), got.Starts, launches, starts)
			}
		}
		l.pass(time.Hour)
		wantStarts(1, 1)
		for i := range 5 { // it is still being written
			write(strings.Repeat("x", 100+i))
			l.pass(5 * time.Second)
		}
		wantStarts(1, 1)
		l.pass(time.Minute)
		endSpans(l.Host, 1)
		l.pass(2 * quietOfProof)
		wantStarts(2, 2)
		write("a bad one, which is tried once")
		l.pass(time.Hour)
		wantStarts(3, 2)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		l.pass(time.Hour)
		wantStarts(3, 2)
		if !l.plugin().Changed {
			t.Error("Stats do not say that the executable has gone")
		}
	})
}

// executables makes a folder of executables with these names.
func executables(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestExportersJoinAndLeaveAtReload(t *testing.T) {
	dir := executables(t, "a", "b")
	live(t, func(int) (*fakePlugin, error) { return newFakePlugin(well), nil },
		func(c *host.Config) { c.Plugins = dir + "/" }, func(l *lived) {
			reload := func() {
				t.Helper()
				if err := l.Reload(l.t.Context()); err != nil {
					t.Error(err)
				}
			}
			names := func() (all []string) {
				for _, x := range l.Stats().Exporters {
					all = append(all, fmt.Sprintf("%s %v %d/%d", x.Name, x.State, x.Delivered, x.Accepted))
				}
				return all
			}
			want := func(when string, list ...string) {
				t.Helper()
				if err := l.ForceFlush(l.t.Context()); err != nil {
					t.Error(err)
				}
				if err := l.Stats().Check(); err != nil {
					t.Error(err)
				}
				if got := names(); !slices.Equal(got, list) {
					t.Errorf("%s: %q, want %q", when, got, list)
				}
			}
			rename := func(from, to string) {
				if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			endSpans(l.Host, 10)
			want("at first", "a ready 10/10", "b ready 10/10")
			rename("b", "c")
			endSpans(l.Host, 5) // not drained yet: for b, as the others
			reload()
			synctest.Wait()
			endSpans(l.Host, 1)
			want("b has gone and c come", "a ready 16/16", "c ready 1/1", "b stopped 15/15")
			rename("c", "b")
			endSpans(l.Host, 2)
			reload()
			synctest.Wait()
			endSpans(l.Host, 4)
			want("b is back", "a ready 22/22", "b ready 19/19", "c stopped 3/3")
		})
}

func TestFolderThatIsEmptyAtFirst(t *testing.T) {
	dir := executables(t)
	live(t, func(int) (*fakePlugin, error) { return newFakePlugin(well), nil },
		func(c *host.Config) { c.Plugins = dir + "/" }, func(l *lived) {
			if !l.Enabled() {
				t.Fatal("not enabled, though a plugin may come")
			}
			endSpans(l.Host, 3) // for nobody
			l.pass(time.Second)
			if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := l.Reload(l.t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			endSpans(l.Host, 2)
			l.wantAllDelivered()
			if x := l.plugin(); x.Accepted != 2 || l.Stats().Accepted != 5 {
				t.Errorf("accepted %d, for the plugin %d; want 5, 2", l.Stats().Accepted, x.Accepted)
			}
		})
}

func TestReloadOfAHostThatDoesNotRun(t *testing.T) {
	h, err := host.New(host.Config{Plugins: "./p"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Reload(t.Context()); err == nil {
		t.Error("reloaded before Start")
	}
}
