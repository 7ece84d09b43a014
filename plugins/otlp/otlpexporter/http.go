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
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
)

// mostHops is how many redirects one call follows.
const mostHops = 3

// newHTTP makes the client, with all but the encoding of the request in our hands:
// with an HTTP client of ours it looks at neither timeout nor TLS.
func newHTTP(c settings) (way, error) {
	t := &transport{settings: c}
	if err := t.renew(nil); err != nil {
		return way{}, err
	}
	quiet()
	plainURL := *c.endpoint.url
	plainURL.RawQuery = ""
	client := otlptracehttp.NewClient(
		// The client reads the environment by itself. Each option is here so that
		// what was chosen counts. It would drop the query of the URL and write its
		// path in another way, so the transport puts the right one in its place;
		// redirects are relative to this one.
		otlptracehttp.WithEndpointURL(plainURL.String()),
		otlptracehttp.WithHeaders(c.headers),
		otlptracehttp.WithCompression(otlptracehttp.NoCompression),
		otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}),
		otlptracehttp.WithTLSClientConfig(nil),
		otlptracehttp.WithMaxRequestSize(0), // the host bounds batches
		otlptracehttp.WithHTTPClient(&http.Client{Transport: t}),
	)
	return way{client, func() error { t.current().CloseIdleConnections(); return nil }}, nil
}

// transport compresses requests, and reads answers for [call].
type transport struct {
	settings

	mu sync.Mutex
	// base is replaced when the authorities are.
	base *http.Transport
	// authorities is their file as base knows it.
	authorities []byte
}

var _ http.RoundTripper = (*transport)(nil)

// RoundTrip gives an empty 200 where the call has succeeded, a redirect that is
// to be followed, or an error, which only ends the call: what counts is in it.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	defer func() { _ = req.Body.Close() }()
	out, err := t.outgoing(c, req)
	if err != nil {
		c.fault = err
		return nil, err
	}
	base := t.current()
	resp, err := base.RoundTrip(out)
	if err != nil {
		if distrust(err) {
			_ = t.renew(base) // for the next call; it fails where the file is not whole yet
		}
		c.fault = err
		return nil, err
	}
	if t.follow(c, resp) {
		return resp, nil
	}
	c.answer = t.read(c, out, resp)
	c.answered = true
	resp.Body = http.NoBody
	if c.answer != nil {
		return nil, c.answer
	}
	return resp, nil
}

// outgoing is the request as it goes out.
func (t *transport) outgoing(c *call, req *http.Request) (*http.Request, error) {
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
	}))
	if req.Response == nil { // it is no redirect: the URL with its query, as it is written
		out.URL = t.endpoint.url
	}
	if !t.gzip {
		return out, nil
	}
	body, err := compressed(req.Body)
	if err != nil {
		return nil, err
	}
	out.Header = req.Header.Clone()
	out.Header.Set("Content-Encoding", compressionGzip)
	out.ContentLength = int64(len(body))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	out.Body, _ = out.GetBody()
	return out, nil
}

// squeezer has what compressing needs, some 800 KiB with a batch of the usual size.
type squeezer struct {
	to     bytes.Buffer
	writer *gzip.Writer
}

// squeezers are kept between calls. Level 1 costs a fifth of the CPU of the
// standard library's default, for a few percent of size.
var squeezers = sync.Pool{New: func() any {
	s := &squeezer{}
	// It fails only for levels that there are not.
	s.writer, _ = gzip.NewWriterLevel(&s.to, gzip.BestSpeed)
	return s
}}

// compressed gives a copy of its own: a transport may read it when the call is
// over.
func compressed(body io.Reader) ([]byte, error) {
	s := squeezers.Get().(*squeezer)
	defer squeezers.Put(s)
	s.to.Reset()
	s.writer.Reset(&s.to)
	if _, err := io.Copy(s.writer, body); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := s.writer.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return bytes.Clone(s.to.Bytes()), nil
}

// follow tells whether a redirect is to be followed, which keeps the method, and
// the credentials on the machine that they are for.
func (t *transport) follow(c *call, resp *http.Response) bool {
	if resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return false
	}
	to, err := resp.Location()
	if err != nil || !sameHost(to, t.endpoint.url) || c.hops == mostHops {
		return false
	}
	from := resp.Request.URL
	if to.Scheme != "https" && (to.Scheme != "http" || from.Scheme == "https") {
		return false
	}
	c.hops++
	return true
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
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
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
