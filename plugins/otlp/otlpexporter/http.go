package otlpexporter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
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

// newHTTP makes the client for HTTP. The client encodes requests; the transport
// does everything else.
//
// Each option overrides a variable that the client would read by itself. With an
// HTTP client of ours it uses neither its timeout nor its TLS configuration.
func newHTTP(c settings) (connection, error) {
	t := &transport{settings: c}
	if err := t.renew(nil); err != nil {
		return connection{}, err
	}
	headers := map[string]string{"user-agent": userAgent}
	maps.Copy(headers, c.headers)
	encoding := otlptracehttp.EncodingProtobuf
	if c.protocol == protocolJSON {
		encoding = otlptracehttp.EncodingJSON
	}
	withoutQuery := *c.endpoint.url // see outgoing
	withoutQuery.RawQuery = ""
	client := otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(withoutQuery.String()),
		otlptracehttp.WithHeaders(headers),
		otlptracehttp.WithEncoding(encoding),
		otlptracehttp.WithCompression(otlptracehttp.NoCompression), // the transport compresses
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}),
		otlptracehttp.WithTLSClientConfig(nil),
		otlptracehttp.WithMaxRequestSize(0), // the host bounds batches
		otlptracehttp.WithHTTPClient(&http.Client{Transport: t, CheckRedirect: t.checkRedirect}),
	)
	return connection{client, func() error { t.current().CloseIdleConnections(); return nil }}, nil
}

// transport compresses requests, and notes answers in their [call].
type transport struct {
	settings

	mu sync.Mutex
	// base is replaced when the authorities change.
	base *http.Transport
	// authorities is the content of their file that base was made with.
	authorities []byte
}

var _ http.RoundTripper = (*transport)(nil)

// RoundTrip makes one request. It returns the response with a body that has been
// read, up to a bound.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	c.answered, c.fault = false, nil // a redirect was followed
	defer func() { _ = req.Body.Close() }()
	out, err := t.outgoing(c, req)
	if err != nil {
		c.fault = err
		return nil, err
	}
	c.at = out.URL
	base := t.current()
	resp, err := base.RoundTrip(out)
	if err != nil {
		if distrust(err) {
			_ = t.renew(base) // for the next call; it fails while the file is not complete
		}
		c.fault = err
		return nil, err //nolint:wrapcheck // explain has the words for it
	}
	c.answers(t.read(resp, req.ContentLength))
	return resp, nil
}

// outgoing returns the request to send.
func (t *transport) outgoing(c *call, req *http.Request) (*http.Request, error) {
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
	}))
	if req.Response == nil { // no redirect: the client drops the query and may escape the path anew
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
	out.Body, err = out.GetBody()
	return out, err
}

// squeezers keep the 800 KiB that a writer needs between calls. Level 1 costs a
// fifth of the CPU of the standard library's default.
var squeezers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for an unknown level
	return z
}}

// compressed returns the compressed body. It is not used again: net/http may read
// it after the call.
func compressed(body io.Reader) ([]byte, error) {
	z := squeezers.Get().(*gzip.Writer)
	defer squeezers.Put(z)
	var to bytes.Buffer
	z.Reset(&to)
	if _, err := io.Copy(z, body); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return to.Bytes(), nil
}

// checkRedirect allows a redirect that keeps the method, and the credentials on
// the machine that they are for. Of any other the redirect itself is the answer.
func (t *transport) checkRedirect(req *http.Request, via []*http.Request) error {
	before := via[len(via)-1].URL
	secure := req.URL.Scheme == "https" || req.URL.Scheme == "http" && before.Scheme == "http"
	if req.Method != http.MethodPost || !secure || !sameHost(req.URL, t.endpoint.url) || len(via) > mostHops {
		return http.ErrUseLastResponse
	}
	return nil
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
		ForceAttemptHTTP2:      true, // off by default with a TLSClientConfig
		MaxIdleConnsPerHost:    16,   // more than a host sends at a time
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		WriteBufferSize:        writeBuffer,
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

// writeBuffer is the size of a connection's buffer, bytes. A batch of the usual
// size fits, and is written by one call of the kernel.
const writeBuffer = 1 << 20
