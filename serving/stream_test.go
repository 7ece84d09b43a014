package serving_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// count streams 0 to n-1, and closes left when its loop was left.
func count(left chan<- int) func(context.Context, int) iter.Seq2[int, error] {
	return func(_ context.Context, n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			i := 0
			defer func() { left <- i }()
			for ; i < n; i++ {
				if !yield(i, nil) {
					return
				}
			}
		}
	}
}

// gather takes a stream to its end.
func gather[T any](seq iter.Seq2[T, error]) (values []T, err error) {
	for v, e := range seq {
		if e != nil {
			return append(values, v), e
		}
		values = append(values, v)
	}
	return values, nil
}

// TestStream: the values, the spans, and that each range is a call of its own.
func TestStream(t *testing.T) {
	b := functions("B", serving.WithMaxOngoingRequests(1))
	left := make(chan int, 2)
	h := serving.AddStream(b, "count", count(left))
	r := caller(t, serving.Config{}, func(w http.ResponseWriter, r *http.Request) error {
		stream := h.WithModelID("m1").Stream(r.Context(), 3)
		if ongoing := b.Built().Replicas.Status().Replicas[0].Ongoing; ongoing != 0 {
			t.Error("the call began before a loop ranges over the stream")
		}
		for range 2 { // the second finds the slot free
			if values, err := gather(stream); err != nil || !slices.Equal(values, []int{0, 1, 2}) {
				t.Errorf("values %v, %v", values, err)
			}
		}
		return nil
	}, b)
	checkStatus(t, r.get("/", "X-Request-ID", "id-1"), 200)
	calls := 0
	for _, s := range r.spans.take(t, 7) {
		if v, _ := attr(s, "is_streaming"); !v.AsBool() && !strings.HasPrefix(s.Name(), "proxy") {
			t.Errorf("%s: is_streaming is not true", s.Name())
		}
		if s.Name() != "replica_handle_request B count" {
			continue
		}
		calls++
		want := map[string]any{
			"request_id": "id-1", "replica_id": "?", "deployment": "B", "app": "a", "call_method": "count",
			"route": "/", "multiplexed_model_id": "m1", "is_streaming": true,
			"resource.name": "replica_handle_request B count",
			"rpc.system":    "UNDEFINED", "rpc.method": "count", "rpc.service": "B",
		}
		if diff := cmp.Diff(want, attributes(s)); diff != "" {
			t.Errorf("replica span (-want +got):\n%s", diff)
		}
	}
	if calls != 2 {
		t.Errorf("%d replica spans, want 2", calls)
	}
}

// TestStreamsThatFail: the error is the last that comes, and the slot is free by
// then.
func TestStreamsThatFail(t *testing.T) {
	b := functions("B", serving.WithMaxOngoingRequests(1))
	type stream = iter.Seq2[int, error]
	h := serving.AddStream(b, "", func(_ context.Context, how string) stream {
		switch how {
		case "at once":
			panic("boom at once")
		case "nil":
			return nil
		}
		return func(yield func(int, error) bool) {
			_ = yield(1, nil)
			switch how {
			case "error":
				if yield(7, errBoom) {
					t.Error("the stream is to go on after its error")
				}
			case "panic":
				panic("boom")
			}
		}
	})
	r := caller(t, serving.Config{RequestTimeout: servingtest.Patience}, func(w http.ResponseWriter, r *http.Request) error {
		for v, err := range h.Stream(r.Context(), r.URL.Path[1:]) {
			if err == nil {
				_, _ = fmt.Fprintf(w, "%d ", v)
				continue
			}
			_, again := gather(h.Stream(r.Context(), "")) // the slot is free
			if again != nil {
				t.Errorf("the next call: %v", again)
			}
			_, panicked := errors.AsType[*tracing.PanicError](err)
			_, _ = fmt.Fprintf(w, "%d %v %v;", v, err, panicked)
		}
		return nil
	}, b)
	for how, want := range map[string]string{
		"error":   "1 7 boom false;",
		"panic":   "1 0 panic: boom true;",
		"at once": "0 panic: boom at once true;",
		"nil":     "0 panic: runtime error: invalid memory address or nil pointer dereference true;",
	} {
		if got := r.get("/" + strings.ReplaceAll(how, " ", "%20")); got.Body != want {
			t.Errorf("%s: client saw %q, want %q", how, got.Body, want)
		}
	}
}

// TestLeavingAStream: whichever way the caller leaves its loop, the stream ends,
// its slot is free, and its span tells of no fault. What the caller panicked
// with is the caller's.
func TestLeavingAStream(t *testing.T) {
	b := functions("B", serving.WithMaxOngoingRequests(1))
	c := functions("C", serving.WithMaxOngoingRequests(1))
	left := make(chan int, 8)
	inner := serving.AddStream(c, "", count(left))
	outer := serving.AddStream(b, "", func(ctx context.Context, n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for v, err := range inner.Stream(ctx, n) {
				if !yield(v, err) {
					return
				}
			}
		}
	})
	r := caller(t, serving.Config{}, func(w http.ResponseWriter, r *http.Request) error {
		for v, err := range outer.Stream(r.Context(), 10) {
			if err != nil || v < 3 {
				continue
			}
			switch r.URL.Path {
			case "/break":
				_, _ = io.WriteString(w, "left")
				return nil
			case "/panic":
				panic("the caller's")
			default:
				runtime.Goexit()
			}
		}
		return errors.New("took the whole stream")
	}, b, c)
	for _, tt := range []struct {
		path  string
		want  answer
		fault string // of the caller
	}{
		{"/break", answer{Status: 200, Body: "left"}, ""},
		{"/panic", answer{Status: 500, Body: "Internal Server Error"}, "panic"},
		{"/goexit", answer{Status: 500, Body: "Internal Server Error"}, "*errors.errorString"},
	} {
		got := r.get(tt.path)
		got.header = nil
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(answer{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.path, diff)
		}
		if n := servingtest.Receive(t, "the inner stream's end", left); n != 3 {
			t.Errorf("%s: the inner stream was at %d, want 3", tt.path, n)
		}
		for _, s := range r.spans.take(t, 7) {
			d := digest(s)
			switch faulty := strings.Contains(d, "event("); {
			case family(s) == "replica_handle_request A" && tt.fault != "":
				if !strings.Contains(d, "event("+tt.fault+" ") {
					t.Errorf("%s: the caller's span is %s", tt.path, d)
				}
			case faulty && !strings.HasPrefix(d, "proxy"):
				t.Errorf("%s: %s is %s", tt.path, s.Name(), d)
			}
		}
	}
	lines := r.access.Lines(t, "handler panicked")
	if len(lines) != 1 || lines[0]["app"] != "a" || lines[0]["deployment"] != "A" ||
		!strings.Contains(lines[0]["stack"].(string), "TestLeavingAStream") {
		t.Errorf("log: %v, want one line of A, with the stack of the panic", lines)
	}
}

// TestPulledStream: iter.Pull runs the call on a goroutine of its own.
func TestPulledStream(t *testing.T) {
	b := functions("B", serving.WithMaxOngoingRequests(1))
	left := make(chan int, 1)
	h := serving.AddStream(b, "", count(left))
	r := caller(t, serving.Config{}, func(http.ResponseWriter, *http.Request) error { return nil }, b)
	next, stop := iter.Pull2(h.Stream(t.Context(), 5))
	for want := range 2 {
		if v, err, ok := next(); v != want || err != nil || !ok {
			t.Errorf("got %d, %v, %v; want %d", v, err, ok, want)
		}
	}
	stop()
	if at := servingtest.Receive(t, "the stream's end", left); at != 1 {
		t.Errorf("ended at %d, want 1", at)
	}
	if values, err := gather(h.Stream(t.Context(), 1)); err != nil || len(values) != 1 {
		t.Errorf("the next call: %v, %v", values, err)
	}
	r.spans.take(t, 4)
}

// TestStreamEndsWithItsRequest: a client that leaves ends the stream behind the
// handler.
func TestStreamEndsWithItsRequest(t *testing.T) {
	b := functions("B")
	ended := make(chan error, 1)
	h := serving.AddStream(b, "", func(ctx context.Context, _ int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			_ = yield(1, nil)
			<-ctx.Done()
			ended <- ctx.Err()
			_ = yield(0, ctx.Err())
		}
	})
	began := make(chan struct{})
	r := caller(t, serving.Config{}, func(w http.ResponseWriter, r *http.Request) error {
		for _, err := range h.Stream(r.Context(), 0) {
			if err != nil {
				return err
			}
			writeBegin(w)
			close(began)
		}
		return nil
	}, b)
	ctx, leave := context.WithCancel(t.Context())
	got := make(chan answer, 1)
	go func() { got <- r.do(ctx, http.MethodGet, "/") }()
	servingtest.Receive(t, "the first value", began)
	leave()
	_ = servingtest.Receive(t, "the stream's end", ended)
	servingtest.Receive(t, "the client's end", got)
	for _, s := range r.spans.take(t, 5) {
		if d := digest(s); strings.HasPrefix(d, "replica") && !strings.HasSuffix(d, " event("+typeCanceled+" False)") {
			t.Errorf("%s: %s", s.Name(), d)
		}
	}
}
