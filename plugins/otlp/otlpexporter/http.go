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

// newHTTP returns a client that sends by HTTP. OpenTelemetry's client encodes the
// requests, and our transport does everything else.
//
// Each option overrides a variable that OpenTelemetry's client would read itself. Because
// it gets our http.Client, it ignores its own timeout and TLS configuration.
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
	withoutQuery := *c.endpoint.url // the transport adds the query, see backEndRequest
	withoutQuery.RawQuery = ""
	client := otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(withoutQuery.String()),
		otlptracehttp.WithHeaders(headers),
		otlptracehttp.WithEncoding(encoding),
		otlptracehttp.WithCompression(otlptracehttp.NoCompression), // because the transport compresses
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}),
		otlptracehttp.WithTLSClientConfig(nil),
		otlptracehttp.WithMaxRequestSize(0), // no limit, because the host already bounds the size of batches
		otlptracehttp.WithHTTPClient(&http.Client{Transport: t, CheckRedirect: t.checkRedirect}),
	)
	return connection{client, func() error { t.base.Load().CloseIdleConnections(); return nil }}, nil
}

// transport sends the requests of OpenTelemetry's client. It compresses them, and records
// each answer in the [call] of the request.
type transport struct {
	answers answers

	// base makes the connections. It is replaced when the file with the trusted authorities
	// changes.
	base atomic.Pointer[baseTransport]
}

type baseTransport struct {
	*http.Transport
	authorities []byte // content of the file with the trusted authorities
}

var _ http.RoundTripper = (*transport)(nil)

// RoundTrip sends a request. It returns the response with a body of at most maxAnswer
// bytes, which it has read already.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	c.answered, c.fault = false, nil // after a redirect, they have the values of the previous request
	defer func() { _ = req.Body.Close() }()
	out, err := t.backEndRequest(c, req)
	if err != nil {
		c.fault = err
		return nil, err
	}
	c.at = out.URL
	base := t.base.Load()
	resp, err := base.RoundTrip(out)
	if err != nil {
		if distrust(err) {
			_ = t.renew(base) // for the next call; fails while the operator is replacing the file
		}
		c.fault = err
		return nil, err //nolint:wrapcheck // Export adds the context
	}
	c.setAnswer(t.answers.read(resp, req.ContentLength)) // converts the response to Export's error, see answer.go
	return resp, nil
}

// backEndRequest returns the request that is sent to the back end in place of the client's
// request req: with the URL of the settings, the id of the batch, and a compressed body.
func (t *transport) backEndRequest(c *call, req *http.Request) (*http.Request, error) {
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
	}))
	if req.Response == nil { // this is not a redirect; OpenTelemetry's client drops the query, and may change escapes in the path
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

// gzipWriters is a pool, because each writer takes 800 KiB. Its level costs a fifth of
// the CPU time of the standard library's default level.
var gzipWriters = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // cannot fail, because the level is valid
	return z
}}

// compressed returns the compressed body in a new buffer. The buffer cannot come from a
// pool, because net/http may still read it after the call.
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

// checkRedirect allows a redirect only if it keeps the method POST, goes to the same
// host, and does not leave TLS. Otherwise it returns an error that makes the redirect
// itself the answer.
func (t *transport) checkRedirect(req *http.Request, via []*http.Request) error {
	before := via[len(via)-1].URL
	secure := req.URL.Scheme == "https" || req.URL.Scheme == "http" && before.Scheme == "http"
	if req.Method != http.MethodPost || !secure || !sameHost(req.URL, t.answers.settings.endpoint.url) || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// renew replaces the transport old if the file with the trusted authorities has changed.
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
		ForceAttemptHTTP2:      true, // net/http disables HTTP/2 by default if TLSClientConfig is set
		MaxIdleConnsPerHost:    16,   // more than the host's number of concurrent calls
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		WriteBufferSize:        writeBuffer,
		// Pings detect an HTTP/2 connection on which the other side no longer answers.
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

// writeBuffer is the size of a connection's write buffer, in bytes. A typical batch fits
// into it, and is then sent by one system call.
const writeBuffer = 1 << 20
