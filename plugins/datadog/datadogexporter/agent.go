package datadogexporter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// Paths and headers of the agent's API.
const (
	infoPath     = "/info"
	tracesPathV1 = "/v1.0/traces"

	headerTraceCount = "X-Datadog-Trace-Count"
	headerLanguage   = "Datadog-Meta-Lang"
	headerTracer     = "Datadog-Meta-Tracer-Version"
	// headerTopLevel says that spans are marked where work enters a service, and
	// that the agent should not go by its own rule for tracers.
	headerTopLevel = "Datadog-Client-Computed-Top-Level"
	// headerRealStatus asks an agent that is overloaded to say so. Without it, it
	// answers 200 and drops the payload.
	headerRealStatus = "Datadog-Send-Real-Http-Status"
)

// agent is a Datadog agent as one exporter reaches it.
type agent struct {
	base   *url.URL // http or https
	name   string   // what the operator calls it
	client *http.Client
	// timeout bounds each request.
	timeout time.Duration
	// container are the headers by which the agent finds what container, and so
	// what pod, the spans come from.
	container http.Header
}

// newAgent makes the client; external is what Datadog's admission controller says
// of the pod.
func newAgent(address *url.URL, timeout time.Duration, external string) *agent {
	shown := *address
	if shown.RawQuery != "" { // which may hold a key
		shown.RawQuery = "…"
	}
	a := &agent{base: address, name: shown.Redacted(), timeout: timeout, container: containerHeaders(external)}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 90 * time.Second,
		MaxIdleConnsPerHost: 8, // more calls at a time than a host makes
		DialContext:         dial,
		// net/http takes 10 MiB.
		MaxResponseHeaderBytes: 256 << 10,
	}
	if address.Scheme == "unix" {
		path := address.Path
		a.base = &url.URL{Scheme: "http", Host: "localhost"}
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", path) }
	}
	a.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // no agent does that
	}}
	return a
}

// dial makes a connection.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err //nolint:wrapcheck // unreachable has the words for it
	}
	return conn, nil
}

// features are what an agent says of itself, as far as it matters here.
type features struct {
	known      bool
	v1, events bool
}

// ask reads what the agent can take. An agent that does not say gets the oldest
// form; the error is that there is none.
func (a *agent) ask(ctx context.Context) (features, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base.JoinPath(infoPath).String(), nil)
	if err != nil {
		return features{}, pluginsdk.Permanent(fmt.Errorf("address of the Datadog agent: %w", err))
	}
	resp, err := a.do(req)
	if err != nil {
		return features{}, a.unreachable(err)
	}
	defer drain(resp)
	if resp.StatusCode >= http.StatusInternalServerError {
		return features{}, a.refused(infoPath, resp)
	}
	var info struct {
		Endpoints  []string `json:"endpoints"`
		SpanEvents bool     `json:"span_events"`
	}
	if resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&info) != nil {
		return features{known: true}, nil // before 7.28, or something in its place
	}
	return features{known: true, v1: slices.Contains(info.Endpoints, tracesPathV1), events: info.SpanEvents}, nil
}

// What send tells apart beyond success and failure.
var (
	errTooLarge = errors.New("the Datadog agent refuses the payload as too large")
	errNoV1     = errors.New("the Datadog agent does not take " + tracesPathV1)
)

// send delivers a payload. nil means that the agent has taken it.
func (a *agent) send(ctx context.Context, p payload) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base.JoinPath(p.path).String(), nil)
	if err != nil {
		return pluginsdk.Permanent(fmt.Errorf("address of the Datadog agent: %w", err))
	}
	p.attachTo(req)
	maps.Copy(req.Header, a.container)
	for name, value := range map[string]string{
		"Content-Type": "application/msgpack", headerTraceCount: strconv.Itoa(p.chunks), headerLanguage: p.by.language,
		headerTracer: "servetrace", headerTopLevel: "yes", headerRealStatus: "true",
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := a.do(req)
	if err != nil {
		return a.unreachable(err)
	}
	defer drain(resp)
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusNotFound && p.path == tracesPathV1:
		return errNoV1
	case resp.StatusCode == http.StatusRequestEntityTooLarge:
		return errTooLarge
	}
	return a.refused(p.path, resp)
}

// do is client.Do, but that the body of 101 Switching Protocols is empty: it is
// the connection itself, whose end no deadline brings.
func (a *agent) do(req *http.Request) (*http.Response, error) {
	resp, err := a.client.Do(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	return resp, err
}

// refused is the error for an answer that is none of success.
func (a *agent) refused(path string, resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
	err := fmt.Errorf("the Datadog agent at %s answers %d %s to %s", a.name, resp.StatusCode, http.StatusText(resp.StatusCode), path)
	if said := strings.TrimSpace(string(text)); said != "" {
		err = fmt.Errorf("%w: %q", err, said)
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
	case http.StatusNotFound:
		return pluginsdk.Permanent(fmt.Errorf("%w: is it a Datadog agent? Its port for traces is 8126 as a rule", err))
	default:
		if resp.StatusCode < http.StatusInternalServerError {
			return pluginsdk.Permanent(err)
		}
	}
	rest, _ := pluginsdk.ReadRetryAfter(resp.Header)
	return pluginsdk.RetryAfter(err, rest)
}

// unreachable is the error for a request without an answer, with what to do
// about the commonest causes. It is retried.
func (a *agent) unreachable(err error) error {
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		err = inner.Err // which has no address of ours in it
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
	if what := wrongPeer(err); what != "" {
		return fmt.Errorf("%s %s: %w", a.name, what, err)
	}
	return fmt.Errorf("the Datadog agent at %s does not answer: %w", a.name, err)
}

// wrongPeer says what listens in an agent's place, and what to do: the settings
// that are wrong as a rule. It goes by the text, for net/http has no types for
// these errors; "" where it knows none.
func wrongPeer(err error) string {
	const other = "its port for traces is 8126 as a rule"
	for _, known := range []struct{ text, what string }{
		{"server gave HTTP response to HTTPS client", "answers without TLS: write http:// in " + envAgentURL},
		{"first record does not look like a TLS handshake", "does not speak TLS: write http:// in " + envAgentURL},
		{`malformed HTTP response "\x15\x03`, "wants TLS, which no agent does by itself: write https:// in " + envAgentURL + ", or name the agent there; " + other},
		{"malformed HTTP response", "speaks another protocol, so it is no port of a Datadog agent for traces: " + other + ", and 4317 is for OTLP"},
		{"certificate signed by unknown authority", "has a certificate of an authority that this machine does not know: set SSL_CERT_FILE to the authority's PEM file"},
	} {
		if strings.Contains(err.Error(), known.text) {
			return known.what
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

// defaultSocket is where an agent on the same machine, or the same Kubernetes
// node, listens. A variable for tests.
var defaultSocket = "/var/run/datadog/apm.socket"

// agentAddress is the address of the agent by the variables, in dd-trace-go's
// order; exists tells whether there is a file.
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

// agentHost is the host that the variable's value names, or this machine.
func agentHost(value string) (string, error) {
	if strings.ContainsAny(value, "/ ") {
		return "", &pluginsdk.ConfigError{Path: envAgentHost, Err: fmt.Errorf(
			"%q: want a host's name or address alone; a URL goes into %s, with %s=%s into %s", value, envAgentURL, EnvMode, modeOTLP, otlpexporter.EnvEndpoint)}
	}
	return cmp.Or(strings.Trim(value, "[]"), "localhost"), nil // an IPv6 address may come with them
}

func parseAgentURL(value string) (*url.URL, error) {
	fault := func(format string, args ...any) error {
		return &pluginsdk.ConfigError{Path: envAgentURL, Err: fmt.Errorf(format, args...)}
	}
	const forms = "want http://HOST:8126, https://HOST:PORT or unix:///var/run/datadog/apm.socket"
	address, err := url.Parse(value)
	if err != nil {
		return nil, fault("no URL (%w): %s", errors.Unwrap(err), forms) // which holds no password
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
