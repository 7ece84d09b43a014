package batching

import (
	"context"
	"testing"
	"time"
)

// BenchmarkDo measures one request's way through a batch: of one at once, and of
// up to 32 among 64 callers, with and without a size function.
func BenchmarkDo(b *testing.B) {
	echo := func(_ context.Context, ins []int) ([]int, error) { return ins, nil }
	for _, bb := range []struct {
		name    string
		callers int
		opts    []Option
	}{
		{"alone", 0, []Option{WithWaitTimeout(0)}},
		{"batches of 32", 32, []Option{WithMaxBatchSize(32)}},
		{"batches of 32 by size", 32, []Option{WithMaxBatchSize(32), WithSizeFunc(func(ins []int) int { return len(ins) })}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := newRig()
			batcher := New("echo", echo, append(bb.opts, WithMaxConcurrentBatches(2))...)
			ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // a caller that may leave
			defer cancel()
			ctx = r.call(ctx, "")
			b.ReportAllocs()
			if bb.callers == 0 {
				for b.Loop() {
					if _, err := batcher.Do(ctx, 1); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			b.SetParallelism(bb.callers) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := batcher.Do(ctx, 1); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkLeave measures the departure of a caller whose item waits behind 50,000 others.
func BenchmarkLeave(b *testing.B) {
	r := newRig()
	batcher := New("wait", func(_ context.Context, ins []int) ([]int, error) { return ins, nil },
		WithMaxBatchSize(1<<20), WithWaitTimeout(time.Hour))
	q, err := batcher.queueFor(r.call(b.Context(), ""))
	if err != nil {
		b.Fatal(err)
	}
	defer r.replica.Stop(context.Background())
	add := func() *item[int, int] {
		it := &item[int, int]{ctx: b.Context(), done: make(chan struct{})}
		if err := q.add(it); err != nil {
			b.Fatal(err)
		}
		return it
	}
	others := make([]*item[int, int], 50_000)
	for i := range others {
		others[i] = add()
	}
	defer func() {
		for _, it := range others {
			q.abandon(it)
		}
	}()
	for b.Loop() {
		if q.abandon(add()) {
			b.Fatal("an item that waited has an answer")
		}
	}
}
