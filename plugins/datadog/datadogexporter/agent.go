package datadogexporter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

const (
	infoPath   = "/info"
	tracesPath = "/traces" // end of the path; a version comes before it
	statsPath  = "/v0.6/stats"

	headerTraceCount    = "X-Datadog-Trace-Count"
	headerDroppedTraces = "Datadog-Client-Dropped-P0-Traces"
	headerDroppedSpans  = "Datadog-Client-Dropped-P0-Spans"
	// headerRealStatus asks an overloaded agent for an error status. Without this header,
	// the agent answers 200 and drops the payload.
	headerRealStatus = "Datadog-Send-Real-Http-Status"
)

// agent is an HTTP client for a Datadog agent.
type agent struct {
	base    *url.URL // scheme is http or https, also for a Unix socket
	name    string   // the address for logs and errors, without secrets
	client  *http.Client
	timeout time.Duration
}

func newAgent(address *url.URL, timeout time.Duration) *agent {
	shown := *address
	if shown.RawQuery != "" { // a query may contain an API key
		shown.RawQuery = "…"
	}
	a := &agent{base: address, name: shown.Redacted(), timeout: timeout}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 90 * time.Second,
		MaxIdleConnsPerHost: 8, // more than the host's number of concurrent calls
		DialContext:         dial,
		// The default of net/http, 10 MiB, would cost memory.
		MaxResponseHeaderBytes: 256 << 10,
	}
	if address.Scheme == "unix" {
		path := address.Path
		a.base = &url.URL{Scheme: "http", Host: "localhost"}
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", path) }
	}
	a.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a redirect is an error, because agents never redirect
	}}
	return a
}

var dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext

// checkReachable returns nil if the agent answers a request with a status below 500. It
// is needed because dd-trace-go starts even if the agent does not answer.
func (a *agent) checkReachable(ctx context.Context) error {
	status, _, err := a.call(ctx, http.MethodGet, infoPath, nil, nil)
	if status > 0 && status < http.StatusInternalServerError {
		return nil
	}
	return err
}

var errTooLarge = errors.New("the Datadog agent refuses the payload as too large")

// send sends a payload to the agent, and returns the body of the answer. If the error is
// nil, the agent has accepted the payload. The error is errTooLarge if the agent refuses
// it because of its size.
func (a *agent) send(ctx context.Context, p payload) ([]byte, error) {
	header := p.header.Clone()
	header.Set(headerRealStatus, "true")
	status, body, err := a.call(ctx, http.MethodPost, p.path, header, p.body)
	if status == http.StatusRequestEntityTooLarge {
		return nil, errTooLarge
	}
	return body, err
}

// maxAnswer bounds the number of bytes that are read of an agent's answer.
const maxAnswer = 1 << 20

// call sends a request and returns the status and the body of the answer. It returns an
// error unless the status is 2xx. The status is 0 if there is no answer.
func (a *agent) call(ctx context.Context, method, path string, header http.Header, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	// With a bytes.Reader as the body, net/http can send the request again if the connection
	// was stale. It does so if dd-trace-go has set the header Idempotency-Key.
	req, err := http.NewRequestWithContext(ctx, method, a.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, pluginsdk.Permanent(fmt.Errorf("address of the Datadog agent: %w", err))
	}
	req.Header = header
	resp, err := a.do(req)
	if err != nil {
		return 0, nil, a.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // an error is ignored, because the status decides
	if resp.StatusCode/100 != 2 {
		return resp.StatusCode, nil, a.refused(path, resp, answer)
	}
	return resp.StatusCode, answer, nil
}

// pass sends a request that dd-trace-go has made to the agent, at the agent's real
// address.
func (a *agent) pass(req *http.Request) (*http.Response, error) {
	to, err := url.Parse(a.base.JoinPath(req.URL.Path).String()) // parsed again, because JoinPath may return a relative URL
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.URL = to
	out.Host = out.URL.Host
	if req.URL.RawQuery != "" {
		out.URL.RawQuery = strings.TrimPrefix(out.URL.RawQuery+"&"+req.URL.RawQuery, "&")
	}
	return a.do(out)
}

// do sends a request. If the status is 101 Switching Protocols, the body of the response
// is empty, because the real body would be the connection itself, on which reads ignore
// deadlines.
func (a *agent) do(req *http.Request) (*http.Response, error) {
	resp, err := a.client.Do(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	return resp, err
}

func (a *agent) refused(path string, resp *http.Response, text []byte) error {
	const most = 300 // length in bytes to which the text is cut
	err := fmt.Errorf("the Datadog agent at %s answers %d %s to %s", a.name, resp.StatusCode, http.StatusText(resp.StatusCode), path)
	if body := strings.TrimSpace(string(text[:min(most, len(text))])); body != "" {
		err = fmt.Errorf("%w: %q", err, body)
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
	case http.StatusNotFound:
		return pluginsdk.Permanent(fmt.Errorf("%w: is it a Datadog agent? Its port for traces is usually 8126", err))
	default:
		if resp.StatusCode < http.StatusInternalServerError {
			return pluginsdk.Permanent(err)
		}
	}
	rest, _ := pluginsdk.ReadRetryAfter(resp.Header)
	return pluginsdk.RetryAfter(err, rest)
}

// unreachable returns the error for a request that got no answer, with advice for the
// most frequent causes. The host sends the batch again.
func (a *agent) unreachable(err error) error {
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		err = inner.Err // the text of the outer error has the address, which may contain a password
	}
	const set = "set DD_AGENT_HOST or DD_TRACE_AGENT_URL"
	const other = "its port for traces is usually 8126"
	dns := (*net.DNSError)(nil)
	text := "the Datadog agent at %s does not answer"
	switch says := func(part string) bool { return strings.Contains(err.Error(), part) }; { // some errors of net/http can only be recognised by their text
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "no Datadog agent listens at %s: start it, or " + set
	case errors.Is(err, syscall.ENOENT):
		text = "no Datadog agent has its socket at %s: start it, mount its folder, or " + set
	case errors.Is(err, syscall.EACCES):
		text = "the socket of the Datadog agent at %s may not be written to"
	case errors.Is(err, context.DeadlineExceeded):
		text = "the Datadog agent at %s does not answer in time"
	case errors.As(err, &dns):
		text = "the name of the Datadog agent at %s is not found: " + set
	case says("server gave HTTP response to HTTPS client"):
		text = "%s answers without TLS: write http:// in " + envAgentURL
	case says("first record does not look like a TLS handshake"):
		text = "%s does not speak TLS: write http:// in " + envAgentURL
	case says(`malformed HTTP response "\x15\x03`):
		text = "%s wants TLS, which no agent does by itself: write https:// in " + envAgentURL + ", or name the agent there; " + other
	case says("malformed HTTP response"):
		text = "%s speaks another protocol, so it is not a Datadog agent's port for traces: " + other + ", and 4317 is for OTLP"
	case says("certificate signed by unknown authority"):
		text = "%s has a certificate from an authority unknown to this machine: set SSL_CERT_FILE to the authority's PEM file"
	}
	return fmt.Errorf(text+": %w", a.name, err)
}

// defaultSocket is the default path of the agent's Unix socket on the same machine or
// Kubernetes node. Tests change it.
var defaultSocket = "/var/run/datadog/apm.socket"

// agentAddress returns the address of the agent, by the same rules as dd-trace-go: the
// URL in a variable, or else host and port in variables. If none is set, it returns the
// default socket if that exists, and otherwise localhost:8126. exists reports whether a
// file exists.
func agentAddress(getenv func(string) string, exists func(path string) bool) (*url.URL, error) {
	if value := getenv(envAgentURL); value != "" {
		return parseAgentURL(value)
	}
	host, port := getenv(envAgentHost), getenv(envAgentPort)
	if host == "" && port == "" && exists(defaultSocket) {
		return &url.URL{Scheme: "unix", Path: defaultSocket}, nil
	}
	if !isPort(cmp.Or(port, defaultPort)) {
		return nil, &pluginsdk.ConfigError{Path: envAgentPort, Err: fmt.Errorf("%q: want a port, 1 to 65535", port)}
	}
	host, err := agentHost(host)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "http", Host: net.JoinHostPort(host, cmp.Or(port, defaultPort))}, nil
}

// agentHost returns the agent's host, from the value of DD_AGENT_HOST. It is localhost if
// the value is empty.
func agentHost(value string) (string, error) {
	if strings.ContainsAny(value, "/ ") {
		return "", &pluginsdk.ConfigError{Path: envAgentHost, Err: fmt.Errorf(
			"%q: want a host's name or address alone; a URL goes into %s, with %s=%s into %s", value, envAgentURL, EnvMode, modeOTLP, otlpexporter.EnvEndpoint)}
	}
	return cmp.Or(strings.Trim(value, "[]"), "localhost"), nil // an IPv6 address may be in brackets
}

func parseAgentURL(value string) (*url.URL, error) {
	fault := func(format string, args ...any) error {
		return &pluginsdk.ConfigError{Path: envAgentURL, Err: fmt.Errorf(format, args...)}
	}
	const forms = "want http://HOST:8126, https://HOST:PORT or unix:///var/run/datadog/apm.socket"
	address, err := url.Parse(value)
	if err != nil {
		return nil, fault("not a URL (%w): %s", errors.Unwrap(err), forms) // the text of the inner error has no password
	}
	switch {
	case address.Scheme == "unix" && address.Host == "" && strings.HasPrefix(address.Path, "/"):
	case (address.Scheme == "http" || address.Scheme == "https") && address.Hostname() != "":
	default:
		return nil, fault("%q: %s", address.Redacted(), forms)
	}
	if port := address.Port(); port != "" && !isPort(port) {
		return nil, fault("port %q: %s", port, forms)
	}
	return address, nil
}

const defaultPort = "8126"

func isPort(text string) bool {
	number, err := strconv.ParseUint(text, 10, 16)
	return err == nil && number > 0
}
