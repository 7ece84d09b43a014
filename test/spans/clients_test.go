package spans

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/servetrace/servetrace/test/servingtest"
)

// soon is a timeout that ends within a test.
const soon = 50 * time.Millisecond

// A caller's context, sampled and not.
const (
	parentTrace     = "0af7651916cd43dd8448eb211c80319c"
	parentSpan      = "b7ad6b7169203331"
	sampledParent   = "00-" + parentTrace + "-" + parentSpan + "-01"
	unsampledParent = "00-" + parentTrace + "-" + parentSpan + "-00"
)

// untilCanceled is a handler that heeds its context alone.
func untilCanceled(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// barrier is a handler in which requests wait until it opens.
type barrier struct {
	in   chan struct{}
	out  chan struct{}
	once sync.Once
}

func newBarrier() *barrier {
	return &barrier{in: make(chan struct{}, 1000), out: make(chan struct{})}
}

func (b *barrier) ServeHTTP(http.ResponseWriter, *http.Request) { b.wait() }

func (b *barrier) wait() {
	b.in <- struct{}{}
	<-b.out
}

// entered waits until n more requests are in it.
func (b *barrier) entered(t testing.TB, n int) {
	t.Helper()
	for range n {
		servingtest.Receive(t, "a request in the barrier", b.in)
	}
}

func (b *barrier) open() { b.once.Do(func() { close(b.out) }) }

// inBackground sends a GET of / and gives the answer when it is there.
func (r *rig) inBackground(c *http.Client, id string, header ...string) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- r.get(c, id, "/", header...) }() // ends with its answer
	return got
}

// startAndLeave sends a GET of /, which leave takes back; leave returns when the
// client has given up.
func (r *rig) startAndLeave(c *http.Client, id string) (leave func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan answer, 1)
	go func() { gone <- r.do(ctx, c, http.MethodGet, id, "/") }() // ends with cancel, at the latest
	return func() {
		r.t.Helper()
		cancel()
		checkAnswer(r.t, servingtest.Receive(r.t, "the end of the client", gone), answer{Cut: true})
	}
}

// readAndLeave sends a GET of /, reads n bytes of its answer and goes.
func (r *rig) readAndLeave(c *http.Client, id string, n int) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.uses(c)
	resp, err := c.Do(r.request(ctx, http.MethodGet, id, "/"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		_ = resp.Body.Close()
		c.CloseIdleConnections() // a client that has all of a body keeps the connection
	}()
	if _, err := io.ReadFull(resp.Body, make([]byte, n)); err != nil {
		r.t.Fatal(err)
	}
}
