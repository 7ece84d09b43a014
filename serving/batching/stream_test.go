package batching

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// countTo sends each request the numbers up to its own, one a second to all.
func (b *book) countTo(_ context.Context, batch []*Request[int, string]) error {
	var ins []int
	for _, r := range batch {
		ins = append(ins, r.In)
	}
	b.note(ins)
	for i, left := 1, len(batch); left > 0; i++ {
		<-time.After(time.Second) // in bubbles, where it takes no time
		for _, r := range batch {
			if r.Send(strconv.Itoa(i)) && i < r.In {
				continue
			}
			if i == r.In {
				left--
				r.End(nil)
			}
		}
	}
	return nil
}

// follow ranges over a stream in a goroutine of its own, and gives what came of
// it: outputs, an error, and when it was over.
func follow(seq iter.Seq2[string, error]) <-chan answer {
	began := time.Now()
	ch := make(chan answer, 1)
	go func() {
		var a answer
		for out, err := range seq {
			a.Out += out
			if err != nil {
				a.Err = err.Error()
			}
		}
		a.At = time.Since(began)
		ch <- a
	}()
	return ch
}

func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRig(), newBook()
		b := NewStream("count", log.countTo, WithMaxBatchSize(3), WithWaitTimeout(time.Hour))
		var answers []<-chan answer
		for _, n := range []int{3, 1, 2} {
			answers = append(answers, follow(b.Stream(r.call(t.Context(), ""), n)))
			synctest.Wait()
		}
		want := []answer{{Out: "123", At: 3 * time.Second}, {Out: "1", At: time.Second}, {Out: "12", At: 2 * time.Second}}
		if diff := cmp.Diff(want, []answer{<-answers[0], <-answers[1], <-answers[2]}); diff != "" {
			t.Errorf("streams (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"[3 1 2] at 0s"}, log.all()); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

// TestStreamEnds has a batch of two end in each way there is.
func TestStreamEnds(t *testing.T) {
	wrong := errors.New("no luck")
	type request = *Request[int, string]
	for _, tc := range []struct {
		name   string
		f      func([]request) error
		want   []string
		logged int
	}{
		{"well", func(rs []request) error { rs[0].Send("a"); rs[1].Send("b"); return nil }, []string{"a", "b"}, 0},
		{"nothing sent", func([]request) error { return nil }, []string{"", ""}, 0},
		{"error: for those that have not ended", func(rs []request) error {
			rs[0].Send("a")
			rs[0].End(nil)
			rs[1].Send("b")
			return wrong
		}, []string{"a", "b no luck"}, 0},
		{"an error for one", func(rs []request) error {
			rs[0].Send("a")
			rs[0].End(wrong)
			rs[1].Send("b")
			return nil
		}, []string{"a no luck", "b"}, 0},
		{"the first end counts", func(rs []request) error {
			rs[0].End(nil)
			rs[0].End(wrong)
			return wrong
		}, []string{"", " no luck"}, 0},
		{"nothing after the end", func(rs []request) error {
			rs[0].End(nil)
			if rs[0].Send("a") {
				return errors.New("sent after the end")
			}
			return nil
		}, []string{"", ""}, 0},
		{"panic", func(rs []request) error { rs[0].Send("a"); panic("oh") }, []string{"a panic: oh", " panic: oh"}, 1},
		{"Goexit", func([]request) error { runtime.Goexit(); return nil },
			[]string{" batched function called runtime.Goexit", " batched function called runtime.Goexit"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				b := NewStream("f", func(_ context.Context, batch []request) error { return tc.f(batch) },
					WithMaxBatchSize(2), WithWaitTimeout(time.Hour))
				for range 2 {
					one := follow(b.Stream(r.call(t.Context(), ""), 1))
					synctest.Wait()
					other := follow(b.Stream(r.call(t.Context(), ""), 2))
					var got []string
					for _, ch := range []<-chan answer{one, other} {
						a := <-ch
						if a.Err != "" {
							a.Out += " " + a.Err
						}
						got = append(got, a.Out)
					}
					if diff := cmp.Diff(tc.want, got); diff != "" {
						t.Errorf("streams (-want +got):\n%s", diff)
					}
				}
				if n := r.log.Count("batched function panicked"); n != 2*tc.logged {
					t.Errorf("%d panics of two are logged, want %d", n, 2*tc.logged)
				}
			})
		})
	}
}

// TestConsumersLeave has one of two break, or end its context: the function is
// told with the next output, and the other gets everything.
func TestConsumersLeave(t *testing.T) {
	gone := errors.New("gone fishing")
	for _, how := range []string{"break", "context", "panic"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				var sent []bool
				b := NewStream("f", func(_ context.Context, batch []*Request[int, string]) error {
					for i := range 4 {
						time.Sleep(time.Second)
						sent = append(sent, batch[0].Send(strconv.Itoa(i)))
						batch[1].Send(strconv.Itoa(i))
					}
					return nil
				}, WithMaxBatchSize(2), WithWaitTimeout(time.Hour))
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				left := make(chan string, 1)
				go func() {
					var got string
					defer func() { left <- fmt.Sprint(got, recover()) }()
					for out, err := range b.Stream(r.call(ctx, ""), 1) {
						got += out
						if err != nil {
							got += err.Error()
						}
						if out != "1" {
							continue
						}
						switch how {
						case "break":
							return
						case "panic":
							panic(how)
						}
						cancel(gone)
					}
				}()
				synctest.Wait()
				other := follow(b.Stream(r.call(t.Context(), ""), 2))
				if a := <-other; a.Out != "0123" {
					t.Errorf("who stays: %+v", a)
				}
				want := map[string]string{"break": "01<nil>", "context": "01gone fishing<nil>", "panic": "01panic"}[how]
				if got := <-left; got != want {
					t.Errorf("who leaves: %q, want %q", got, want)
				}
				if diff := cmp.Diff([]bool{true, true, false, false}, sent); diff != "" {
					t.Errorf("Send to who has left (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestAllConsumersLeave ends the context of the batch.
func TestAllConsumersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		ended := make(chan error, 1)
		b := NewStream("f", func(ctx context.Context, batch []*Request[int, string]) error {
			for _, r := range batch {
				r.Send("x")
			}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		}, WithMaxBatchSize(2), WithWaitTimeout(time.Hour))
		for range 2 {
			go func() {
				for out, err := range b.Stream(r.call(t.Context(), ""), 1) {
					if out != "x" || err != nil {
						t.Errorf("%q, %v", out, err)
					}
					break
				}
			}()
		}
		if err := <-ended; !errors.Is(err, errNoCallers) {
			t.Errorf("the batch's context ended by: %v", err)
		}
	})
}

// TestContextAfterStreamsEnd: a function that has answered everybody may go on; one
// whose other consumers have left is told.
func TestContextAfterStreamsEnd(t *testing.T) {
	for _, leave := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig()
			after := make(chan error, 1)
			b := NewStream("f", func(ctx context.Context, batch []*Request[int, string]) error {
				batch[0].Send("x")
				batch[1].End(nil)
				if !leave {
					batch[0].End(nil)
				}
				time.Sleep(time.Second)
				after <- context.Cause(ctx)
				return nil
			}, WithMaxBatchSize(2), WithWaitTimeout(time.Hour))
			go func() {
				for out, err := range b.Stream(r.call(t.Context(), ""), 1) {
					if out != "x" || err != nil {
						t.Errorf("%q, %v", out, err)
					}
					if leave {
						break
					}
				}
			}()
			synctest.Wait()
			<-follow(b.Stream(r.call(t.Context(), ""), 2))
			if err := <-after; errors.Is(err, errNoCallers) != leave || !leave && err != nil {
				t.Errorf("leave %v: the batch's context ended by: %v", leave, err)
			}
		})
	}
}

// TestConsumerLeavesTheQueue is taken out, and its request is never begun.
func TestConsumerLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRig(), newBook()
		b := NewStream("count", log.countTo, WithWaitTimeout(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a := <-follow(b.Stream(r.call(ctx, ""), 1))
		if a.Err != "context deadline exceeded" || a.At != time.Second {
			t.Errorf("%+v", a)
		}
		time.Sleep(time.Hour)
		if got := log.all(); len(got) != 0 {
			t.Errorf("batches %v", got)
		}
	})
}

// TestSlowConsumers: one of two takes an output a second only, while they are
// sent as fast as may be. What is lost is the slow one's, after its patience; the
// other is held up for as long, in all.
func TestSlowConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		const outputs = 1000
		var took time.Duration
		b := NewStream("f", func(_ context.Context, batch []*Request[int, string]) error {
			began := time.Now()
			for range outputs {
				for _, r := range batch {
					r.Send("x")
				}
			}
			took = time.Since(began)
			return nil
		}, WithMaxBatchSize(2), WithWaitTimeout(time.Hour), WithBuffer(4), WithPatience(5500*time.Millisecond))
		got := make(chan string, 1)
		go func() {
			n := 0
			for _, err := range b.Stream(r.call(t.Context(), ""), 1) {
				if err != nil {
					got <- fmt.Sprint(n, " ", err)
					return
				}
				n++
				time.Sleep(time.Second)
			}
		}()
		synctest.Wait()
		other := <-follow(b.Stream(r.call(t.Context(), ""), 2))
		if len(other.Out) != outputs || other.At != 5500*time.Millisecond || took != other.At {
			t.Errorf("the other got %d outputs after %v, the batch took %v", len(other.Out), other.At, took)
		}
		// Taken are one at once and one in each of the five seconds waited for, and
		// then the four in the buffer.
		if want := "10 stream cut off: its consumer is too slow for the batch"; servingtest.Receive(t, "the slow one", got) != want {
			t.Errorf("want %s", want)
		}
	})
}

func TestStreamErrorsBeforeTheBatch(t *testing.T) {
	r := newRig()
	f := func(context.Context, []*Request[int, string]) error { return nil }
	stopped := newRig()
	stopped.replica.Stop(t.Context())
	for _, tc := range []struct {
		b    *StreamBatcher[int, string]
		ctx  context.Context //nolint:containedctx // it is the case
		want string
	}{
		{NewStream("f", f, WithMaxBatchSize(0)), r.call(t.Context(), ""), `batcher "f": max batch size 0: want 1 or more`},
		{NewStream("f", f), t.Context(), `batcher "f": the context belongs to no replica: pass the context of a request, or one derived from it`},
		{NewStream("f", f), stopped.call(t.Context(), ""), `batcher "f": the replica has stopped`},
	} {
		if a := <-follow(tc.b.Stream(tc.ctx, 1)); a.Err != tc.want || a.Out != "" {
			t.Errorf("%+v, want %s", a, tc.want)
		}
	}
}

// TestItemTooLargeForAStream ends the stream with the error.
func TestItemTooLargeForAStream(t *testing.T) {
	r := newRig()
	b := NewStream("f", func(context.Context, []*Request[int, string]) error { return nil },
		WithSizeFunc(func(ins []int) int { return ins[0] }))
	for _, err := range b.Stream(r.call(t.Context(), ""), 11) {
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("error %v", err)
		}
	}
}

// TestStreamPanicHasStack where the consumer may look for it.
func TestStreamPanicHasStack(t *testing.T) {
	r := newRig()
	b := NewStream("f", func(context.Context, []*Request[int, string]) error { panic("oh") })
	for _, err := range b.Stream(r.call(t.Context(), ""), 1) {
		if p, ok := errors.AsType[*tracing.PanicError](err); !ok || len(p.Stack) == 0 {
			t.Errorf("error %#v", err)
		}
	}
}
