package serving_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// ends are the ends of calls that share connections and streams.
type ends struct {
	do    *serving.Handle[string, string]
	count *serving.StreamHandle[int, int]
	sum   *serving.Handle[iter.Seq[int], int]
}

func newEnds() (*serving.Deployment, ends) {
	d := functions("B", serving.WithMaxOngoingRequests(8))
	return d, ends{
		do: serving.AddFunction(d, "do", func(ctx context.Context, what string) (string, error) {
			switch kind, _, _ := strings.Cut(what, " "); kind {
			case "fail":
				return "", errors.New(what)
			case "exit":
				runtime.Goexit()
			case "wait":
				<-ctx.Done()
			}
			return what, nil
		}),
		count: serving.AddStream(d, "count", func(_ context.Context, from int) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				for i := range 5 {
					if !yield(from+i, nil) {
						return
					}
				}
				yield(0, fmt.Errorf("end of %d", from))
			}
		}),
		sum: serving.AddFunction(d, "sum", func(_ context.Context, in iter.Seq[int]) (total int, _ error) {
			for n := range in {
				if total += n; n < 0 {
					break // the rest is not read
				}
			}
			return total, nil
		}),
	}
}

var errEnough = errors.New("enough")

// call makes a call that ends in one of many ways, and returns what is wrong.
func (e ends) call(ctx context.Context, kind, id int) error {
	text := func(kind string) string { return fmt.Sprintf("%s %d", kind, id) }
	switch kind {
	case 0, 1: // the usual one
		if out, err := e.do.Call(ctx, text("echo")); out != text("echo") || err != nil {
			return fmt.Errorf("echo: %q, %w", out, err)
		}
	case 2:
		if _, err := e.do.Call(ctx, text("fail")); fmt.Sprint(err) != text("fail") {
			return fmt.Errorf("fail: %w", err)
		}
	case 3:
		if _, err := e.do.Idempotent().Call(ctx, text("exit")); !strings.Contains(fmt.Sprint(err), "Goexit") {
			return fmt.Errorf("exit: %w", err)
		}
	case 4:
		ctx, cancel := context.WithCancelCause(ctx)
		go cancel(errEnough) // ends before the call, or not long after its begin
		if _, err := e.do.Call(ctx, text("wait")); !errors.Is(err, errEnough) {
			return fmt.Errorf("wait: %w", err)
		}
	case 5, 6:
		want := id
		for n, err := range e.count.Stream(ctx, id) {
			if kind == 6 && want == id+2 {
				return nil // it leaves the loop
			}
			if want == id+5 && fmt.Sprint(err) == fmt.Sprintf("end of %d", id) {
				return nil
			}
			if n != want || err != nil {
				return fmt.Errorf("count: %d, %w, want %d", n, err, want)
			}
			want++
		}
	case 7:
		want := id - 1
		out, err := e.sum.Call(ctx, func(yield func(int) bool) {
			for _, n := range []int{id, -1, id} {
				if !yield(n) {
					return
				}
			}
		})
		if out != want || err != nil {
			return fmt.Errorf("sum: %d, %w, want %d", out, err, want)
		}
	}
	return nil
}

// TestConcurrentSafeRemoteCallsOfAllEnds: each call has its own results, in whatever way
// the call before it on the same stream has ended.
func TestConcurrentSafeRemoteCallsOfAllEnds(t *testing.T) {
	there, _ := newEnds()
	b := callee(t, there)
	here, e := newEnds()
	a := callerOf(t, nil2, []*rig{b}, here)
	ctx, cancel := context.WithTimeout(t.Context(), servingtest.Patience)
	defer cancel()
	var callers sync.WaitGroup
	for i := range 12 {
		callers.Go(func() {
			draw := rand.New(rand.NewPCG(1, uint64(i))) //nolint:gosec // the same calls each time
			for k := range 60 {
				if err := e.call(ctx, draw.IntN(8), 1000*i+k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	servingtest.Await(t, "the slots are free", func() bool {
		return b.ongoing() == 0 && a.server.Status()[1].Replicas[0].Ongoing == 0
	})
}
