package otlpexporter

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fault is a reason for which there is no answer.
type fault struct {
	// in are texts of errors, of which one is enough. gRPC leaves nothing else of
	// an error, so HTTP's are known by their text too; tests hold them.
	in []string
	// say is what happened and what to do. It follows the endpoint.
	say func(c *settings) string
}

// faults are looked through in order: the first that matches counts.
var faults = []fault{
	{[]string{"proxyconnect", "failed to do connect handshake"}, func(c *settings) string {
		return fmt.Sprintf("can not be reached through the proxy %s: check HTTP_PROXY, HTTPS_PROXY and NO_PROXY", c.via())
	}},
	{[]string{"server gave HTTP response to HTTPS client", "first record does not look like a TLS handshake"}, func(c *settings) string {
		if !c.endpoint.schemed {
			return fmt.Sprintf("answers without TLS: set %s=true, or write http:// in front of it in %s", EnvInsecure, c.setting())
		}
		return fmt.Sprintf("answers without TLS: write http:// in %s, or use a port of the receiver that has TLS", c.setting())
	}},
	{[]string{`malformed HTTP response "\x15\x03`, "unexpected TLS"}, func(c *settings) string { return "wants TLS: write https:// in " + c.setting() }},
	// The second is net/http's where the server's first frame came before our request.
	{[]string{`malformed HTTP response "\x00\x00`, "readLoopPeekFailLocked: %!w(<nil>)"}, func(*settings) string {
		return fmt.Sprintf("speaks HTTP/2 at once, as gRPC does, not OTLP/HTTP: set %s=grpc, or use the receiver's port for HTTP, usually 4318", EnvProtocol)
	}},
	{[]string{"looked like an HTTP/1.1 header", "unexpected HTTP status code", "unexpected content-type"}, func(*settings) string {
		return fmt.Sprintf("is no gRPC server: set %s=http/protobuf, or use the receiver's port for gRPC, usually 4317", EnvProtocol)
	}},
	{[]string{"remote error: tls: "}, func(c *settings) string { return "refuses the TLS connection" + c.ourCertificate() }},
	{[]string{"frame too large"}, func(c *settings) string {
		if c.endpoint.secure {
			return c.cut()
		}
		return fmt.Sprintf("does not speak gRPC without TLS: if it wants TLS, write https:// in %s; if it is for HTTP, set %s=http/protobuf",
			c.setting(), EnvProtocol)
	}},
	// A balancer does that too, whose server is being restarted.
	{[]string{"error reading server preface"}, func(c *settings) string {
		if c.endpoint.secure {
			return c.cut()
		}
		return fmt.Sprintf("%s: if that goes on, it may want TLS (write https:// in %s), or be for HTTP (set %s=http/protobuf)",
			hangsUp, c.setting(), EnvProtocol)
	}},
	{[]string{"certificate has expired or is not yet valid"}, func(*settings) string {
		return "has a certificate that is not valid at this time: renew it, or set this machine's clock"
	}},
	{[]string{"certificate signed by unknown authority", "certificate is not trusted"}, func(c *settings) string {
		if c.trust.authorities.set() {
			return fmt.Sprintf("has a certificate of none of the authorities in %q: check %s", c.trust.authorities.text, c.trust.authorities.from)
		}
		return fmt.Sprintf("has a certificate of an authority that this machine does not know: set %s to the authority's PEM file", EnvCertificate)
	}},
	{[]string{"x509: certificate is valid for", "x509: cannot validate certificate for", "x509: certificate is not valid for any names"}, func(c *settings) string {
		return fmt.Sprintf("has a certificate for another name: use a name that it is for in %s, or have it made for this one", c.setting())
	}},
	{[]string{"connection refused", "connect: no such file or directory"}, func(c *settings) string {
		return fmt.Sprintf("has nobody listening: start the receiver there, or say where it is in %s", c.setting())
	}},
	{[]string{"dial tcp: lookup ", "no such host", "produced zero addresses", "record lookup error"}, func(c *settings) string {
		return fmt.Sprintf("has a name that can not be looked up: check it in %s, and this machine's DNS", c.setting())
	}},
	{[]string{"no route to host", "network is unreachable"}, func(c *settings) string {
		return "can not be reached from this network: check it in " + c.setting()
	}},
	{[]string{"i/o timeout", "TLS handshake timeout", "context deadline exceeded"}, func(c *settings) string {
		return "did not take a connection in time: check that it runs, that no firewall drops what is sent to it, and " + c.setting()
	}},
	{[]string{
		"connection reset by peer", "broken pipe", "EOF", "closed idle connection", "transport is closing",
		"use of closed network connection", "client conn could not be established",
	}, (*settings).cut},
}

// hangsUp is what all say of a server that ends a connection.
const hangsUp = "cut the connection before it answered"

// cut is a connection that has ended. A server that wants another certificate says
// so after the handshake, when we may be writing already, and then only this is
// left of it.
func (c *settings) cut() string {
	switch {
	case c.endpoint.secure:
		return hangsUp + c.ourCertificate()
	case c.protocol == protocolGRPC:
		return hangsUp
	}
	// A gRPC server speaks first and hangs up: as often as not, this is all of it.
	return fmt.Sprintf("%s: if that goes on, it may be a port for gRPC (set %s=grpc)", hangsUp, EnvProtocol)
}

// ourCertificate says what to do where TLS may have ended because of us.
func (c *settings) ourCertificate() string {
	if c.trust.certificate.set() {
		return ": check the certificate in " + c.trust.certificate.from
	}
	return fmt.Sprintf(": if it wants a client's certificate, set %s and %s", EnvClientCertificate, EnvClientKey)
}

// explain puts an error of the network into words for an operator. The batch is
// to be sent again. at is the URL of the request; nil for the endpoint.
func (c *settings) explain(err error, at *url.URL) error {
	return errors.New(c.explained(err.Error(), at))
}

func (c *settings) explained(text string, at *url.URL) string {
	said := plain(c.secrets.hide(text))
	for _, f := range faults {
		for _, in := range f.in {
			if strings.Contains(text, in) {
				return fmt.Sprintf("%s %s (%s)", c.place(at), f.say(c), said)
			}
		}
	}
	return fmt.Sprintf("%s: %s", c.place(at), said)
}

// place names the URL of a request, and the endpoint when that has redirected.
func (c *settings) place(at *url.URL) string {
	if at == nil || at == c.endpoint.url {
		return c.endpoint.shown
	}
	return fmt.Sprintf("%s, to which %s redirects,", shownURL(at), c.endpoint.shown)
}

// slow is the error of a call that was not answered in time.
func (c *settings) slow(of *call, within time.Duration, limit string) error {
	text := "no connection to %s within %v: check that it runs, and that no firewall drops what is sent to it"
	if of.connected.Load() {
		text = "no answer from %s within %v"
	}
	return &coded{status.Newf(codes.DeadlineExceeded, text+" (%s sets the time)", c.place(of.at), within.Round(time.Millisecond), limit)}
}
