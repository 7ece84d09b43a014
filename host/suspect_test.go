package host_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"

	"github.com/servetrace/servetrace/host"
)

// errBroken is gRPC's error of a call on a connection that has ended.
var errBroken = status.Error(codes.Unavailable, "error reading from server: EOF")

// ward simulates the processes of one plugin, one after another, and models the host's
// reaction to their crashes. It fails the test at once if a batch comes that must not
// come, or comes beside others. The number of its sealing identifies a batch, from 1.
type ward struct {
	t *testing.T
	// act handles a batch; nil delivers it. It may kill the process.
	act func(w *ward, ctx context.Context, f *fakePlugin, id string) error

	mu          sync.Mutex
	running     map[string]bool // ids
	suspects    map[string]bool
	alone       map[string]int
	quarantined map[string]bool
	delivered   map[string]int
	order       []string // of calls
	crashes     int
}

func newWard(t *testing.T, act func(w *ward, ctx context.Context, f *fakePlugin, id string) error) *ward {
	return &ward{t: t, act: act, running: map[string]bool{}, suspects: map[string]bool{}, alone: map[string]int{},
		quarantined: map[string]bool{}, delivered: map[string]int{}}
}

// number is the batch of an id, without the host's name: "7", or "7.2" of a part.
func number(id string) string { return id[strings.IndexByte(id, '-')+1:] }

// process is the next one.
func (w *ward) process() *fakePlugin {
	f := newFakePlugin(nil)
	f.begin = func(id string) error { return w.begin(f, number(id)) }
	f.exportID = func(ctx context.Context, id string) error { return w.export(ctx, f, number(id)) }
	f.health = func(context.Context) error {
		if gone(f) {
			return errBroken
		}
		return nil
	}
	return f
}

func gone(f *fakePlugin) bool {
	select {
	case <-f.Done():
		return true
	default:
		return false
	}
}

// begin is the moment from which the process has the batch.
func (w *ward) begin(f *fakePlugin, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gone(f) {
		return errBroken
	}
	w.order = append(w.order, id)
	switch {
	case w.quarantined[id]:
		w.t.Errorf("batch %s is sent though it must be in quarantine", id)
	case w.suspects[id] && len(w.running) > 0:
		w.t.Errorf("suspect %s is sent beside %v", id, w.running)
	case !w.suspects[id] && len(w.suspects) > 0:
		w.t.Errorf("batch %s is sent before the suspects %v", id, w.suspects)
	}
	w.running[id] = true
	return nil
}

func (w *ward) export(ctx context.Context, f *fakePlugin, id string) error {
	err := w.act(w, ctx, f, id)

	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running[id] {
		return errBroken // it died of it, or of another
	}
	delete(w.running, id)
	delete(w.suspects, id)
	said := &saidError{}
	if err == nil || errors.As(err, &said) {
		delete(w.alone, id)
	}
	if err == nil {
		w.delivered[id]++
	}
	return err
}

// crash ends the process.
func (w *ward) crash(f *fakePlugin) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gone(f) {
		return
	}
	w.crashes++
	for id := range w.running {
		w.suspects[id] = true
		if len(w.running) == 1 {
			w.alone[id]++
		}
		if w.alone[id] == crashesAlone {
			delete(w.suspects, id)
			w.quarantined[id] = true
		}
	}
	clear(w.running)
	f.die()
}

// host is a started Host that seals batches of ten spans.
func (w *ward) host(change func(*host.Config)) *host.Host {
	return fakeHost(w.t, func(int) (*fakePlugin, error) { return w.process(), nil }, func(c *host.Config) {
		c.BatchSpans, c.MaxAge = 10, 24*time.Hour
		if change != nil {
			change(c)
		}
	})
}

// batches ends the spans of n batches; each is sealed before the next.
func batches(h *host.Host, n int) {
	for range n {
		endSpans(h, 10)
		h.Seal()
	}
}

// wantDropped compares the host's dropped spans, and checks the accounting.
func wantDropped(t *testing.T, h *host.Host, want map[string]uint64) {
	t.Helper()
	s := h.Stats()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, s.Exporters[0].Dropped); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
}

func shutDown(t *testing.T, h *host.Host) {
	t.Helper()
	if err := h.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := h.Stats().Check(); err != nil {
		t.Error(err)
	}
}

// TestSuspectsAreSentAloneAndFirst: four batches are in flight when the first
// of them crashes the plugin, twice more when it is alone.
func TestSuspectsAreSentAloneAndFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, func(w *ward, _ context.Context, f *fakePlugin, id string) error {
			if id == "1" {
				time.Sleep(10 * time.Millisecond)
				w.crash(f)
			}
			time.Sleep(time.Second)
			return nil
		})
		up := make(chan struct{})
		h := fakeHost(t, func(int) (*fakePlugin, error) { <-up; return w.process(), nil }, func(c *host.Config) { c.BatchSpans = 10 })
		batches(h, 8)
		close(up)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		// The three others come before the one that crashes alone.
		slices.Sort(w.order[:4])
		want := []string{"1", "2", "3", "4", "1", "2", "3", "4", "1", "5", "6", "7", "8"}
		if got := w.order; w.crashes != 3 || len(got) != len(want) {
			t.Errorf("%d crashes, calls %v, want 3 and %v", w.crashes, got, want)
		}
		wantDropped(t, h, map[string]uint64{"quarantined": 10})
		if x := h.Stats().Exporters[0]; x.Delivered != 70 || x.Quarantined != 1 || x.State != host.StateReady || h.Stats().Bytes != 0 {
			t.Errorf("accounting: %+v, %d bytes charged", x, h.Stats().Bytes)
		}
		shutDown(t, h)
	})
}

// TestAnswerBeforeTheEndCounts: an answer of the process is read although its end is
// already known. The batch is neither lost nor suspected.
func TestAnswerBeforeTheEndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, mu := map[string]int{}, sync.Mutex{}
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			f := newFakePlugin(nil)
			f.exportID = func(ctx context.Context, id string) error {
				mu.Lock()
				calls[number(id)]++
				mu.Unlock()
				if n > 1 {
					return nil
				}
				if number(id) == "1" { // answered before it ended, read after
					<-f.Done()
					select {
					case <-time.After(timeOfLastAnswers / 2):
						return nil
					case <-ctx.Done():
						return errBroken
					}
				}
				time.Sleep(time.Second)
				f.Kill("crash")
				<-ctx.Done()
				return errBroken
			}
			return f, nil
		}, func(c *host.Config) { c.BatchSpans = 10 })
		batches(h, 2)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if calls["1"] != 1 || calls["2"] != 2 {
			t.Errorf("calls by batch: %v, want 1 of the first and 2 of the second", calls)
		}
		if got := h.Stats().Exporters[0]; got.Delivered != 20 || got.Answers["OK"] != 2 || got.Answers["LOST"] != 1 || got.Calls.Count != 3 {
			t.Errorf("accounting: %+v", got)
		}
		shutDown(t, h)
	})
}

// TestSilenceThatIsKilledIsACrash: it is also a crash for the batch whose call found it.
func TestSilenceThatIsKilledIsACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, func(w *ward, _ context.Context, f *fakePlugin, id string) error {
			if id == "2" { // from here on nothing is answered
				<-f.Done()
			}
			return nil
		})
		h := fakeHost(t, func(int) (*fakePlugin, error) {
			f := w.process()
			silent := func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.running["2"]
			}
			export := f.exportID
			f.exportID = func(ctx context.Context, id string) error {
				answer := make(chan error, 1)
				go func() { answer <- export(ctx, id) }()
				select {
				case err := <-answer:
					return err
				case <-ctx.Done():
					return status.FromContextError(ctx.Err()).Err()
				}
			}
			f.health = func(ctx context.Context) error {
				if !silent() {
					return nil
				}
				<-ctx.Done()
				return status.FromContextError(ctx.Err()).Err()
			}
			f.limits = &pluginv1.Limits{MaxConcurrency: 1}
			f.onKill = func() { time.AfterFunc(100*time.Millisecond, func() { w.crash(f) }) }
			return f, nil
		}, func(c *host.Config) { c.BatchSpans, c.MaxAge = 10, time.Hour })
		batches(h, 3)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		wantDropped(t, h, map[string]uint64{"quarantined": 10})
		if x := h.Stats().Exporters[0]; x.Delivered != 20 || x.Crashes != 2 {
			t.Errorf("%d delivered, %d crashes, want 20 and 2", x.Delivered, x.Crashes)
		}
		shutDown(t, h)
	})
}

// TestSuspectThatGetsAnAnswerIsNoneAnyMore: a batch that the back end refuses for now
// delays no other batch.
func TestSuspectThatGetsAnAnswerIsNoneAnyMore(t *testing.T) {
	for name, answer := range map[string]func(context.Context) error{
		"retryable": func(context.Context) error { return &saidError{status.Error(codes.Unavailable, "503")} },
		"deadline":  func(ctx context.Context) error { <-ctx.Done(); return status.FromContextError(ctx.Err()).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWard(t, func(w *ward, ctx context.Context, f *fakePlugin, id string) error {
					switch {
					case id != "1":
						return nil
					case w.crashes == 0:
						w.crash(f)
						return nil
					}
					return answer(ctx)
				})
				h := w.host(func(c *host.Config) { c.MaxAge = time.Minute })
				batches(h, 1)
				time.Sleep(5 * time.Second) // the second process has it
				batches(h, 5)
				time.Sleep(2 * host.DefaultExportTimeout)
				synctest.Wait()
				if got := h.Stats().Exporters[0].Delivered; got != 50 {
					t.Errorf("%d spans delivered beside one that is sent again, want 50", got)
				}
				time.Sleep(time.Minute + host.DefaultExportTimeout)
				synctest.Wait()
				wantDropped(t, h, map[string]uint64{"max_age": 10})
				shutDown(t, h)
			})
		})
	}
}

// TestSuspectsGrowOld: of a plugin that does not come back, and ForceFlush does
// not wait for them longer than that.
func TestSuspectsGrowOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, func(w *ward, _ context.Context, f *fakePlugin, _ string) error {
			time.Sleep(time.Second)
			w.crash(f)
			return nil
		})
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			if n > 1 {
				return nil, errors.New("no such plugin")
			}
			return w.process(), nil
		}, func(c *host.Config) { c.BatchSpans = 10 })
		batches(h, 3)
		start := time.Now()
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > host.DefaultMaxAge+time.Second {
			t.Errorf("ForceFlush took %v", took)
		}
		wantDropped(t, h, map[string]uint64{"max_age": 30})
		if got := h.Stats().Bytes; got != 0 {
			t.Errorf("%d bytes still charged", got)
		}
		shutDown(t, h)
	})
}

// TestHostThatStopsSuspectsNothing: a plugin that dies while the host stops makes no
// batch a suspect.
func TestHostThatStopsSuspectsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, nil)
		w.act = func(w *ward, ctx context.Context, f *fakePlugin, _ string) error {
			if w.crashes > 0 {
				<-ctx.Done()
			}
			w.crash(f)
			return nil
		}
		h := w.host(func(c *host.Config) { c.ExportTimeout = time.Hour })
		batches(h, 1)
		time.Sleep(time.Second)
		if err := h.Shutdown(context.Background()); err == nil {
			t.Error("no error although spans are lost")
		}
		wantDropped(t, h, map[string]uint64{"shutdown": 10})
	})
}

// TestPartsOfASuspectAreSentAlone: the next process takes less at a time.
func TestPartsOfASuspectAreSentAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			f := newFakePlugin(nil)
			f.exportID = func(ctx context.Context, id string) error {
				time.Sleep(time.Second)
				f.die()
				return errBroken
			}
			if n == 1 {
				return f, nil
			}
			f.limits = &pluginv1.Limits{MaxBatchSpans: 3}
			f.exportID = func(ctx context.Context, id string) error {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
				return nil
			}
			return f, nil
		}, func(c *host.Config) { c.BatchSpans = 10 })
		batches(h, 2)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if most != 1 {
			t.Errorf("%d parts of suspects at a time, want 1", most)
		}
		if got := h.Stats().Exporters[0].Delivered; got != 20 {
			t.Errorf("%d spans delivered, want 20", got)
		}
		shutDown(t, h)
	})
}

// TestPartIsQuarantinedByItself: the rest of its batch is delivered.
func TestPartIsQuarantinedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, func(w *ward, _ context.Context, f *fakePlugin, id string) error {
			time.Sleep(10 * time.Millisecond)
			if id == "1.2" {
				w.crash(f)
			}
			return nil
		})
		h := fakeHost(t, func(int) (*fakePlugin, error) {
			f := w.process()
			f.limits = &pluginv1.Limits{MaxBatchSpans: 3, MaxConcurrency: 2}
			return f, nil
		}, func(c *host.Config) { c.BatchSpans, c.MaxAge = 10, time.Hour })
		batches(h, 2)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		wantDropped(t, h, map[string]uint64{"quarantined": 3})
		if got := h.Stats(); got.Exporters[0].Delivered != 17 || got.Bytes != 0 {
			t.Errorf("%d spans delivered, %d bytes charged, want 17 and 0", got.Exporters[0].Delivered, got.Bytes)
		}
		shutDown(t, h)
	})
}

// TestAttachedPluginHasNoQuarantine: batches without an answer at the end of a connection
// are sent again after other batches, and dropped when they are too old.
func TestAttachedPluginHasNoQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := 0
		h := fakeHost(t, func(int) (*fakePlugin, error) {
			f := newFakePlugin(nil)
			f.limits = &pluginv1.Limits{MaxConcurrency: 1}
			f.exportID = func(ctx context.Context, id string) error {
				if number(id) != "1" {
					return nil
				}
				tried++
				f.Kill("crash")
				<-ctx.Done()
				return errBroken
			}
			return f, nil
		}, func(c *host.Config) { c.Plugins, c.BatchSpans = "unix:///fake/socket", 10 })
		batches(h, 20)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := h.Stats().Exporters[0].Delivered; got != 190 {
			t.Errorf("%d spans delivered beside the batch that breaks the connection, want 190", got)
		}
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		wantDropped(t, h, map[string]uint64{"max_age": 10})
		if tried < 5 {
			t.Errorf("the batch was tried %d times in a minute", tried)
		}
		shutDown(t, h)
	})
}

// TestSuspectsAgainstModel has random batches that crash a plugin, are slow, are refused
// for now, or are answered beside a crash, and a back end that may be away for a while. A
// model computes which batch must be sent when. In the end every batch is delivered or in
// quarantine, and exactly the batches that crash are in quarantine.
func TestSuspectsAgainstModel(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				rng := rand.New(rand.NewPCG(seed, 5))
				draw := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return rng.IntN(n)
				}
				poison := map[string]bool{}
				const sealed = 60
				for range draw(5) {
					poison[fmt.Sprint(1+draw(sealed))] = true
				}
				away, back := time.Duration(draw(2000))*time.Millisecond, time.Duration(draw(6000))*time.Millisecond
				begun := time.Now()
				w := newWard(t, func(w *ward, ctx context.Context, f *fakePlugin, id string) error {
					time.Sleep(time.Duration(draw(50)) * time.Millisecond)
					if poison[id] {
						w.crash(f)
						return nil
					}
					if at := time.Since(begun); away < at && at < back {
						return &saidError{status.Error(codes.Unavailable, "connection refused")}
					}
					switch draw(10) {
					case 0:
						return &saidError{status.Error(codes.Unavailable, "503")}
					case 1:
						time.Sleep(time.Second)
					}
					return nil
				})
				calls := uint32(1 + draw(8))
				h := fakeHost(t, func(int) (*fakePlugin, error) {
					f := w.process()
					f.limits = &pluginv1.Limits{MaxConcurrency: calls}
					return f, nil
				}, func(c *host.Config) { c.BatchSpans, c.MaxAge = 10, 24*time.Hour })
				for range sealed {
					batches(h, 1)
					time.Sleep(time.Duration(draw(20)) * time.Millisecond)
					if err := h.Stats().Check(); err != nil {
						t.Error(err)
					}
				}
				if err := h.ForceFlush(t.Context()); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(poison, w.quarantined); diff != "" {
					t.Errorf("quarantined (-want +got):\n%s", diff)
				}
				x := h.Stats().Exporters[0]
				if x.Delivered != uint64(10*(sealed-len(poison))) || x.Dropped["quarantined"] != uint64(10*len(poison)) || h.Stats().Bytes != 0 {
					t.Errorf("accounting with %d batches that crash: %+v; %d bytes charged", len(poison), x, h.Stats().Bytes)
				}
				shutDown(t, h)
			})
		})
	}
}

// TestPoisonBatchesDoNotBreakThePlugin: two batches in flight crash the plugin, five
// times within seconds. The batches are to blame, so the other batches do not wait.
func TestPoisonBatchesDoNotBreakThePlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, func(w *ward, _ context.Context, f *fakePlugin, id string) error {
			time.Sleep(10 * time.Millisecond)
			if id == "1" || id == "3" {
				time.Sleep(time.Millisecond) // after the answers for those beside them
				w.crash(f)
			}
			return nil
		})
		up := make(chan struct{})
		h := fakeHost(t, func(int) (*fakePlugin, error) { <-up; return w.process(), nil }, func(c *host.Config) { c.BatchSpans = 10 })
		batches(h, 8)
		close(up)
		begun := time.Now()
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("took %v: the breaker was open", took)
		}
		wantDropped(t, h, map[string]uint64{"quarantined": 20})
		if x := h.Stats().Exporters[0]; w.crashes != 5 || x.Crashes != 5 || x.Delivered != 60 || x.State != host.StateReady {
			t.Errorf("%d crashes, %d counted, %d spans delivered, %v; want 5, 5, 60, ready", w.crashes, x.Crashes, x.Delivered, x.State)
		}
		shutDown(t, h)
	})
}

// TestPluginThatCrashesOnEverythingBreaks, though its batches are quarantined
// one after the other: nothing speaks for it.
func TestPluginThatCrashesOnEverythingBreaks(t *testing.T) {
	for _, calls := range []uint32{1, 4, 64} {
		t.Run(fmt.Sprint(calls), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWard(t, func(w *ward, _ context.Context, f *fakePlugin, _ string) error {
					time.Sleep(10 * time.Millisecond)
					w.crash(f)
					return nil
				})
				h := fakeHost(t, func(int) (*fakePlugin, error) {
					f := w.process()
					f.limits = &pluginv1.Limits{MaxConcurrency: calls}
					return f, nil
				}, func(c *host.Config) { c.BatchSpans, c.MaxAge = 10, time.Hour })
				batches(h, 10)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if x := h.Stats().Exporters[0]; x.State != host.StateBroken || x.Crashes != crashesToBreak {
					t.Errorf("%v after %d crashes, want broken after %d", x.State, x.Crashes, crashesToBreak)
				}
				_ = h.Shutdown(context.Background()) // all is lost
				if err := h.Stats().Check(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
