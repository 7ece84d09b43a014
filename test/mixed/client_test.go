package mixed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"

	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/serving"
)

const (
	http1 = "HTTP/1.1"
	http2 = "HTTP/2"
	// A GET that loses a connection which has served others is sent again by
	// net/http. One that is to lose it has one of its own.
	http1Fresh = "HTTP/1.1, one request to a connection"
)

// clients send the requests of plans to a server.
type clients struct {
	base  string
	books *books
	http  map[string]*http.Client // by version
	grpc  *grpc.ClientConn
}

func newClients(t testing.TB, s *serving.Server, b *books) *clients {
	t.Helper()
	c := &clients{
		base:  "http://" + s.Addr().String(),
		books: b,
		http:  map[string]*http.Client{},
		grpc:  dialGRPC(t, s.GRPCAddr().String()),
	}
	for _, version := range []string{http1, http2, http1Fresh} {
		transport := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: workers, DisableKeepAlives: version == http1Fresh}
		transport.Protocols.SetHTTP1(version != http2)
		transport.Protocols.SetUnencryptedHTTP2(version == http2)
		c.http[version] = &http.Client{Transport: transport}
	}
	return c
}

func (c *clients) hangUp() {
	for _, client := range c.http {
		client.CloseIdleConnections()
	}
}

// send acts as the plan says, and records the response that its client got.
func (c *clients) send(p plan) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if p.leave == byClock {
		ctx, cancel = context.WithTimeout(ctx, p.after)
		defer cancel()
	}
	speak := c.exchange
	switch p.version {
	case socket:
		speak = c.converse
	case overGRPC:
		speak = c.invoke
	}
	view := speak(ctx, p)
	view.done = true
	view.left = view.left || errors.Is(ctx.Err(), context.DeadlineExceeded)
	c.books.at(p.id(), func(e *entry) { e.client = view })
}

func (*clients) path(p plan) string {
	path := "/run/" + strconv.Itoa(p.n)
	if p.app == "tight" {
		path = "/tight" + path
	}
	return path
}

func (c *clients) exchange(ctx context.Context, p plan) (view clientView) {
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if p.body > 0 {
		method, body = http.MethodPost, bytes.NewReader(make([]byte, p.body))
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+c.path(p), body)
	if err != nil {
		return clientView{}
	}
	req.Header.Set("X-Request-Id", p.id())
	if p.parent != "" {
		req.Header.Set("Traceparent", p.parent)
	}
	resp, err := c.http[p.version].Do(req)
	if err != nil {
		return clientView{cut: true, err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	view.status = c.books.name(strconv.Itoa(resp.StatusCode))
	if p.leave == midStream {
		_, err = resp.Body.Read(make([]byte, 1))
		view.left = !errors.Is(err, io.EOF)
		return view
	}
	_, err = io.Copy(io.Discard, resp.Body)
	view.cut = err != nil
	return view
}
