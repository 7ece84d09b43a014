package spans

import (
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

// attributes gathers the attributes of a span, under the names that are asked for.
type attributes struct {
	naming
	list []attribute.KeyValue
}

// The number of attributes that most spans start and end with.
const (
	usualAtStart = 12
	usualAtEnd   = 5
)

func (n naming) atStart() attributes {
	return attributes{naming: n, list: make([]attribute.KeyValue, 0, usualAtStart)}
}

func (n naming) atEnd() attributes {
	return attributes{naming: n, list: make([]attribute.KeyValue, 0, usualAtEnd)}
}

func (a *attributes) text(key, value string) { a.list = append(a.list, attribute.String(key, value)) }

func (a *attributes) number(key string, value int) {
	a.list = append(a.list, attribute.Int(key, value))
}

func (a *attributes) flag(key string, value bool) {
	a.list = append(a.list, attribute.Bool(key, value))
}

func (a *attributes) decimal(key string, value float64) {
	a.list = append(a.list, attribute.Float64(key, value))
}

// serveText adds one of Serve's own attributes under the names that are asked
// for. An empty key has no counterpart in that mode.
func (a *attributes) serveText(ray, stable, value string) {
	if a.serve.ray() {
		a.text(ray, value)
	}
	if a.serve.stable() && stable != "" {
		a.text(stable, value)
	}
}

func (a *attributes) serveFlag(ray, stable string, value bool) {
	if a.serve.ray() {
		a.flag(ray, value)
	}
	if a.serve.stable() {
		a.flag(stable, value)
	}
}

// request adds the id of r, which may be nil, as Ray names it: in every mode,
// serve.request_id says the same.
func (a *attributes) request(r *identity.Request) {
	if r != nil && a.serve.ray() {
		a.text(semconv.RequestID, r.ID)
	}
}

// owner adds what is called.
func (a *attributes) owner(deployment, app string) {
	a.serveText(semconv.Deployment, semconv.ServeDeployment, deployment)
	a.serveText(semconv.App, semconv.ServeApp, app)
}

// replica adds the short id of c, which may be nil.
func (a *attributes) replica(c *identity.Component) {
	if c != nil && a.serve.ray() { // in every mode, serve.replica_id ends in it
		a.text(semconv.ReplicaID, c.UniqueID())
	}
}

// httpMethod adds the verb, which for a web socket is Ray's word for one, and
// today that of the handshake.
func (a *attributes) httpMethod(p Protocol, verb string) {
	shown := semconv.Method(verb)
	if a.http.stable() {
		a.text(semconv.HTTPRequestMethod, shown)
	}
	if p == WebSocket {
		shown = semconv.MethodWebSocket
	}
	if a.http.ray() {
		a.text(semconv.HTTPMethod, shown)
	}
}

// leastCloseCode is the first that is not an HTTP status.
//
// Source: https://www.rfc-editor.org/rfc/rfc6455#section-7.4
const leastCloseCode = 1000

// httpEnd adds the status of a response, and for a web socket the code that it
// was closed with, which has a key of its own today. Where the response was
// another than the handshake's, a socket has a status too.
func (a *attributes) httpEnd(p Protocol, status int) {
	if a.http.ray() {
		a.number(semconv.HTTPStatusCode, status)
	}
	if !a.http.stable() {
		return
	}
	if p == WebSocket && status >= leastCloseCode {
		a.number(semconv.ServeWebSocketCloseCode, status)
		status = http.StatusSwitchingProtocols
	}
	a.number(semconv.HTTPResponseStatusCode, status)
}

// rpcCall adds the attributes that router and replica spans of calls other than
// HTTP end with.
func (a *attributes) rpcCall(c call) {
	system, name := semconv.RPCSystemUndefined, semconv.RPCSystemNameServe
	if c.protocol == GRPC {
		system, name = semconv.RPCSystemGRPC, semconv.RPCSystemNameGRPC
	}
	if a.rpc.ray() {
		a.text(semconv.RPCSystem, system)
		a.text(semconv.RPCService, c.deployment)
	}
	if !a.rpc.stable() {
		a.text(semconv.RPCMethod, c.method)
		return
	}
	a.text(semconv.RPCSystemName, name)
	if c.rpcMethod != "" {
		a.text(semconv.RPCMethod, strings.TrimPrefix(c.rpcMethod, "/"))
	} else {
		a.text(semconv.RPCMethod, c.deployment+"/"+c.method)
	}
}

// failure adds the type of the failure, if the names of its group are today's:
// that of the error, or without an error the status.
func (a *attributes) failure(group names, err error, status int) {
	switch {
	case !group.stable():
	case err != nil:
		a.text(semconv.ErrorType, exceptionType(err))
	default:
		a.text(semconv.ErrorType, strconv.Itoa(status))
	}
}
