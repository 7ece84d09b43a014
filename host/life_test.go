package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/test/testplugin"
)

// lived is a fake Host with its log, for tests of a plugin's life.
type lived struct {
	*host.Host
	t        *testing.T
	log      *testplugin.Log
	launches atomic.Int64
}

// live starts a Host, answers its n-th launch by launchFake, and runs test in fake time.
// The log must have only possible changes of state, and the accounting must balance.
func live(t *testing.T, launchFake func(n int) (*fakePlugin, error), change func(*host.Config), test func(*lived)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lived{t: t, log: &testplugin.Log{}}
		l.Host = fakeHost(t, func(n int) (*fakePlugin, error) {
			l.launches.Store(int64(n))
			return launchFake(n)
		}, change, host.WithLogger(slog.New(slog.NewTextHandler(l.log, nil))))
		test(l)
		_ = l.Shutdown(context.Background()) // the accounting has the lost spans
		if err := l.Stats().Check(); err != nil {
			t.Error(err)
		}
		if strings.Contains(l.log.String(), "cannot change its state") {
			t.Errorf("a change of state that is not in the table; log:\n%s", l.log)
		}
		if t.Failed() {
			t.Logf("log:\n%s", l.log)
		}
	})
}

// renewed is for a plugin that was made before the bubble: its channel must be
// of the bubble.
func renewed(f *fakePlugin) *fakePlugin {
	f.done = make(chan struct{})
	return f
}

func (l *lived) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (l *lived) plugin() host.ExporterStats { return l.Stats().Exporters[0] }

func (l *lived) wantState(want host.State) {
	l.t.Helper()
	if x := l.plugin(); x.State != want {
		l.t.Errorf("state %v (%s), want %v", x.State, x.Cause, want)
	}
}

func well(context.Context, int) error { return nil }

func down(context.Context, int) error { return status.Error(codes.Unavailable, "503 down") }

// silence answers when it is cancelled, or the plugin f has ended.
func silence(f *fakePlugin) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-f.done:
			return status.Error(codes.Unavailable, "the process has ended")
		}
	}
}

func TestDegradedByFailingCallsAndReadyAgain(t *testing.T) {
	for name, fails := range map[string]error{
		"retryable": status.Error(codes.Unavailable, "503 down"),
		"final":     status.Error(codes.PermissionDenied, "403 wrong token"),
	} {
		t.Run(name, func(t *testing.T) {
			var up atomic.Bool
			plugin := newFakePlugin(func(context.Context, int) error {
				if up.Load() {
					return nil
				}
				return fails
			})
			live(t, func(int) (*fakePlugin, error) { return renewed(plugin), nil }, nil, func(l *lived) {
				synctest.Wait()
				l.wantState(host.StateReady)
				endSpans(l.Host, 1)
				l.pass(time.Second)
				l.wantState(host.StateDegraded)
				if got := l.plugin().Cause; got != status.Convert(fails).Message() {
					t.Errorf("cause %q", got)
				}
				up.Store(true)
				for range 20 {
					endSpans(l.Host, 1)
					l.pass(time.Second)
				}
				l.wantState(host.StateReady)
				wantLines(t, l.log.String(), map[string]int{"plugin is degraded": 1, "again=true": 1})
			})
		})
	}
}

func TestMissedHeartbeatDegradesAndAnAnswerRestores(t *testing.T) {
	plugin := newFakePlugin(well)
	var asked atomic.Int64
	plugin.health = func(ctx context.Context) error {
		if n := asked.Add(1); n == 2 || n == 3 {
			return silence(plugin)(ctx)
		}
		return nil
	}
	live(t, func(int) (*fakePlugin, error) { return renewed(plugin), nil }, nil, func(l *lived) {
		l.pass(2*heartbeat + healthTime + time.Second)
		l.wantState(host.StateDegraded)
		if got, want := l.plugin().Cause, "no answer to a health check within 2s"; got != want {
			t.Errorf("cause %q, want %q", got, want)
		}
		l.pass(3 * heartbeat)
		l.wantState(host.StateReady)
		if plugin.dumps.Load() != 0 || l.plugin().Starts != 1 {
			t.Error("a plugin that answered in the end was put down")
		}
		wantLines(t, l.log.String(), map[string]int{"level=WARN": 1, "gave no answer to a health check": 1})
	})
}

// TestRejectionsInPartAreNoReasonToStayDegraded: each batch loses a span, which
// is the back end's word on that span.
func TestRejectionsInPartAreNoReasonToStayDegraded(t *testing.T) {
	var up atomic.Bool
	plugin := newFakePlugin(func(context.Context, int) error {
		if up.Load() {
			return nil
		}
		return status.Error(codes.Unavailable, "503 down")
	})
	reply, err := proto.Marshal(&coltracepb.ExportTraceServiceResponse{
		PartialSuccess: &coltracepb.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "name too long"},
	})
	if err != nil {
		t.Fatal(err)
	}
	plugin.reply = reply
	live(t, func(int) (*fakePlugin, error) { return renewed(plugin), nil }, nil, func(l *lived) {
		endSpans(l.Host, 2)
		l.pass(time.Second)
		l.wantState(host.StateDegraded)
		up.Store(true)
		for range 20 {
			endSpans(l.Host, 2)
			l.pass(time.Second)
		}
		l.wantState(host.StateReady)
	})
}

// TestFrozenIdlePluginIsDumpedAndRestarted: three answers that it owes.
func TestFrozenIdlePluginIsDumpedAndRestarted(t *testing.T) {
	frozen := newFakePlugin(well)
	frozen.health = silence(frozen)
	live(t, func(n int) (*fakePlugin, error) {
		if n == 1 {
			return renewed(frozen), nil
		}
		return newFakePlugin(well), nil
	}, nil, func(l *lived) {
		l.pass(2 * (heartbeat + healthTime))
		if got := l.plugin(); got.Starts != 1 || got.State != host.StateDegraded {
			t.Errorf("%v after two missed heartbeats, %d starts", got.State, got.Starts)
		}
		l.pass(heartbeat + healthTime + time.Second)
		x := l.plugin()
		if frozen.dumps.Load() != 1 || x.Starts != 2 || x.Crashes != 1 || x.State != host.StateReady {
			t.Errorf("%d dumps, %d starts, %d crashes, %v; want 1, 2, 1, ready", frozen.dumps.Load(), x.Starts, x.Crashes, x.State)
		}
	})
}

// TestCallWithoutAnswerIsEnough: a plugin that answers neither a call by its
// deadline nor one health check is hung.
func TestCallWithoutAnswerIsEnough(t *testing.T) {
	frozen := newFakePlugin(nil)
	frozen.health = silence(frozen)
	frozen.export = func(ctx context.Context, _ int) error { return silence(frozen)(ctx) }
	live(t, func(n int) (*fakePlugin, error) {
		if n == 1 {
			return renewed(frozen), nil
		}
		return newFakePlugin(well), nil
	}, nil, func(l *lived) {
		endSpans(l.Host, 3)
		// A heartbeat may be under way when the call's time is over.
		l.pass(host.DefaultBatchAge + host.DefaultExportTimeout + 2*healthTime + time.Second)
		x := l.plugin()
		if frozen.dumps.Load() != 1 || x.Starts != 2 || x.Delivered != 3 {
			t.Errorf("%d dumps, %d starts, %d delivered; want 1, 2, 3", frozen.dumps.Load(), x.Starts, x.Delivered)
		}
	})
}

func TestBusyPluginIsNotAsked(t *testing.T) {
	plugin := newFakePlugin(well)
	var asked atomic.Int64
	plugin.health = func(context.Context) error { asked.Add(1); return nil }
	live(t, func(int) (*fakePlugin, error) { return renewed(plugin), nil }, nil, func(l *lived) {
		for range 120 {
			endSpans(l.Host, 1)
			l.pass(time.Second)
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("asked %d times in two busy minutes", n)
		}
		l.pass(time.Hour)
		if n := asked.Load(); n < 355 || n > 361 {
			t.Errorf("asked %d times in an idle hour, want one in %v", n, heartbeat)
		}
	})
}

// TestHazard07CrashLoopsBreak: each kind of crash loop, for an hour. It is tried
// at each half of the age limit, and the log is not filled.
func TestHazard07CrashLoopsBreak(t *testing.T) {
	dying := func(n int) *fakePlugin {
		f := newFakePlugin(well)
		f.report = launch.Report{Exit: "exit status 2", ExitCode: 2, Stack: fmt.Sprintf("goroutine %d", n), PID: n}
		return f
	}
	for name, launchFake := range map[string]func(n int) (*fakePlugin, error){
		"at start": func(n int) (*fakePlugin, error) {
			return nil, &launch.Error{Reason: launch.ReasonNotPlugin, Path: "/fake/plugin", Err: fmt.Errorf("it ended (attempt %d)", n)}
		},
		"after the handshake": func(n int) (*fakePlugin, error) {
			f := dying(n)
			time.AfterFunc(50*time.Millisecond, func() { f.Kill("") })
			return f, nil
		},
		"at each batch": func(n int) (*fakePlugin, error) {
			f := dying(n)
			f.export = func(context.Context, int) error {
				f.Kill("")
				return status.Error(codes.Unavailable, "EOF")
			}
			return f, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, launchFake, nil, func(l *lived) {
				for range 20 { // more than are quarantined before it breaks
					endSpans(l.Host, 1)
					l.pass(time.Second)
				}
				l.wantState(host.StateBroken)
				before := l.launches.Load()
				for range 3600 {
					endSpans(l.Host, 1)
					l.pass(time.Second)
				}
				l.wantState(host.StateBroken)
				if got := l.launches.Load() - before; got < 115 || got > 120 {
					t.Errorf("%d launches in an hour, want one each %v", got, host.DefaultMaxAge/2)
				}
				l.wantAtMost("level=ERROR", 3*causesLogged+2)
				l.wantAtMost("plugin is ready", causesLogged+1)
			})
		})
	}
}

func (l *lived) wantAtMost(text string, most int) {
	l.t.Helper()
	if got := strings.Count(l.log.String(), text); got > most {
		l.t.Errorf("%q stands %d times in the log, want at most %d", text, got, most)
	}
}

// TestProbeThatLivesClosesTheBreaker: the next crash counts as the first again. Reload
// starts the plugin at once.
func TestProbeThatLivesClosesTheBreaker(t *testing.T) {
	var last *fakePlugin
	var good atomic.Bool
	launchFake := func(int) (*fakePlugin, error) {
		f := newFakePlugin(well)
		if !good.Load() {
			time.AfterFunc(10*time.Millisecond, func() { f.Kill("") })
		}
		last = f
		return f, nil
	}
	live(t, launchFake, nil, func(l *lived) {
		l.pass(10 * time.Second)
		l.wantState(host.StateBroken)
		good.Store(true)
		before := l.launches.Load()
		if err := l.Reload(l.t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		l.wantState(host.StateReady)
		if got := l.launches.Load() - before; got != 1 {
			t.Errorf("%d launches by Reload, want one at once", got)
		}
		good.Store(false)
		last.Kill("")
		l.pass(10 * time.Second)
		l.wantState(host.StateBroken)
		good.Store(true)
		l.pass(pauseOfBroken + steadyTime)
		l.wantState(host.StateReady)
		last.Kill("")
		synctest.Wait()
		l.wantState(host.StateBackingOff)
	})
}

// crashOf ends with the report of a process that crashed by its own fault.
func crashOf(n int) launch.Report {
	return launch.Report{Exit: "exit status 2", ExitCode: 2, PID: n}
}

// killOf ends a plugin with the report of a process that another process has killed.
func killOf(n int) launch.Report {
	return launch.Report{Exit: "signal: killed", ExitCode: -1, Signal: "SIGKILL", PID: n}
}

// TestNoBatchAgesOutBeforeTheProbe: five processes crash at once, so that the breaker
// opens. Spans that end from then on wait for the probe, and are delivered.
func TestNoBatchAgesOutBeforeTheProbe(t *testing.T) {
	for _, maxAge := range []time.Duration{4 * time.Second, 30 * time.Second, host.DefaultMaxAge, 10 * time.Minute} {
		t.Run(maxAge.String(), func(t *testing.T) {
			live(t, func(n int) (*fakePlugin, error) {
				f := newFakePlugin(well)
				if n <= crashesToBreak {
					f.report = crashOf(n)
					time.AfterFunc(10*time.Millisecond, func() { f.Kill("") })
				}
				return f, nil
			}, func(c *host.Config) { c.MaxAge = maxAge }, func(l *lived) {
				for l.plugin().State != host.StateBroken {
					l.pass(100 * time.Millisecond)
				}
				stop := l.flow()
				l.pass(min(pauseOfBroken, maxAge))
				stop()
				l.wantState(host.StateReady)
				l.wantAllDelivered()
			})
		})
	}
}

// TestKillsByOthersLoseNothing: for ten minutes, each process is killed half a second
// after it was ready, by a signal or by a request to end. The breaker stays closed, the
// pauses grow, and no span is lost.
func TestKillsByOthersLoseNothing(t *testing.T) {
	for name, report := range map[string]func(int) launch.Report{
		"SIGKILL": killOf,
		"SIGTERM": func(n int) launch.Report {
			return launch.Report{Exit: "signal: terminated", ExitCode: -1, Signal: "SIGTERM", PID: n}
		},
		"asked to end": func(n int) launch.Report { return launch.Report{Exit: "exit status 0", PID: n} },
	} {
		t.Run(name, func(t *testing.T) {
			live(t, func(n int) (*fakePlugin, error) {
				f := newFakePlugin(well)
				f.report = report(n)
				time.AfterFunc(500*time.Millisecond, func() { f.Kill("") })
				return f, nil
			}, nil, func(l *lived) {
				stop := l.flow()
				for range 600 {
					if l.pass(time.Second); l.plugin().State == host.StateBroken {
						t.Errorf("broken after %d kills", l.plugin().Crashes)
						break
					}
				}
				stop()
				l.wantAllDelivered()
				if got := l.launches.Load(); got < 20 || got > 50 {
					t.Errorf("%d launches in ten minutes, want pauses that grow to %v", got, longestRestart)
				}
			})
		})
	}
}

// TestCrashesOfItsOwnBreakThoughOthersKillToo: kills between crashes neither count
// nor take a crash back.
func TestCrashesOfItsOwnBreakThoughOthersKillToo(t *testing.T) {
	live(t, func(n int) (*fakePlugin, error) {
		f := newFakePlugin(well)
		if f.report = crashOf(n); n%2 == 0 {
			f.report = killOf(n)
		}
		time.AfterFunc(10*time.Millisecond, func() { f.Kill("") })
		return f, nil
	}, func(c *host.Config) { c.MaxAge = 10 * time.Second }, func(l *lived) {
		for l.launches.Load() < 2*crashesToBreak-2 {
			if l.pass(100 * time.Millisecond); l.plugin().State == host.StateBroken {
				t.Errorf("broken after %d ends, of which others caused half", l.plugin().Crashes)
				return
			}
		}
		l.pass(5*time.Second + 10*time.Millisecond) // the longest pause here, and a life
		l.wantState(host.StateBroken)
	})
}

func TestReloadOfAPluginThatDoesNotStartSaysWhy(t *testing.T) {
	live(t, func(int) (*fakePlugin, error) { return nil, errors.New("no such file") }, nil, func(l *lived) {
		l.pass(time.Minute)
		before := l.launches.Load()
		err := l.Reload(l.t.Context())
		if got, want := fmt.Sprint(err), `plugin "plugin" does not start: no such file`; got != want {
			t.Errorf("Reload = %s, want %s", got, want)
		}
		if got := l.launches.Load() - before; got != 1 {
			t.Errorf("%d launches, want 1", got)
		}
	})
}

// TestShutdownWaitsForNoPluginThatIsNotRun: its spans are counted as lost, now
// and not after the time that a flush may take.
func TestShutdownWaitsForNoPluginThatIsNotRun(t *testing.T) {
	for reason, want := range map[launch.Reason]host.State{
		launch.ReasonUntrusted:     host.StateUntrusted,
		launch.ReasonVersion:       host.StateIncompatible,
		launch.ReasonNotFound:      host.StateBackingOff,
		launch.ReasonNotExecutable: host.StateBackingOff,
	} {
		for _, after := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("%v after %v", reason, after), func(t *testing.T) {
				live(t, func(int) (*fakePlugin, error) {
					return nil, &launch.Error{Reason: reason, Path: "/fake/plugin", Err: errors.New("no")}
				}, nil, func(l *lived) {
					endSpans(l.Host, 3)
					if l.pass(after); after > 0 {
						l.wantState(want)
					}
					l.wantLost(0, "the plugin is not run as it is")
				})
			})
		}
	}
}

// TestShutdownWaitsForAPluginThatMayComeBack: Shutdown waits for its share of the time,
// and logs the reason for an operator.
func TestShutdownWaitsForAPluginThatMayComeBack(t *testing.T) {
	live(t, func(int) (*fakePlugin, error) {
		return nil, &launch.Error{Reason: launch.ReasonNotPlugin, Path: "/fake/plugin", Err: errors.New("no network yet")}
	}, nil, func(l *lived) {
		endSpans(l.Host, 3)
		l.pass(time.Second)
		l.wantLost(3*time.Second, "no time is left: it had 3s, a part of SERVE_TRACING_STOP_TIMEOUT")
	})
}

// wantLost shuts down, and wants three spans lost for a reason after so long.
func (l *lived) wantLost(after time.Duration, why string) {
	l.t.Helper()
	begun := time.Now()
	err := l.Shutdown(context.Background())
	if took := time.Since(begun); took != after { // fake time
		l.t.Errorf("Shutdown took %v, want %v", took, after)
	}
	if want := `plugin "plugin": 3 spans not delivered (state draining): ` + why; fmt.Sprint(err) != want {
		l.t.Errorf("Shutdown = %v, want %s", err, want)
	}
	if got := l.plugin().Dropped["shutdown"]; got != 3 {
		l.t.Errorf("%d spans dropped by the shutdown, want 3", got)
	}
}

// TestHazard18NotTriedUntilTheFileChanges: faults that only another file removes.
func TestHazard18NotTriedUntilTheFileChanges(t *testing.T) {
	for reason, want := range map[launch.Reason]host.State{
		launch.ReasonVersion:      host.StateIncompatible,
		launch.ReasonArchitecture: host.StateIncompatible,
		launch.ReasonUntrusted:    host.StateUntrusted,
	} {
		t.Run(reason.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "plugin")
			write := func(text string) {
				if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			write("old")
			live(t, func(n int) (*fakePlugin, error) {
				if n == 1 || n == 3 {
					return nil, &launch.Error{Reason: reason, Path: path, Err: errors.New("no")}
				}
				return newFakePlugin(well), nil
			}, func(c *host.Config) { c.Plugins = path }, func(l *lived) {
				l.pass(time.Hour)
				l.wantState(want)
				if got := l.launches.Load(); got != 1 {
					t.Errorf("launched %d times", got)
				}
				write("a new one")
				l.pass(timeBetweenLooks + time.Second)
				l.wantState(host.StateReady)
			})
		})
	}
}

func TestStartJitterDelaysTheFirstStartAndNoShutdown(t *testing.T) {
	var first time.Duration
	begun := time.Now()
	live(t, func(int) (*fakePlugin, error) {
		first = time.Since(begun)
		return newFakePlugin(well), nil
	}, func(c *host.Config) { begun, c.StartJitter = time.Now(), time.Hour }, func(l *lived) {
		l.pass(time.Hour)
		l.wantState(host.StateReady)
		if first == 0 || first > time.Hour {
			t.Errorf("first start after %v", first)
		}
	})
	live(t, func(int) (*fakePlugin, error) { return newFakePlugin(well), nil },
		func(c *host.Config) { c.StartJitter = 1000 * time.Hour }, func(l *lived) {
			l.pass(time.Second)
			before := time.Now()
			_ = l.Shutdown(context.Background())
			if took := time.Since(before); took != 0 || l.launches.Load() != 0 {
				t.Errorf("Shutdown took %v, %d launches", took, l.launches.Load())
			}
		})
}

// TestPluginWithoutProcessHasNoChangedFile: the file of a plugin changes while it runs,
// and the trust check refuses the file after a crash. No process runs another file then.
func TestPluginWithoutProcessHasNoChangedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	live(t, func(n int) (*fakePlugin, error) {
		if n > 1 {
			return nil, &launch.Error{Reason: launch.ReasonUntrusted, Path: path, Err: errors.New("no")}
		}
		first := newFakePlugin(well)
		time.AfterFunc(time.Hour, first.die)
		return first, nil
	}, func(c *host.Config) { c.Plugins = path }, func(l *lived) {
		l.pass(time.Minute)
		write("a new one")
		l.pass(time.Minute)
		if !l.plugin().Changed {
			t.Error("the status does not report that the file of a running process has changed")
		}
		l.pass(time.Hour)
		l.wantState(host.StateUntrusted)
		if l.plugin().Changed {
			t.Error("the status reports a changed file, though no process runs")
		}
	})
}

// TestSlowEndDoesNotMakeALifeSteady: a process that was ready for nine and a half seconds
// was not ready for ten, also if its end takes a second.
func TestSlowEndDoesNotMakeALifeSteady(t *testing.T) {
	short, long := newFakePlugin(well), newFakePlugin(well)
	short.slowEnd = true
	live(t, func(n int) (*fakePlugin, error) {
		if n == 1 {
			return renewed(short), nil
		}
		return renewed(long), nil
	}, nil, func(l *lived) {
		l.pass(9500 * time.Millisecond)
		short.die()
		l.pass(15 * time.Second)
		wantLines(t, l.log.String(), map[string]int{"plugin is ready": 2, "plugin is steady again": 1})
	})
}
