package host_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/host"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/test/testplugin"
)

// away is the error of a plugin with a back end that does not answer.
var away error = &saidError{status.Error(codes.Unavailable, "connection refused")}

// backEnd is one that plays, for tests in fake time: it can be away.
type backEnd struct {
	plugin *fakePlugin
	took   time.Duration // of each call

	mu      sync.Mutex
	answer  error                // nil: it takes what it does not mind
	minds   func(id string) bool // nil: nothing
	running int
	// Since it was asked last: when calls began, and how many at a time there were.
	begun []time.Time
	most  int
}

func newBackEnd() *backEnd {
	b := &backEnd{plugin: newFakePlugin(nil), took: time.Millisecond}
	b.plugin.exportID = func(_ context.Context, id string) error { return b.export(number(id)) }
	return b
}

func (b *backEnd) export(id string) error {
	b.mu.Lock()
	b.running++
	b.most = max(b.most, b.running)
	b.begun = append(b.begun, time.Now())
	b.mu.Unlock()
	<-time.After(b.took)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if b.minds != nil && b.minds(id) {
		return away
	}
	return b.answer
}

// leave and comeBack change whether it is there.
func (b *backEnd) leave()    { b.says(away) }
func (b *backEnd) comeBack() { b.says(nil) }

// says sets the answer.
func (b *backEnd) says(answer error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = answer
}

// since returns the calls since the last since: their times, and the most at a time.
func (b *backEnd) since() (begun []time.Time, most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	begun, most = b.begun, b.most
	b.begun, b.most = nil, b.running
	return begun, most
}

// host is a started Host in front of it, which seals batches of ten spans.
func (b *backEnd) host(t *testing.T) *host.Host {
	return fakeHost(t, func(int) (*fakePlugin, error) { return b.plugin, nil }, func(c *host.Config) { c.BatchSpans = 10 })
}

// load seals a batch each tenth of a second.
func load(h *host.Host, length time.Duration) {
	for end := time.Now().Add(length); time.Now().Before(end); {
		batches(h, 1)
		<-time.After(100 * time.Millisecond)
	}
}

// TestBackEndThatIsAwayIsProbed: with one batch at a time and growing pauses,
// however many batches wait; and once it is there all of them go out.
func TestBackEndThatIsAwayIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackEnd()
		h := b.host(t)
		load(h, time.Second)
		b.leave()
		load(h, 10*time.Second) // time to know it, and for pauses to grow
		b.since()
		load(h, 40*time.Second)
		begun, most := b.since()
		if least, mostCalls := int(40*time.Second/longestProbe), int(40*time.Second/(longestProbe/2))+1; len(begun) < least || len(begun) > mostCalls {
			t.Errorf("%d calls in 40s of an outage, want %d to %d", len(begun), least, mostCalls)
		}
		if most != 1 {
			t.Errorf("%d calls at a time, want 1", most)
		}
		for i := 1; i < len(begun); i++ {
			if pause := begun[i].Sub(begun[i-1]); pause < longestProbe/2 || pause > longestProbe+b.took {
				t.Errorf("pause of %v before a probe, want %v with jitter", pause, longestProbe)
			}
		}
		b.comeBack()
		waited := time.Now()
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		// The pause of the last probe, and then the pause of its batch.
		if took := time.Since(waited); took > longestProbe+firstRetry+time.Second {
			t.Errorf("%v from the back end's return to the last batch", took)
		}
		if x := h.Stats().Exporters[0]; x.Delivered != x.Accepted || x.Accepted != 10*510 {
			t.Errorf("%d of %d spans delivered, want all 5100", x.Delivered, x.Accepted)
		}
		if _, most := b.since(); most < 2 {
			t.Errorf("%d calls at a time once it was back", most)
		}
		shutDown(t, h)
	})
}

// TestBatchesThatABackEndMindsMakeNoOutage: a back end that always refuses some batches
// gets the other batches without a pause.
func TestBatchesThatABackEndMindsMakeNoOutage(t *testing.T) {
	for _, minded := range [][]string{{"3"}, {"3", "4"}, {"3", "4", "5", "6", "7", "8", "9", "10", "11", "12"}} {
		for _, calls := range []uint32{1, 4} {
			t.Run(fmt.Sprintf("%d batches, %d calls", len(minded), calls), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBackEnd()
					b.plugin.limits = &pluginv1.Limits{MaxConcurrency: calls}
					b.minds = func(id string) bool { return slices.Contains(minded, id) }
					h := b.host(t)
					load(h, 20*time.Second)
					time.Sleep(longestProbe + time.Second)
					synctest.Wait()
					want := uint64(10 * (200 - len(minded)))
					if got := h.Stats().Exporters[0].Delivered; got != want {
						t.Errorf("%d spans delivered beside the batches that are put off, want %d", got, want)
					}
					time.Sleep(host.DefaultMaxAge)
					synctest.Wait()
					wantDropped(t, h, map[string]uint64{"max_age": uint64(10 * len(minded))})
					shutDown(t, h)
				})
			})
		}
	}
}

// TestOneBatchAloneMakesNoOutage: one batch cannot show whether the back end is away or
// refuses the batch. So the batch has its own pauses, and the next batch is sent at once.
func TestOneBatchAloneMakesNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackEnd()
		b.minds = func(id string) bool { return id == "1" }
		h := b.host(t)
		batches(h, 1)
		time.Sleep(50 * time.Second)
		batches(h, 1)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := h.Stats().Exporters[0].Delivered; got != 10 {
			t.Errorf("%d spans delivered, want those of the second batch", got)
		}
		time.Sleep(host.DefaultMaxAge)
		synctest.Wait()
		shutDown(t, h)
	})
}

// TestBackEndThatFailsAtRandom takes one batch in five: it gets all that it would
// take, at the pace of each. Asked with one batch at a time it would get less than
// half of that, and the queue would overflow.
func TestBackEndThatFailsAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackEnd()
		r := rand.New(rand.NewPCG(1, 2))
		b.minds = func(string) bool { return r.IntN(5) > 0 }
		h := b.host(t)
		load(h, 10*time.Second) // time for those to gather that wait for another try
		before := h.Stats().Exporters[0]
		load(h, 2*time.Minute)
		after := h.Stats().Exporters[0]
		came, went := after.Accepted-before.Accepted, after.Delivered-before.Delivered
		if went < came*2/5 {
			t.Errorf("%d of %d spans delivered", went, came)
		}
		b.mu.Lock()
		b.minds = nil
		b.mu.Unlock()
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		shutDown(t, h)
	})
}

// TestAnswerThatIsFinalEndsAnOutage: a back end that refuses a batch is reachable.
func TestAnswerThatIsFinalEndsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackEnd()
		b.leave()
		h := b.host(t)
		load(h, 5*time.Second)
		b.says(&saidError{status.Error(codes.Unauthenticated, "who are you")})
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if got := h.Stats().Exporters[0].Rejected["UNAUTHENTICATED"]; got != 500 {
			t.Errorf("%d spans rejected, want all 500", got)
		}
		shutDown(t, h)
	})
}

// TestRetryAfterInAnOutage: after a long pause, a back end gets one batch, and not one
// for each call.
func TestRetryAfterInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackEnd()
		b.says(retryLater(10 * time.Second))
		h := b.host(t)
		load(h, 41*time.Second)
		b.since()
		load(h, 40*time.Second)
		if begun, most := b.since(); len(begun) != 4 || most != 1 {
			t.Errorf("%d calls in 40s, %d at a time; want one each 10s", len(begun), most)
		}
		_ = h.Shutdown(context.Background()) // all is lost
	})
}

// TestBackEndReturnsDuringTheEnd: little time is left, so pauses do not grow, and the
// waiting batches are delivered.
func TestBackEndReturnsDuringTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackEnd()
		h := b.host(t)
		b.leave()
		load(h, 30*time.Second)
		time.AfterFunc(2*time.Second, b.comeBack) // of the 3 s that the default leaves
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if x := h.Stats().Exporters[0]; x.Delivered != 3000 {
			t.Errorf("%d delivered, dropped %v; want all 3000", x.Delivered, x.Dropped)
		}
	})
}

// TestNewProcessBeginsWithoutAnOutage: it may have another back end.
func TestNewProcessBeginsWithoutAnOutage(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, h *host.Host, first *backEnd){
		"reload": func(t *testing.T, h *host.Host, _ *backEnd) {
			t.Helper()
			if err := h.Reload(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"crash": func(_ *testing.T, _ *host.Host, first *backEnd) { first.plugin.die() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second := newBackEnd(), newBackEnd()
				first.leave()
				h := fakeHost(t, func(n int) (*fakePlugin, error) {
					if n == 1 {
						return first.plugin, nil
					}
					return second.plugin, nil
				}, func(c *host.Config) { c.BatchSpans = 10 })
				load(h, 30*time.Second)
				next(t, h, first)
				time.Sleep(firstRestart + time.Second)
				synctest.Wait()
				begun, _ := second.since()
				if len(begun) < 300-retriesAtOnce {
					t.Errorf("the new process has had %d batches, want all that are due", len(begun))
				}
				if err := h.ForceFlush(t.Context()); err != nil {
					t.Error(err)
				}
				if got := h.Stats().Exporters[0].Delivered; got != 3000 {
					t.Errorf("%d spans delivered, want 3000", got)
				}
				shutDown(t, h)
			})
		})
	}
}

// TestOutageWithRealProcesses: the back end is killed, batches come in, and it
// is started again. Calls are bounded by how long it was away, and each batch
// arrives once.
func TestOutageWithRealProcesses(t *testing.T) {
	t.Parallel() // it waits for processes
	c := newChain(t, "nowhere")
	r := startHost(t, nil, c.relay)
	r.waitReady(0)
	r.spans("before", 10)
	r.flush()
	c.killBackEnd()
	const sealed = 40
	for i := range sealed {
		r.spans(fmt.Sprintf("away%d", i), 5)
		r.Seal()
	}
	failed := func() uint64 { return r.Stats().Exporters[0].Answers["UNAVAILABLE"] }
	testplugin.WaitFor(t, "failed calls", func() bool { return failed() >= outageMisses })
	begun := time.Now()
	testplugin.WaitFor(t, "the time of an outage", func() bool { return time.Since(begun) > outageTime })
	first := failed()
	testplugin.WaitFor(t, "a failed call, which makes the outage", func() bool { return failed() > first })
	begun, first = time.Now(), failed()
	last := first
	testplugin.WaitFor(t, "some probes", func() bool { last = failed(); return last >= first+3 })
	// Those of before may be on their way still.
	if took := time.Since(begun); last-first > uint64(wire.DefaultMaxConcurrency+1+took/(firstProbe/2)) {
		t.Errorf("%d calls in %v of an outage", last-first, took)
	}
	c.startBackEnd()
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": 10 + 5*sealed})
	times := map[string]int{}
	for _, batch := range c.stored() {
		for _, span := range batch.Spans {
			times[span]++
		}
	}
	for span, n := range times {
		if n != 1 {
			t.Errorf("span %s arrived %d times", span, n)
		}
	}
	if len(times) != 10+5*sealed {
		t.Errorf("%d spans arrived, want %d", len(times), 10+5*sealed)
	}
}
