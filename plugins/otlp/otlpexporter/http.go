package otlpexporter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/grpc/mem"

	"github.com/servetrace/servetrace/internal/wholebody"
)

// mostHops is how many redirects one call follows.
const mostHops = 3

// newHTTP makes the way by HTTP.
func newHTTP(c settings) (way, error) {
	t := &transport{settings: c, head: http.Header{"User-Agent": {userAgent}}}
	for name, text := range c.headers {
		t.head.Set(name, text)
	}
	t.head.Set("Content-Type", kindProto) // whatever a plugin's own headers say
	if c.gzip {
		t.head.Set("Content-Encoding", compressionGzip)
	}
	if err := t.renew(nil); err != nil {
		return way{}, err
	}
	return way{t.send, func() error { t.current().CloseIdleConnections(); return nil }}, nil
}

// transport posts batches, and reads what is answered.
type transport struct {
	settings

	head http.Header // of each request; it does not change

	mu sync.Mutex
	// base is replaced when the authorities are.
	base *http.Transport
	// authorities is their file as base knows it.
	authorities []byte
}

// send posts a batch, where redirects lead too.
func (t *transport) send(ctx context.Context, c *call, pieces mem.BufferSlice) error {
	content, err := t.content(pieces)
	if err != nil {
		return err
	}
	defer content.End()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
	})
	to := t.endpoint.url
	for hops := 0; ; hops++ {
		resp, err := t.post(ctx, to, content)
		if err != nil {
			return err
		}
		next := t.redirect(resp)
		if next == nil || hops == mostHops {
			c.answers(t.read(c, resp))
			return nil
		}
		_ = resp.Body.Close()
		to = next
	}
}

// post is one request. to is used as it is written.
func (t *transport) post(ctx context.Context, to *url.URL, content *wholebody.Lender) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	req.URL, req.Host, req.Header = to, to.Host, t.head
	req.ContentLength = int64(content.Len())
	req.GetBody = content.Body
	if req.Body, err = content.Body(); err != nil {
		return nil, fmt.Errorf("make a request: %w", err) // only after its End
	}
	base := t.current()
	resp, err := base.RoundTrip(req)
	if err != nil && distrust(err) {
		_ = t.renew(base) // for the next call; it fails where the file is not whole yet
	}
	return resp, err //nolint:wrapcheck // explain has the words for it
}

// squeezers and squeezed are kept between calls: of the one some 800 KiB are needed
// while a batch is compressed, the other has the result until it is sent. Level 1
// costs a fifth of the CPU of the standard library's default, for a few percent of
// size.
var (
	squeezers = sync.Pool{New: func() any {
		// It fails only for levels that there are not.
		z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
		return z
	}}
	squeezed = sync.Pool{New: func() any { return new(bytes.Buffer) }}
)

// mostSqueezed bounds, in bytes, what is kept: a pool that is in use never forgets
// what it was given, and one large batch would be paid for ever after.
const mostSqueezed = 4 << 20

// content is what is posted of a batch. net/http may read it when the call is
// over: what it lies in is used again when nobody does.
func (t *transport) content(pieces mem.BufferSlice) (*wholebody.Lender, error) {
	if t.gzip {
		return compressed(pieces)
	}
	slices := make([][]byte, len(pieces))
	for i, piece := range pieces {
		slices[i] = piece.ReadOnlyData()
	}
	pieces.Ref()
	return wholebody.Lend(slices, pieces.Free), nil
}

func compressed(pieces mem.BufferSlice) (*wholebody.Lender, error) {
	z, to := squeezers.Get().(*gzip.Writer), squeezed.Get().(*bytes.Buffer)
	defer squeezers.Put(z)
	to.Reset()
	z.Reset(to)
	for _, piece := range pieces {
		if _, err := z.Write(piece.ReadOnlyData()); err != nil {
			return nil, fmt.Errorf("compress: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return wholebody.Lend([][]byte{to.Bytes()}, func() {
		if to.Cap() <= mostSqueezed {
			squeezed.Put(to)
		}
	}), nil
}

// redirect gives where a redirect leads that is to be followed: one that keeps
// the method, and the credentials on the machine that they are for. Else nil.
func (t *transport) redirect(resp *http.Response) *url.URL {
	if resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return nil
	}
	to, err := resp.Location()
	if err != nil || !sameHost(to, t.endpoint.url) {
		return nil
	}
	if to.Scheme != "https" && (to.Scheme != "http" || resp.Request.URL.Scheme == "https") {
		return nil
	}
	return to
}

func (t *transport) current() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.base
}

// renew makes a transport in place of old, if the authorities have changed.
func (t *transport) renew(old *http.Transport) error {
	config, content, err := t.trust.config()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base != old || old != nil && bytes.Equal(content, t.authorities) {
		return nil
	}
	t.authorities = content
	t.base = &http.Transport{
		Proxy:                  t.proxy.of,
		DialContext:            dial,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true, // off by default where there is a TLSClientConfig
		MaxIdleConnsPerHost:    16,   // beyond what a host sends at a time
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		// A connection of HTTP/2 that swallows what it is given is found by pings.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			return fmt.Errorf("proxyconnect: %s answered %s", proxy.Host, plain(resp.Status))
		},
	}
	if old != nil {
		old.CloseIdleConnections()
	}
	return nil
}

// dial makes a connection that writes a batch at once.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err //nolint:wrapcheck // fault.go knows it by its text
	}
	return wholebody.Conn{Conn: conn}, nil
}
