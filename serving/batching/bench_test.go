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
