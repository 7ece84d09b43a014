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

// Paths and headers of the agent's API.
const (
	infoPath   = "/info"
	tracesPath = "/traces" // suffix of the path
	statsPath  = "/v0.6/stats"

	headerTraceCount    = "X-Datadog-Trace-Count"
	headerDroppedTraces = "Datadog-Client-Dropped-P0-Traces"
	headerDroppedSpans  = "Datadog-Client-Dropped-P0-Spans"
	// headerRealStatus asks an overloaded agent for its real status. Without it, the
	// agent answers 200 and drops the payload.
	headerRealStatus = "Datadog-Send-Real-Http-Status"
)

// agent is the connection of an exporter to a Datadog agent.
type agent struct {
	base   *url.URL // http or https
	name   string   // the address for logs and errors
	client *http.Client
	// timeout bounds each request.
	timeout time.Duration
}

func newAgent(address *url.URL, timeout time.Duration) *agent {
	shown := *address
	if shown.RawQuery != "" { // the query may hold a key
		shown.RawQuery = "…"
	}
	a := &agent{base: address, name: shown.Redacted(), timeout: timeout}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 90 * time.Second,
		MaxIdleConnsPerHost: 8, // more than the host's concurrency
		DialContext:         dial,
		// The default of net/http is 10 MiB.
		MaxResponseHeaderBytes: 256 << 10,
	}
	if address.Scheme == "unix" {
		path := address.Path
		a.base = &url.URL{Scheme: "http", Host: "localhost"}
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", path) }
	}
	a.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // agents do not redirect
	}}
	return a
}

var dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext

// checkReachable returns nil if an agent answers. The tracer would start without an
// agent.
func (a *agent) checkReachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base.JoinPath(infoPath).String(), nil)
	if err != nil {
		return pluginsdk.Permanent(fmt.Errorf("address of the Datadog agent: %w", err))
	}
	resp, err := a.do(req)
	if err != nil {
		return a.unreachable(err)
	}
	defer drain(resp)
	if resp.StatusCode >= http.StatusInternalServerError {
		return a.refused(infoPath, resp)
	}
	return nil
}

var errTooLarge = errors.New("the Datadog agent refuses the payload as too large")

// maxAnswer bounds the bytes that are read of an answer to a payload.
const maxAnswer = 1 << 20

// send delivers a payload and returns the body of the answer. If the error is nil, the
// agent has accepted the payload.
func (a *agent) send(ctx context.Context, p payload) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	// net/http can rewind a bytes.Reader. With the header Idempotency-Key, which
	// dd-trace-go sets, it sends the request again after a stale connection.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base.JoinPath(p.path).String(), bytes.NewReader(p.body))
	if err != nil {
		return nil, pluginsdk.Permanent(fmt.Errorf("address of the Datadog agent: %w", err))
	}
	req.Header = p.header.Clone()
	req.Header.Set(headerRealStatus, "true")
	resp, err := a.do(req)
	if err != nil {
		return nil, a.unreachable(err)
	}
	defer drain(resp)
	switch {
	case resp.StatusCode/100 == 2:
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the payload is accepted in any case
		return body, nil
	case resp.StatusCode == http.StatusRequestEntityTooLarge:
		return nil, errTooLarge
	}
	return nil, a.refused(p.path, resp)
}

// pass forwards the tracer's own request to the agent.
func (a *agent) pass(req *http.Request) (*http.Response, error) {
	to, err := url.Parse(a.base.JoinPath(req.URL.Path).String()) // JoinPath alone may return a relative URL
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

// do is client.Do with an empty body for 101 Switching Protocols. Its body would be the
// connection, which ignores deadlines.
func (a *agent) do(req *http.Request) (*http.Response, error) {
	resp, err := a.client.Do(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	return resp, err
}

// refused returns the error for an unsuccessful answer.
func (a *agent) refused(path string, resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
	err := fmt.Errorf("the Datadog agent at %s answers %d %s to %s", a.name, resp.StatusCode, http.StatusText(resp.StatusCode), path)
	if body := strings.TrimSpace(string(text)); body != "" {
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

// unreachable returns the retryable error for a request without an answer, with advice
// for the most frequent causes.
func (a *agent) unreachable(err error) error {
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		err = inner.Err // without the address, which may hold a password
	}
	const set = "set DD_AGENT_HOST or DD_TRACE_AGENT_URL"
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no Datadog agent listens at %s: start it, or %s: %w", a.name, set, err)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("no Datadog agent has its socket at %s: start it, mount its folder, or %s: %w", a.name, set, err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("the socket of the Datadog agent at %s may not be written to: %w", a.name, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the Datadog agent at %s does not answer in time: %w", a.name, err)
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return fmt.Errorf("the name of the Datadog agent at %s is not found: %s: %w", a.name, set, err)
	}
	if advice := wrongPeer(err); advice != "" {
		return fmt.Errorf("%s %s: %w", a.name, advice, err)
	}
	return fmt.Errorf("the Datadog agent at %s does not answer: %w", a.name, err)
}

// wrongPeer returns a description of a server that is not an agent, with advice, or "".
// It checks the text, because net/http has no types for these errors.
func wrongPeer(err error) string {
	const other = "its port for traces is usually 8126"
	for _, known := range []struct{ text, advice string }{
		{"server gave HTTP response to HTTPS client", "answers without TLS: write http:// in " + envAgentURL},
		{"first record does not look like a TLS handshake", "does not speak TLS: write http:// in " + envAgentURL},
		{`malformed HTTP response "\x15\x03`, "wants TLS, which no agent does by itself: write https:// in " + envAgentURL + ", or name the agent there; " + other},
		{"malformed HTTP response", "speaks another protocol, so it is not a Datadog agent's port for traces: " + other + ", and 4317 is for OTLP"},
		{"certificate signed by unknown authority", "has a certificate from an authority unknown to this machine: set SSL_CERT_FILE to the authority's PEM file"},
	} {
		if strings.Contains(err.Error(), known.text) {
			return known.advice
		}
	}
	return ""
}

// drain reads an answer to its end, so that the connection can be used again.
func drain(resp *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	_ = resp.Body.Close()
}

func (a *agent) close() { a.client.CloseIdleConnections() }

// defaultSocket is the agent's default socket on the same machine or Kubernetes node.
// It is a variable for tests.
var defaultSocket = "/var/run/datadog/apm.socket"

// agentAddress returns the agent's address from the variables, in dd-trace-go's order.
// exists reports whether a file exists.
func agentAddress(getenv func(string) string, exists func(path string) bool) (*url.URL, error) {
	if value := getenv(envAgentURL); value != "" {
		return parseAgentURL(value)
	}
	host, port := getenv(envAgentHost), getenv(envAgentPort)
	if host == "" && port == "" && exists(defaultSocket) {
		return &url.URL{Scheme: "unix", Path: defaultSocket}, nil
	}
	if port != "" {
		if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
			return nil, &pluginsdk.ConfigError{Path: envAgentPort, Err: fmt.Errorf("%q: want a port, 1 to 65535", port)}
		}
	}
	host, err := agentHost(host)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "http", Host: net.JoinHostPort(host, cmp.Or(port, "8126"))}, nil
}

// agentHost returns the host in the variable's value, or localhost.
func agentHost(value string) (string, error) {
	if strings.ContainsAny(value, "/ ") {
		return "", &pluginsdk.ConfigError{Path: envAgentHost, Err: fmt.Errorf(
			"%q: want a host's name or address alone; a URL goes into %s, with %s=%s into %s", value, envAgentURL, EnvMode, modeOTLP, otlpexporter.EnvEndpoint)}
	}
	return cmp.Or(strings.Trim(value, "[]"), "localhost"), nil // an IPv6 address may have brackets
}

func parseAgentURL(value string) (*url.URL, error) {
	fault := func(format string, args ...any) error {
		return &pluginsdk.ConfigError{Path: envAgentURL, Err: fmt.Errorf(format, args...)}
	}
	const forms = "want http://HOST:8126, https://HOST:PORT or unix:///var/run/datadog/apm.socket"
	address, err := url.Parse(value)
	if err != nil {
		return nil, fault("not a URL (%w): %s", errors.Unwrap(err), forms) // the inner error holds no password
	}
	switch {
	case address.Scheme == "unix" && address.Host == "" && strings.HasPrefix(address.Path, "/"):
	case (address.Scheme == "http" || address.Scheme == "https") && address.Hostname() != "":
	default:
		return nil, fault("%q: %s", address.Redacted(), forms)
	}
	if port := address.Port(); port != "" {
		if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
			return nil, fault("port %q: %s", port, forms)
		}
	}
	return address, nil
}
