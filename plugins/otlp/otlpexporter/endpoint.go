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

// tracesPath is what HTTP appends to a base URL.
const tracesPath = "v1/traces"

// endpoint is where spans go.
type endpoint struct {
	// from is the name of what it is from.
	from string
	// shown is it as people may see it: without credentials and query.
	shown string
	// secure: with TLS. schemed: its scheme says so.
	secure, schemed bool
	// url is that of HTTP, without credentials; nil for gRPC.
	url *url.URL
	// asIs: nothing was appended to it.
	asIs bool
	// target is gRPC's.
	target string
	// host is the machine, and its port where there is one, as in a URL; empty
	// for what is no machine.
	host string
	// authorization is a header made of the URL's user and password; empty
	// without.
	authorization string
}

func (e *endpoint) port() string {
	_, port, err := net.SplitHostPort(e.host)
	if err != nil {
		return ""
	}
	return port
}

// endpoint reads the endpoint that the protocol asks for. It is unusable if
// there is a fault.
func (r *reader) endpoint(protocol string, insecure value, d Defaults) endpoint {
	inDocument := value{r.doc.Exporter.Endpoint, documentEndpoint}
	standard := "http://localhost:4318"
	if protocol == protocolGRPC {
		standard = "http://localhost:4317"
	}
	otherwise := value{standard, fromDefault}
	if d.Endpoint != "" {
		otherwise = value{d.Endpoint, "default of the plugin"}
	}
	chosen := r.choose(EnvTracesEndpoint, EnvEndpoint, inDocument, otherwise)
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

// httpEndpoint reads the URL of an HTTP endpoint. One of the traces' own is used
// as it is, any other is a base:
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/#endpoint-urls-for-otlphttp
func httpEndpoint(v value) (endpoint, error) {
	shown := shownText(v.text)
	scheme, rest, found := strings.Cut(v.text, "://")
	switch strings.ToLower(scheme) {
	case "http", "https":
	default:
		if !found {
			return endpoint{}, fmt.Errorf("%q has no scheme: want http://%[1]s, or https://%[1]s where the receiver has TLS", shown)
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

// parseURL checks what url.Parse does not. The error does not show credentials,
// as url.Parse's does.
func parseURL(text, shown string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is no URL: want http://HOST:PORT or https://HOST:PORT", shown)
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

// targetSchemes are gRPC's own, and whether what they name is a machine.
var targetSchemes = map[string]bool{"dns": true, "passthrough": true, "unix": false, "unix-abstract": false}

// grpcEndpoint reads what gRPC takes: a URL of http or https, whose scheme says
// whether there is TLS, or HOST:PORT, or a target with one of gRPC's schemes,
// which have TLS unless insecure. A Unix socket has none.
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

// grpcURL reads a URL, whose path gRPC has no use for.
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
	if u.Port() == "" { // gRPC would take 443 for both
		e.host = net.JoinHostPort(u.Hostname(), either(e.secure, "443", "80"))
	}
	e.target, e.shown = e.host, u.Scheme+"://"+e.host
	return e, nil
}

// basic takes the credentials out of a URL, as a header.
func basic(u *url.URL) string {
	user := u.User
	u.User = nil
	if user == nil {
		return ""
	}
	password, _ := user.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
}

// pathHint tells what is odd about the path; empty if nothing is.
func (e *endpoint) pathHint() string {
	switch {
	case e.asIs && e.url.Path == "/":
		return fmt.Sprintf("%s is used as it is, and most receivers want /%s at its end; %s gets that appended",
			EnvTracesEndpoint, tracesPath, EnvEndpoint)
	case !e.asIs && strings.HasSuffix(e.url.Path, tracesPath+"/"+tracesPath):
		return fmt.Sprintf("/%s is appended to this setting: leave it away there, or use %s", tracesPath, EnvTracesEndpoint)
	}
	return ""
}

// shownURL is a URL as people may see it.
func shownURL(u *url.URL) string {
	s := *u
	s.User = nil
	if s.RawQuery != "" {
		s.RawQuery = "…"
	}
	return plain(s.String())
}

// shownText is the same of a text that may not be a URL.
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

// either is a where is, else b.
func either(is bool, a, b string) string {
	if is {
		return a
	}
	return b
}

// sameHost tells whether two URLs are of one machine.
func sameHost(a, b *url.URL) bool { return strings.EqualFold(a.Hostname(), b.Hostname()) }
