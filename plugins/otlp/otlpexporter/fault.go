package otlpexporter

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// adviser adds advice for the operator to errors. The advice depends on the settings.
type adviser struct{ settings settings }

// fault describes one reason for which a call gets no answer, with advice for the
// operator.
type fault struct {
	// in lists parts of error texts. The fault applies to an error with a text that contains
	// one of them. gRPC keeps only the text of a network error, so there is no type to test.
	// Tests check that the texts still occur.
	in []string
	// say is the description and the advice. It follows after the name of the endpoint. In
	// it, {setting} stands for the name of the setting with the endpoint, and {proxy} for
	// the proxy.
	say string
	// sayBy returns the description if it depends on the settings. If it is nil, say is
	// used.
	sayBy func(*adviser) string
}

// faults lists the known reasons. The first fault that applies to an error is used.
var faults = []fault{
	{in: []string{"proxyconnect", "failed to do connect handshake"},
		say: "cannot be reached through the proxy {proxy}: check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"},
	{in: []string{"server gave HTTP response to HTTPS client", "first record does not look like a TLS handshake"}, sayBy: (*adviser).withoutTLS},
	{in: []string{`malformed HTTP response "\x15\x03`, "unexpected TLS"}, say: "wants TLS: write https:// in {setting}"},
	// net/http reports the second text if the server's first frame arrives before the
	// request is written.
	{in: []string{`malformed HTTP response "\x00\x00`, "readLoopPeekFailLocked: %!w(<nil>)"},
		say: "speaks HTTP/2 at once, as gRPC does, not OTLP/HTTP: set " + EnvProtocol + "=grpc, or use the receiver's port for HTTP, usually 4318"},
	{in: []string{"looked like an HTTP/1.1 header", "unexpected HTTP status code", "unexpected content-type"},
		say: "is not a gRPC server: set " + EnvProtocol + "=http/protobuf, or use the receiver's port for gRPC, usually 4317"},
	{in: []string{"remote error: tls: "}, sayBy: func(a *adviser) string { return "refuses the TLS connection" + a.ourCertificate() }},
	{in: []string{"frame too large"}, sayBy: func(a *adviser) string {
		return a.cutOr("does not speak gRPC without TLS: if it wants TLS, write https:// in %s; if it is for HTTP, set %s=http/protobuf")
	}},
	// A load balancer also causes this error, while its server restarts.
	{in: []string{"error reading server preface"}, sayBy: func(a *adviser) string {
		return a.cutOr(cutText + ": if that goes on, it may want TLS (write https:// in %s), or be for HTTP (set %s=http/protobuf)")
	}},
	{in: []string{"certificate has expired or is not yet valid"},
		say: "has a certificate that is not valid at this time: renew it, or set this machine's clock"},
	{in: []string{"certificate signed by unknown authority", "certificate is not trusted"}, sayBy: (*adviser).untrusted},
	{in: []string{"x509: certificate is valid for", "x509: cannot validate certificate for", "x509: certificate is not valid for any names"},
		say: "has a certificate for another name: use a name of the certificate in {setting}, or renew it with this name"},
	{in: []string{"connection refused", "connect: no such file or directory"},
		say: "has no listener: start the receiver there, or set its address in {setting}"},
	{in: []string{"dial tcp: lookup ", "no such host", "produced zero addresses", "record lookup error"},
		say: "has a name that cannot be looked up: check it in {setting}, and this machine's DNS"},
	{in: []string{"no route to host", "network is unreachable"}, say: "cannot be reached from this network: check it in {setting}"},
	{in: []string{"i/o timeout", "TLS handshake timeout", "context deadline exceeded"},
		say: "did not accept a connection in time: check that it runs, that no firewall drops its packets, and {setting}"},
	{in: []string{
		"connection reset by peer", "broken pipe", "EOF", "closed idle connection", "transport is closing",
		"use of closed network connection", "client conn could not be established",
	}, sayBy: (*adviser).cut},
}

// says returns the description and the advice of a fault, with the operator's settings
// inserted.
func (a *adviser) says(f fault) string {
	if f.sayBy != nil {
		return f.sayBy(a)
	}
	return strings.NewReplacer("{setting}", a.setting(), "{proxy}", a.settings.via()).Replace(f.say)
}

func (a *adviser) withoutTLS() string {
	if !a.settings.endpoint.schemed {
		return fmt.Sprintf("answers without TLS: set %s=true, or write http:// in front of it in %s", EnvInsecure, a.setting())
	}
	return fmt.Sprintf("answers without TLS: write http:// in %s, or use a port of the receiver that has TLS", a.setting())
}

func (a *adviser) untrusted() string {
	if file := a.settings.trust.authorities; file.set() {
		return fmt.Sprintf("has a certificate from none of the authorities in %q: check %s", file.text, file.from)
	}
	return fmt.Sprintf("has a certificate from an authority unknown to this machine: set %s to the authority's PEM file", EnvCertificate)
}

// cutOr returns cut if TLS is used. Otherwise it returns format, with the name of the
// setting for the endpoint and the variable for the protocol inserted.
func (a *adviser) cutOr(format string) string {
	if a.settings.endpoint.secure {
		return a.cut()
	}
	return fmt.Sprintf(format, a.setting(), EnvProtocol)
}

// cutText describes a connection that the server has closed before it answered.
const cutText = "cut the connection before it answered"

// cut returns the description and the advice for a connection that the server has closed.
// With TLS, the reason may be the client's certificate: a server refuses it after the
// handshake, and the client often sees only that the connection is closed.
func (a *adviser) cut() string {
	switch {
	case a.settings.endpoint.secure:
		return cutText + a.ourCertificate()
	case a.settings.protocol == protocolGRPC:
		return cutText
	}
	// A gRPC server closes the connection of an HTTP client that does not speak HTTP/2.
	// Often no other error is visible.
	return fmt.Sprintf("%s: if that goes on, it may be a port for gRPC (set %s=grpc)", cutText, EnvProtocol)
}

// ourCertificate returns advice about the client's certificate, for an error that it may
// have caused.
func (a *adviser) ourCertificate() string {
	if a.settings.trust.certificate.set() {
		return ": check the certificate in " + a.settings.trust.certificate.from
	}
	return fmt.Sprintf(": if it wants a client's certificate, set %s and %s", EnvClientCertificate, EnvClientKey)
}

// explained returns the text of a network error together with a description and advice
// from faults, if there is one. at is the URL of the request, or nil if it is the
// endpoint's URL.
func (a *adviser) explained(text string, at *url.URL) string {
	shown := plain(a.settings.secrets.redact(text))
	for _, f := range faults {
		for _, in := range f.in {
			if strings.Contains(text, in) {
				return fmt.Sprintf("%s %s (%s)", a.place(at), a.says(f), shown)
			}
		}
	}
	return fmt.Sprintf("%s: %s", a.place(at), shown)
}

// place returns the address of a request as text for messages. After a redirect it also
// names the endpoint. at is the URL of the request, or nil if it is the endpoint's URL.
func (a *adviser) place(at *url.URL) string {
	if at == nil || at == a.settings.endpoint.url {
		return a.settings.endpoint.shown
	}
	return fmt.Sprintf("%s, to which %s redirects,", shownURL(at), a.settings.endpoint.shown)
}

// slow returns the error for a call that got no answer within the time within. setting is
// the name of the setting that decides this time.
func (a *adviser) slow(of *call, within time.Duration, setting string) error {
	text := "no connection to %s within %v: check that it runs, and that no firewall drops its packets"
	if of.connected.Load() {
		text = "no answer from %s within %v"
	}
	return &coded{status.Newf(codes.DeadlineExceeded, text+" (%s sets the time)", a.place(of.at), within.Round(time.Millisecond), setting)}
}

// setting returns the name of the setting in which the operator should change the
// endpoint: a variable or a path in the configuration.
func (a *adviser) setting() string {
	if from := a.settings.endpoint.from; strings.HasPrefix(from, "OTEL_") || from == documentEndpoint {
		return from
	}
	return EnvEndpoint
}

func (a *adviser) checkPath() string {
	if hint := a.settings.endpoint.pathHint(); hint != "" {
		return hint
	}
	return "check host, port and path in " + a.setting()
}

func (a *adviser) wantsTLS() string {
	return fmt.Sprintf("it wants TLS: write https:// in %s", a.setting())
}

// credentials returns advice for a back end that refuses the credentials. It has the
// names of the headers that are sent, and never their values.
func (a *adviser) credentials() string {
	if len(a.settings.headers) == 0 {
		return fmt.Sprintf("no credentials were sent: set them as headers in %s, such as authorization=Bearer%%20TOKEN", EnvHeaders)
	}
	return fmt.Sprintf("check the headers in %s (sent: %s)", a.settings.headersFrom, strings.Join(slices.Sorted(maps.Keys(a.settings.headers)), ", "))
}
