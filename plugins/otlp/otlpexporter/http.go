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
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
)

const maxRedirects = 3

// newHTTP returns a client for HTTP. The client encodes requests; the transport does
// everything else.
//
// Each option overrides a variable that the client would read itself. Because the client
// gets our HTTP client, it ignores its own timeout and TLS configuration.
func newHTTP(c settings) (connection, error) {
	t := &transport{answers: answers{adviser: adviser{c}}}
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
	return connection{client, func() error { t.base.Load().CloseIdleConnections(); return nil }}, nil
}

// transport compresses requests, and records each answer in the [call] of the request.
type transport struct {
	answers answers

	// base is replaced when the authorities' file changes.
	base atomic.Pointer[baseTransport]
}

type baseTransport struct {
	*http.Transport
	authorities []byte // content of the authorities' file
}

var _ http.RoundTripper = (*transport)(nil)

// RoundTrip sends a request. It returns the response with a buffered body of at most
// maxAnswer bytes.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	c.answered, c.fault = false, nil // after a redirect, these fields have the values of the first answer
	defer func() { _ = req.Body.Close() }()
	out, err := t.outgoing(c, req)
	if err != nil {
		c.fault = err
		return nil, err
	}
	c.at = out.URL
	base := t.base.Load()
	resp, err := base.RoundTrip(out)
	if err != nil {
		if distrust(err) {
			_ = t.renew(base) // for the next call; fails while the file is incomplete
		}
		c.fault = err
		return nil, err //nolint:wrapcheck // explain adds the context
	}
	c.setAnswer(t.answers.read(resp, req.ContentLength))
	return resp, nil
}

func (t *transport) outgoing(c *call, req *http.Request) (*http.Request, error) {
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
	}))
	if req.Response == nil { // this is no redirect: the client drops the query and may change the path's escapes
		out.URL = t.answers.settings.endpoint.url
	}
	out.Header = req.Header.Clone()
	if c.batchID != "" {
		out.Header.Set(headerBatchID, c.batchID)
	}
	if !t.answers.settings.gzip {
		return out, nil
	}
	body, err := compressed(req.Body)
	if err != nil {
		return nil, err
	}
	out.Header.Set("Content-Encoding", compressionGzip)
	out.ContentLength = int64(len(body))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	out.Body, err = out.GetBody()
	return out, err
}

// gzipWriters pools writers, which take 800 KiB each. Level 1 costs a fifth of the CPU
// time of the standard library's default.
var gzipWriters = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for an unknown level
	return z
}}

// compressed returns the compressed body. The buffer must not be pooled, because
// net/http may read it after the call.
func compressed(body io.Reader) ([]byte, error) {
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
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

// checkRedirect follows a redirect only if it keeps the method and does not expose the
// credentials to another host or without TLS. Otherwise the redirect response is the
// answer.
func (t *transport) checkRedirect(req *http.Request, via []*http.Request) error {
	before := via[len(via)-1].URL
	secure := req.URL.Scheme == "https" || req.URL.Scheme == "http" && before.Scheme == "http"
	if req.Method != http.MethodPost || !secure || !sameHost(req.URL, t.answers.settings.endpoint.url) || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// renew replaces the transport old if the authorities' file has changed.
func (t *transport) renew(old *baseTransport) error {
	config, authorities, err := t.answers.settings.trust.config()
	if err != nil || old != nil && bytes.Equal(authorities, old.authorities) {
		return err
	}
	renewed := &http.Transport{
		Proxy:                  t.answers.settings.proxy.of,
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true, // off by default with a TLSClientConfig
		MaxIdleConnsPerHost:    16,   // more than the host's concurrency
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		WriteBufferSize:        writeBuffer,
		// Pings detect dead HTTP/2 connections.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			return fmt.Errorf("proxyconnect: %s answered %s", proxy.Host, plain(resp.Status))
		},
	}
	if t.base.CompareAndSwap(old, &baseTransport{renewed, authorities}) && old != nil {
		old.CloseIdleConnections()
	}
	return nil
}

// writeBuffer is the size of a connection's write buffer, in bytes. A batch of the usual
// size fits into it, and is sent by one system call.
const writeBuffer = 1 << 20
