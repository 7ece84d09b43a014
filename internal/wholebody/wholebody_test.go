package wholebody

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// countedConn counts its writes.
type countedConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// embedding is a body with a Close of its own.
type embedding struct {
	Reader
	closed context.CancelFunc
}

func (e *embedding) Close() error {
	e.closed()
	return nil
}

// taker is a server, and the bodies that it is sent. Close it.
func taker(t *testing.T) (back *httptest.Server, got <-chan []byte) {
	t.Helper()
	bodies := make(chan []byte, 1)
	return httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- body
	})), bodies
}

// TestBodyIsOneWrite: net/http sends what fits its buffer with the header, and
// the rest of a body at once. It wraps bodies, so this is not to be taken for
// granted.
func TestBodyIsOneWrite(t *testing.T) {
	content := bytes.Repeat([]byte("x"), 1<<20)
	closed, end := context.WithCancel(t.Context())
	defer end()
	for _, c := range []struct {
		name  string
		body  func() io.ReadCloser
		whole bool
	}{
		{"a Reader", func() io.ReadCloser { return NewReader(content) }, true},
		{"one embedded", func() io.ReadCloser { return &embedding{*NewReader(content), end} }, true},
		{"another body", func() io.ReadCloser { return io.NopCloser(bytes.NewReader(content)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			back, got := taker(t)
			defer back.Close()
			var writes atomic.Int32
			transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return Conn{countedConn{conn, &writes}}, err
			}}
			defer transport.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, back.URL, c.body())
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = int64(len(content))
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			if body := <-got; !bytes.Equal(body, content) {
				t.Errorf("got %d bytes, want the %d that were sent", len(body), len(content))
			}
			if few := writes.Load() <= 2; few != c.whole {
				t.Errorf("%d writes; two at most: %t, want %t", writes.Load(), few, c.whole)
			}
		})
	}
	select {
	case <-closed.Done():
	case <-time.After(20 * time.Second): // it may come after the answer
		t.Error("a body's own Close was not called")
	}
}
