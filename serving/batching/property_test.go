package batching

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// once counts how often each input was run.
type once struct {
	mu   sync.Mutex
	runs map[int]int
}

func (o *once) run(in int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runs[in]++
}

// check reports inputs that ran more than once, and those with an answer that
// did not run.
func (o *once) check(t *testing.T, answered *sync.Map) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for in, n := range o.runs {
		if n > 1 {
			t.Errorf("%d ran %d times", in, n)
		}
	}
	answered.Range(func(in, _ any) bool {
		if o.runs[in.(int)] != 1 {
			t.Errorf("%d has an answer and ran %d times", in, o.runs[in.(int)])
		}
		return true
	})
}

var errByChance = errors.New("by chance")

// TestManyRequestsConcurrentSafe throws requests at batchers that fail, panic
// and are tuned by chance, from callers who leave by chance: each input is run
// at most once, in a batch that is not too large, by no more than the permitted
// number at a time; each caller gets its own answer, or a reason; and nothing is
// left behind, which goleak sees to.
func TestManyRequestsConcurrentSafe(t *testing.T) {
	const callers, each, concurrent = 40, 50, 3
	sizeOf := func(ins []int) int {
		sum := 0
		for _, in := range ins {
			sum += 1 + in%4
		}
		return sum
	}
	for _, sized := range []bool{false, true} {
		t.Run(fmt.Sprintf("sized=%v", sized), func(t *testing.T) {
			r := newRig()
			ran := &once{runs: map[int]int{}}
			var largest, now atomic.Int64
			opts := []Option{WithMaxConcurrentBatches(concurrent), WithWaitTimeout(100 * time.Microsecond)}
			if sized {
				opts = append(opts, WithSizeFunc(sizeOf))
			}
			b := New("f", func(_ context.Context, ins []int) ([]int, error) {
				if n := now.Add(1); n > concurrent {
					t.Errorf("%d batches at a time", n)
				}
				defer now.Add(-1)
				size := len(ins)
				if sized {
					size = sizeOf(ins)
				}
				largest.Store(max(largest.Load(), int64(size)))
				outs := make([]int, len(ins))
				for i, in := range ins {
					ran.run(in)
					outs[i] = -in
				}
				switch rand.IntN(20) {
				case 0:
					return nil, errByChance
				case 1:
					panic(errByChance)
				case 2:
					return outs[1:], nil
				}
				return outs, nil
			}, opts...)

			var answered sync.Map
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for i := range each {
						in := c*each + i
						ctx, cancel := context.WithCancelCause(t.Context())
						if rand.IntN(3) == 0 {
							time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, func() { cancel(errByChance) })
						}
						if rand.IntN(50) == 0 {
							_ = b.SetMaxBatchSize(4 + rand.IntN(7))
							_ = b.SetWaitTimeout(time.Duration(rand.IntN(200)) * time.Microsecond)
						}
						model := []string{"", "", "m", "n"}[rand.IntN(4)]
						out, err := b.Do(r.call(ctx, model), in)
						switch {
						case err == nil && out != -in:
							t.Errorf("%d got %d", in, out)
						case err == nil:
							answered.Store(in, true)
						case !errors.Is(err, errByChance) && out != 0:
							t.Errorf("%d got %d, and error %v", in, out, err)
						}
						cancel(nil)
					}
				})
			}
			wg.Wait()
			r.replica.Stop(t.Context())
			ran.check(t, &answered)
			if n := largest.Load(); n > 10 || n < 2 {
				t.Errorf("the largest batch had size %d", n)
			}
		})
	}
}

// TestManyStreamsConcurrentSafe does the same with streams: consumers break or
// leave by chance, are slow by chance; what they get is the beginning of what was
// sent, and all of it if there was no error.
func TestManyStreamsConcurrentSafe(t *testing.T) {
	const callers, each, outputs = 30, 30, 20
	r := newRig()
	ran := &once{runs: map[int]int{}}
	b := NewStream("f", func(_ context.Context, batch []*Request[int, int]) error {
		for _, r := range batch {
			ran.run(r.In)
		}
		for i := range outputs {
			for _, r := range batch {
				r.Send(r.In + i)
			}
			switch rand.IntN(200) {
			case 0:
				return errByChance
			case 1:
				panic(errByChance)
			}
		}
		return nil
	}, WithMaxConcurrentBatches(2), WithWaitTimeout(100*time.Microsecond), WithBuffer(2), WithPatience(time.Millisecond))

	var answered sync.Map
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				in := c*each + i
				ctx, cancel := context.WithCancelCause(t.Context())
				if rand.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, func() { cancel(errByChance) })
				}
				stop := outputs + 1
				if rand.IntN(4) == 0 {
					stop = rand.IntN(outputs)
				}
				n := 0
				for out, err := range b.Stream(r.call(ctx, ""), in) {
					if err != nil {
						if !errors.Is(err, errByChance) && !errors.Is(err, ErrSlowConsumer) {
							t.Errorf("error %v", err)
						}
						stop = n
						break
					}
					if out != in+n {
						t.Errorf("output %d of %d is %d", n, in, out)
					}
					if n == stop {
						break
					}
					n++
				}
				if n != outputs && n != stop {
					t.Errorf("%d ended well after %d outputs", in, n)
				}
				if n == outputs {
					answered.Store(in, true)
				}
				cancel(nil)
			}
		})
	}
	wg.Wait()
	r.replica.Stop(t.Context())
	ran.check(t, &answered)
}
