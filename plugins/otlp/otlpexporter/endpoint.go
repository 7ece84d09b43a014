package otlpexporter

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// tracesPath is appended to an HTTP endpoint, except if the endpoint is set by
// EnvTracesEndpoint.
const tracesPath = "v1/traces"

type endpoint struct {
	from string
	// shown is the endpoint as text for messages, without credentials and query.
	shown string
	// secure reports that TLS is used. schemed reports that the endpoint itself decides
	// about TLS, by its scheme or as a Unix socket, and the setting "insecure" has no
	// effect.
	secure, schemed bool
	// url is the URL to which requests are sent over HTTP, without credentials. It is nil
	// for gRPC.
	url *url.URL
	// asIs reports that tracesPath was not appended to the URL.
	asIs   bool
	target string
	// host is the name or address of the back end's machine, with the port if there is one.
	// It is empty for a Unix socket.
	host string
	// authorization is the value of the header Authorization for the user and the password
	// in the endpoint. It is empty if the endpoint has none.
	authorization string
}

func (e *endpoint) port() string {
	_, port, err := net.SplitHostPort(e.host)
	if err != nil {
		return ""
	}
	return port
}

// endpoint reads the endpoint from the settings, in a form for the protocol. If the
// endpoint is invalid, it records an error, and the result must not be used.
func (r *reader) endpoint(protocol string, insecure value, d Defaults) endpoint {
	otherwise := value{"http://localhost:4318", fromDefault}
	if protocol == protocolGRPC {
		otherwise.text = "http://localhost:4317"
	}
	if d.Endpoint != "" {
		otherwise = value{d.Endpoint, fromPlugin}
	}
	chosen := r.choose(EnvEndpoint, r.doc.Exporter.Endpoint, otherwise)
	read := httpEndpoint
	if protocol == protocolGRPC {
		read = func(v value) (endpoint, error) { return grpcEndpoint(v, insecure.text == "true") }
	}
	e, err := read(chosen)
	if err != nil {
		r.fault(chosen.from, "%w", err)
	}
	e.from = chosen.from
	return e
}

// httpEndpoint parses the URL of an HTTP endpoint. It appends tracesPath unless the URL
// comes from EnvTracesEndpoint, as the specification requires:
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/#endpoint-urls-for-otlphttp
func httpEndpoint(v value) (endpoint, error) {
	shown := shownText(v.text)
	scheme, rest, found := strings.Cut(v.text, "://")
	switch strings.ToLower(scheme) {
	case "http", "https":
	default:
		if !found {
			return endpoint{}, fmt.Errorf("%q has no scheme: want http://%[1]s, or https://%[1]s if the receiver has TLS", shown)
		}
		return endpoint{}, fmt.Errorf("%q has the scheme %q: want http or https, or set %s=grpc for the endpoint forms of gRPC",
			shown, plain(scheme), EnvProtocol)
	}
	if rest == "" {
		return endpoint{}, fmt.Errorf("%q has no host: want http://HOST:PORT", shown)
	}
	u, err := parseURL(v.text, shown)
	if err != nil {
		return endpoint{}, err
	}
	e := endpoint{secure: u.Scheme == "https", schemed: true, host: u.Host, asIs: v.from == EnvTracesEndpoint}
	e.authorization = basic(u)
	if u.Path == "" {
		u.Path = "/"
	}
	if !e.asIs {
		u = u.JoinPath(tracesPath)
	}
	e.url, e.shown = u, shownURL(u)
	return e, nil
}

// parseURL parses the URL of an endpoint, which must have a host and no fragment. Unlike
// an error of url.Parse, its error does not contain credentials.
func parseURL(text, shown string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL: want http://HOST:PORT or https://HOST:PORT", shown)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("%q has no host: want %s://HOST:PORT", shown, u.Scheme)
	}
	if u.Fragment != "" {
		return nil, fmt.Errorf("%q has a fragment: want a URL without #", shown)
	}
	if err := checkPort(u.Port(), shown); err != nil {
		return nil, err
	}
	return u, nil
}

func checkPort(port, shown string) error {
	if port == "" {
		return nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has the port %s: want 1 to 65535", shown, port)
	}
	return nil
}

// targetSchemes lists the schemes that only gRPC knows. The value is true if an address
// with the scheme names a machine.
var targetSchemes = map[string]bool{"dns": true, "passthrough": true, "unix": false, "unix-abstract": false}

// grpcEndpoint parses an endpoint for gRPC, which has one of three forms. It is an http
// or https URL, and the scheme decides about TLS. Or it is HOST:PORT. Or it has one of
// gRPC's schemes, such as dns:///HOST:PORT. The last two forms use TLS unless insecure is
// true. A Unix socket never uses TLS.
func grpcEndpoint(v value, insecure bool) (endpoint, error) {
	shown := shownText(v.text)
	scheme, rest, _ := strings.Cut(v.text, ":")
	switch machine, known := targetSchemes[scheme]; {
	case strings.HasPrefix(v.text, "http://"), strings.HasPrefix(v.text, "https://"):
		return grpcURL(v.text, shown)
	case known && strings.Trim(rest, "/") == "":
		return endpoint{}, fmt.Errorf("%q names nothing: want %s", shown, either(machine, scheme+":///HOST:PORT", scheme+":///PATH"))
	case known && machine:
		host := path.Base(rest)
		return endpoint{target: v.text, shown: shown, secure: !insecure, host: host}, nil
	case known:
		return endpoint{target: v.text, shown: shown, schemed: true}, nil
	case strings.Contains(v.text, "://"):
		return endpoint{}, fmt.Errorf("%q has the scheme %q: want http or https, or dns, passthrough, unix or unix-abstract of gRPC",
			shown, plain(scheme))
	}
	host, port, err := net.SplitHostPort(v.text)
	if err != nil || host == "" {
		return endpoint{}, fmt.Errorf("%q: want http://HOST:PORT, https://HOST:PORT or HOST:PORT; OTLP/gRPC is usually port 4317", shown)
	}
	if err := checkPort(port, shown); err != nil {
		return endpoint{}, err
	}
	return endpoint{target: v.text, shown: shown, secure: !insecure, host: v.text}, nil
}

// grpcURL parses an http or https URL as an endpoint for gRPC. It must have no path.
func grpcURL(text, shown string) (endpoint, error) {
	u, err := parseURL(text, shown)
	if err != nil {
		return endpoint{}, err
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return endpoint{}, fmt.Errorf("%q has a path, which gRPC does not: want %s://%s, or set %s=http/protobuf",
			shown, u.Scheme, u.Host, EnvProtocol)
	}
	e := endpoint{secure: u.Scheme == "https", schemed: true, authorization: basic(u), host: u.Host}
	if u.Port() == "" { // gRPC itself would use port 443 for both schemes
		e.host = net.JoinHostPort(u.Hostname(), either(e.secure, "443", "80"))
	}
	e.target, e.shown = e.host, u.Scheme+"://"+e.host
	return e, nil
}

// basic removes user and password from a URL, and returns them as a value of the header
// Authorization. It returns "" if the URL has none.
func basic(u *url.URL) string {
	user := u.User
	u.User = nil
	if user == nil {
		return ""
	}
	password, _ := user.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
}

func (e *endpoint) pathHint() string {
	switch {
	case e.asIs && e.url.Path == "/":
		return fmt.Sprintf("%s is used as it is, and most receivers want /%s at its end; %s gets that appended",
			EnvTracesEndpoint, tracesPath, EnvEndpoint)
	case !e.asIs && strings.HasSuffix(e.url.Path, tracesPath+"/"+tracesPath):
		return fmt.Sprintf("/%s is appended to %s: omit it there, or use %s", tracesPath, e.from, EnvTracesEndpoint)
	}
	return ""
}

// shownURL returns a URL as text for messages, without credentials, and with "…" in place
// of the query.
func shownURL(u *url.URL) string {
	s := *u
	s.User = nil
	if s.RawQuery != "" {
		s.RawQuery = "…"
	}
	return plain(s.String())
}

// shownText returns an operator's endpoint as text for messages, without credentials and
// query. text need not be a valid URL.
func shownText(text string) string {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		scheme, _, found := strings.Cut(text, "://")
		text = either(found && len(scheme) < at, scheme+"://", "") + text[at+1:]
	}
	if before, _, found := strings.Cut(text, "?"); found {
		text = before + "?…"
	}
	return plain(text)
}

func either(is bool, a, b string) string {
	if is {
		return a
	}
	return b
}

func sameHost(a, b *url.URL) bool { return strings.EqualFold(a.Hostname(), b.Hostname()) }
