package batching

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tokens is a size with padding: as many as the longest item has, for each.
func tokens(items []string) int {
	longest := 0
	for _, in := range items {
		longest = max(longest, len(in))
	}
	return longest * len(items)
}

const tooLarge = `batcher "upper": size 11, at most 10: item is larger than the maximum batch size`

// TestSizeFunction scripts what comes, all at once, while a batch runs for a
// second, and looks what the next ones are. A batch has at most ten tokens.
func TestSizeFunction(t *testing.T) {
	for _, tc := range []struct {
		name string
		come []string
		want []string
		errs map[string]string
	}{
		{"as many as fit", []string{"aa", "bb", "cc", "dd", "ee", "ff"},
			[]string{"[aa bb cc dd ee] at 1s", "[ff] at 2s"}, nil},
		{"just full at once", []string{"aaaaa", "bbbbb"}, []string{"[aaaaa bbbbb] at 1s"}, nil},
		{"the order stays, although c would fit", []string{"aaa", "bbbbbb", "c"},
			[]string{"[aaa] at 1s", "[bbbbbb] at 2s", "[c] at 3s"}, nil},
		{"too large by itself, first", []string{"aaaaaaaaaaa", "b"},
			[]string{"[b] at 1s"}, map[string]string{"aaaaaaaaaaa": tooLarge}},
		{"too large by itself, later", []string{"aa", "bbbbbbbbbbb", "cc"},
			[]string{"[aa] at 1s", "[cc] at 2s"}, map[string]string{"bbbbbbbbbbb": tooLarge}},
		{"nothing that fits", []string{"aaaaaaaaaaa"}, nil, map[string]string{"aaaaaaaaaaa": tooLarge}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := newRig(), newBook()
				b := New("upper", log.upper, WithSizeFunc(tokens), WithMaxBatchSize(10), WithWaitTimeout(0))
				first := ask(b.Do, r.call(t.Context(), ""), "0123456789")
				synctest.Wait()
				answers := map[string]<-chan answer{}
				for _, in := range tc.come {
					answers[in] = ask(b.Do, r.call(t.Context(), ""), in)
					synctest.Wait()
				}
				<-first
				for in, ch := range answers {
					if a := <-ch; a.Err != tc.errs[in] {
						t.Errorf("answer to %q is %+v, want error %q", in, a, tc.errs[in])
					}
				}
				if diff := cmp.Diff(append([]string{"[0123456789] at 0s"}, tc.want...), log.all()); diff != "" {
					t.Errorf("batches (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestFullBatchStartsBeforeTimeout begins as soon as the next does not fit, or
// nothing can.
func TestFullBatchStartsBeforeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRig(), newBook()
		b := New("upper", log.upper, WithSizeFunc(tokens), WithMaxBatchSize(10), WithWaitTimeout(time.Hour))
		var answers []<-chan answer
		for _, in := range []string{"aaaa", "bbbbbb", "cc", "0123456789", "ddddd", "eeeee"} {
			answers = append(answers, ask(b.Do, r.call(t.Context(), ""), in))
			time.Sleep(time.Minute)
		}
		for _, ch := range answers {
			<-ch
		}
		want := []string{
			"[aaaa] at 1m0s",       // b does not fit
			"[bbbbbb] at 2m0s",     // c would make it 12, with padding
			"[cc] at 3m0s",         // the next does not fit
			"[0123456789] at 3m1s", // nothing can, and one runs
			"[ddddd eeeee] at 5m0s",
		}
		if diff := cmp.Diff(want, log.all()); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

// TestLeavingRequestMakesRoom: what did not fit does once another has left.
func TestLeavingRequestMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRig(), newBook()
		b := New("upper", log.upper, WithSizeFunc(tokens), WithMaxBatchSize(10), WithWaitTimeout(0))
		first := ask(b.Do, r.call(t.Context(), ""), "x")
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		leaver := ask(b.Do, r.call(ctx, ""), "aaaaaa")
		synctest.Wait()
		bs := ask(b.Do, r.call(t.Context(), ""), "bbb")
		synctest.Wait()
		cs := ask(b.Do, r.call(t.Context(), ""), "ccc")
		synctest.Wait()
		cancel()
		<-leaver
		<-first
		<-bs
		<-cs
		if diff := cmp.Diff([]string{"[x] at 0s", "[bbb ccc] at 1s"}, log.all()); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

// TestSizeFunctionFails costs the item that it fails for, and no other.
func TestSizeFunctionFails(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fail   func()
		want   string
		logged int
	}{
		{"panic", func() { panic("oh") }, "panic: oh", 1},
		{"Goexit", runtime.Goexit, "batched function called runtime.Goexit", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := newRig(), newBook()
				b := New("upper", log.upper, WithMaxBatchSize(10), WithSizeFunc(func(items []string) int {
					if items[len(items)-1] == "bad" {
						tc.fail()
					}
					return len(items)
				}))
				var answers []<-chan answer
				for _, in := range []string{"a", "bad", "b"} {
					answers = append(answers, ask(b.Do, r.call(t.Context(), ""), in))
					synctest.Wait()
				}
				want := []answer{{Out: "A", At: 1010 * time.Millisecond}, {Err: tc.want}, {Out: "B", At: 1010 * time.Millisecond}}
				if diff := cmp.Diff(want, []answer{<-answers[0], <-answers[1], <-answers[2]}); diff != "" {
					t.Errorf("answers (-want +got):\n%s", diff)
				}
				if n := r.log.Count("size function of a batch panicked"); n != tc.logged {
					t.Errorf("%d lines in the log, want %d", n, tc.logged)
				}
				if diff := cmp.Diff([]string{"[a b] at 10ms"}, log.all()); diff != "" {
					t.Errorf("batches (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestSetMaxBatchSizeMeasuresAgain measures anew what waits.
func TestSetMaxBatchSizeMeasuresAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRig(), newBook()
		b := New("upper", log.upper, WithSizeFunc(tokens), WithMaxBatchSize(100), WithWaitTimeout(time.Hour))
		var answers []<-chan answer
		for _, in := range []string{"aaa", "bbb", "ccc"} {
			answers = append(answers, ask(b.Do, r.call(t.Context(), ""), in))
			synctest.Wait()
		}
		if err := b.SetMaxBatchSize(6); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if err := b.SetMaxBatchSize(3); err != nil {
			t.Error(err)
		}
		for _, ch := range answers {
			<-ch
		}
		if diff := cmp.Diff([]string{"[aaa bbb] at 0s", "[ccc] at 1m0s"}, log.all()); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}
