package serving_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// numbers is a deployment that streams n numbers, and reports that it has ended.
func numbers(sent *atomic.Int64, ended chan<- error) (*serving.Deployment, *serving.StreamHandle[int, []byte]) {
	d := functions("B")
	return d, serving.AddStream(d, "count", func(ctx context.Context, n int) iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) {
			defer func() { ended <- context.Cause(ctx) }()
			for i := range n {
				if !yield(fmt.Append(nil, strings.Repeat("x", 32<<10), i), nil) {
					return
				}
				sent.Add(1)
			}
			yield(nil, errors.New("the end"))
		}
	})
}

// TestRemoteStream: items come in order, then the error of the stream.
func TestRemoteStream(t *testing.T) {
	var sent atomic.Int64
	ended := make(chan error, 1)
	there, _ := numbers(&sent, ended)
	here, count := numbers(&sent, ended)
	b := callee(t, there)
	callerOf(t, nil2, []*rig{b}, here)
	got := 0
	var last error
	for item, err := range count.Stream(t.Context(), 100) {
		if last = err; err != nil {
			break
		}
		if want := fmt.Sprint(got); strings.TrimLeft(string(item), "x") != want {
			t.Fatalf("item %d is %q", got, item)
		}
		got++
	}
	if got != 100 || fmt.Sprint(last) != "the end" {
		t.Errorf("%d items, then %v", got, last)
	}
	_ = servingtest.Receive(t, "end of the function", ended)
}

// TestRemoteStreamOfSlowReader: a caller that does not read stops the function, and a
// caller that leaves ends it.
func TestRemoteStreamOfSlowReader(t *testing.T) {
	var sent atomic.Int64
	ended := make(chan error, 1)
	there, _ := numbers(&sent, ended)
	here, count := numbers(&sent, ended)
	b := callee(t, there)
	callerOf(t, nil2, []*rig{b}, here)
	const most = 10000 // 320 MB
	for _, err := range count.Stream(t.Context(), most) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	_ = servingtest.Receive(t, "end of the function", ended)
	if n := sent.Load(); n >= most/10 {
		t.Errorf("the function has sent %d items to a caller that read one", n)
	}
	servingtest.Await(t, "the slot is free", func() bool { return b.ongoing() == 0 })
}

// TestRemoteStreamsBothWays: items of an argument go out while results come back.
func TestRemoteStreamsBothWays(t *testing.T) {
	deployment := func() (*serving.Deployment, *serving.StreamHandle[iter.Seq2[int, error], int], *serving.Handle[iter.Seq[int], int]) {
		d := functions("B")
		double := serving.AddStream(d, "double", func(_ context.Context, in iter.Seq2[int, error]) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				for n, err := range in {
					if !yield(2*n, err) {
						return
					}
				}
			}
		})
		sum := serving.AddFunction(d, "sum", func(_ context.Context, in iter.Seq[int]) (int, error) {
			total := 0
			for n := range in {
				total += n
			}
			return total, nil
		})
		return d, double, sum
	}
	there, _, _ := deployment()
	here, double, sum := deployment()
	callerOf(t, nil2, []*rig{callee(t, there)}, here)

	answers := make(chan int, 1)
	asks := func(yield func(int, error) bool) { // the next number is the last answer
		for n := 1; n < 100; n = <-answers {
			if !yield(n, nil) {
				return
			}
		}
		yield(0, errKnown)
	}
	var got []int
	var end error
	for n, err := range double.Stream(t.Context(), asks) {
		if end = err; err != nil {
			break
		}
		got = append(got, n)
		answers <- n
	}
	if fmt.Sprint(got) != "[2 4 8 16 32 64 128]" || fmt.Sprint(end) != errKnown.Error() {
		t.Errorf("%v, then %v", got, end)
	}

	total, err := sum.Call(t.Context(), func(yield func(int) bool) {
		for n := range 10 {
			if !yield(n) {
				return
			}
		}
	})
	if total != 45 || err != nil {
		t.Errorf("sum %d, %v, want 45", total, err)
	}

	// A panic of the caller's iterator is the caller's.
	_, err = sum.Call(t.Context(), func(func(int) bool) { panic("mine") })
	if fmt.Sprint(err) != "panic: mine" {
		t.Errorf("panic of the iterator: %v", err)
	}
}

// TestLargeMessages: a message beyond the bound ends its call, and no other.
func TestLargeMessages(t *testing.T) {
	deployment := func() (*serving.Deployment, *serving.Handle[string, string]) {
		d := functions("B")
		return d, serving.AddFunction(d, "", func(_ context.Context, text string) (string, error) { return text + text, nil })
	}
	small := serving.CallConfig{MaxMessageBytes: 1 << 10}
	there, _ := deployment()
	b := calleeOf(t, small, there)
	for _, tt := range []struct {
		name  string
		bound int
		size  int
	}{
		{"argument, seen by the caller", 1 << 10, 2000},
		{"argument, seen by the callee", 1 << 20, 2000},
		{"result", 1 << 20, 700},
	} {
		here, twice := deployment()
		cfg := serving.CallConfig{MaxMessageBytes: tt.bound, Remote: map[string]string{"B": "static:///" + b.server.CallAddr().String()}}
		caller(t, serving.Config{Calls: cfg}, nil2, here)
		_, err := twice.Call(t.Context(), strings.Repeat("x", tt.size))
		if err == nil || !strings.Contains(err.Error(), "larger than max") || !strings.Contains(err.Error(), "SERVE_CALL_MAX_MESSAGE_BYTES") {
			t.Errorf("%s: %v", tt.name, err)
		}
		if out, err := twice.Call(t.Context(), "x"); out != "xx" || err != nil {
			t.Errorf("%s: the next call: %q, %v", tt.name, out, err)
		}
	}
	servingtest.Await(t, "the slots are free", func() bool { return b.ongoing() == 0 })
}

// TestPanicInTheLoopOverARemoteStream: the panic of the loop's body passes through, and the
// slot is free.
func TestPanicInTheLoopOverARemoteStream(t *testing.T) {
	var sent atomic.Int64
	ended := make(chan error, 1)
	there, _ := numbers(&sent, ended)
	here, count := numbers(&sent, ended)
	a := callerOf(t, nil2, []*rig{callee(t, there)}, here)
	func() {
		defer func() {
			if v := recover(); v != "mine" {
				t.Errorf("recovered %v", v)
			}
		}()
		for _, err := range count.Stream(t.Context(), 1000) {
			if err != nil {
				t.Error(err)
			}
			panic("mine")
		}
	}()
	_ = servingtest.Receive(t, "end of the function", ended)
	if s := a.server.Status()[1]; s.Replicas[0].Ongoing != 0 {
		t.Errorf("the slot is not free: %+v", s)
	}
}
