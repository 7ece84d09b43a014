package otlpexporter

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
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

// TestBodyIsOneWrite: net/http sends what fits its buffer with the header, and
// the rest of a body at once. It wraps bodies, so this is not to be taken for
// granted.
func TestBodyIsOneWrite(t *testing.T) {
	back := receive(t, nil)
	to, err := url.Parse(back.URL)
	if err != nil {
		t.Fatal(err)
	}
	var writes atomic.Int32
	sender := &transport{head: http.Header{"Content-Type": {kindProto}}, base: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return wholeConn{countedConn{conn, &writes}}, err
		},
	}}
	defer sender.base.CloseIdleConnections()
	body := bytes.Repeat([]byte("x"), 1<<20)
	resp, err := sender.post(t.Context(), to, body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if got := back.all(); len(got) != 1 || !bytes.Equal(got[0].body, body) {
		t.Errorf("got %d requests, and not the same bytes", len(got))
	}
	if writes.Load() > 2 {
		t.Errorf("%d writes, want 2 at most", writes.Load())
	}
}
