package spans

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace/semconv"
)

// inbound adds attributes of the client's connection and request that exist only under
// OpenTelemetry's current names. The client's address comes from the connection and never
// from headers, which a client can forge.
func (a *attributes) inbound(ctx context.Context, s ProxyStart) {
	switch {
	case s.Protocol.overHTTP() && a.naming.http.stable() && s.HTTPRequest != nil:
		a.httpRequest(s.HTTPRequest)
	case s.Protocol == GRPC && a.naming.rpc.stable():
		if authority := s.Metadata[":authority"]; len(authority) > 0 {
			a.server(authority[0])
		}
		if s.Peer == nil {
			return
		}
		if addr := s.Peer(ctx); addr != nil {
			a.client(addr.String())
		}
	}
}

// httpRequest adds the attributes of an HTTP request and its connection.
func (a *attributes) httpRequest(r *http.Request) {
	if verb := r.Method; verb != semconv.Method(verb) && verb != "" { // net/http uses an empty verb for GET
		a.text(semconv.HTTPRequestMethodOriginal, verb)
	}
	a.text(semconv.URLPath, r.URL.EscapedPath())
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	a.text(semconv.URLScheme, scheme)
	a.server(r.Host)
	a.client(r.RemoteAddr)
	if agent := r.UserAgent(); agent != "" {
		a.text(semconv.UserAgentOriginal, agent)
	}
	version := strconv.Itoa(r.ProtoMajor)
	if r.ProtoMajor < 2 {
		version += "." + strconv.Itoa(r.ProtoMinor)
	}
	a.text(semconv.NetworkProtocolVersion, version)
}

// server adds the requested host, and the port if the request names it.
func (a *attributes) server(host string) {
	address, port, err := net.SplitHostPort(host)
	if err != nil {
		address = strings.Trim(host, "[]")
	}
	if address == "" {
		return
	}
	a.text(semconv.ServerAddress, address)
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		a.number(semconv.ServerPort, int(n))
	}
}

// client adds the address of the client without its port. The address of a Unix socket has no
// port.
func (a *attributes) client(remote string) {
	if address, _, err := net.SplitHostPort(remote); err == nil {
		remote = address
	}
	if remote != "" {
		a.text(semconv.ClientAddress, remote)
	}
}

// rpcRequest adds the attributes that name the method of a gRPC call, for the proxy span.
func (a *attributes) rpcRequest(method string) {
	if a.naming.rpc.ray() {
		a.text(semconv.RPCSystem, semconv.RPCSystemGRPCProxy)
	}
	if !a.naming.rpc.stable() {
		a.text(semconv.RPCMethod, method)
		return
	}
	a.text(semconv.RPCSystemName, semconv.RPCSystemNameGRPC)
	a.text(semconv.RPCMethod, strings.TrimPrefix(method, "/"))
}

// rpcStatus adds the name of the gRPC status code.
func (a *attributes) rpcStatus(code string) {
	if a.naming.rpc.ray() {
		a.text(semconv.RPCGRPCStatusCode, code)
	}
	if a.naming.rpc.stable() {
		a.text(semconv.RPCResponseStatusCode, code)
	}
}
