package batching_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
	"github.com/servetrace/servetrace/tracing"
)

// hollow is an error whose methods panic where it is a nil pointer.
type hollow struct{ inner error }

func (e *hollow) Error() string { return e.inner.Error() }
func (e *hollow) Unwrap() error { return e.inner }

// TestHollowError: the batch has panicked, and the process lives.
func TestHollowError(t *testing.T) {
	b := batching.New("b", func(context.Context, []int) ([]int, error) { return nil, (*hollow)(nil) },
		batching.WithWaitTimeout(0))
	got := make(chan error, 1)
	d := serving.NewDeployment("D", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := b.Do(r.Context(), 1)
		got <- err
	}))
	server, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"}, []*serving.App{serving.NewApp("a", d)},
		serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if _, is := errors.AsType[*tracing.PanicError](<-got); !is {
		t.Error("want a PanicError")
	}
	http.DefaultClient.CloseIdleConnections()
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
