package spans

import (
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

// attributes collects attributes of a span, under Ray's names, OpenTelemetry's current names,
// or both.
type attributes struct {
	naming naming // the names in use
	list   []attribute.KeyValue
}

// Typical numbers of attributes that are set at the start and at the end of a span. They are
// the initial capacities of attributes.list.
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

// serveText adds one of Serve's own attributes under the names of the mode. If stable is
// empty, the attribute exists under Ray's name only.
func (a *attributes) serveText(ray, stable, value string) {
	if a.naming.serve.ray() {
		a.text(ray, value)
	}
	if a.naming.serve.stable() && stable != "" {
		a.text(stable, value)
	}
}

// serveFlag is serveText for a bool.
func (a *attributes) serveFlag(ray, stable string, value bool) {
	if a.naming.serve.ray() {
		a.flag(ray, value)
	}
	if a.naming.serve.stable() {
		a.flag(stable, value)
	}
}

// request adds Ray's attribute for the request id, if Ray's names are in use. In every
// mode, Request.Stamp has the id as serve.request_id. r may be nil.
func (a *attributes) request(r *identity.Request) {
	if r != nil && a.naming.serve.ray() {
		a.text(semconv.RequestID, r.ID)
	}
}

// owner adds the names of the deployment and of its application.
func (a *attributes) owner(deployment, app string) {
	a.serveText(semconv.Deployment, semconv.ServeDeployment, deployment)
	a.serveText(semconv.App, semconv.ServeApp, app)
}

// replica adds Ray's attribute for the unique id of the replica c, if Ray's names are in use.
// c may be nil.
func (a *attributes) replica(c *identity.Component) {
	if c != nil && a.naming.serve.ray() { // in every mode, serve.replica_id ends with the unique id
		a.text(semconv.ReplicaID, c.UniqueID())
	}
}

// httpMethod adds the HTTP verb of the request. For a web socket, Ray's attribute has the
// value "WS", and OpenTelemetry's current attribute has the verb of the handshake.
func (a *attributes) httpMethod(p Protocol, verb string) {
	method := semconv.Method(verb)
	if a.naming.http.stable() {
		a.text(semconv.HTTPRequestMethod, method)
	}
	if p == WebSocket {
		method = semconv.MethodWebSocket
	}
	if a.naming.http.ray() {
		a.text(semconv.HTTPMethod, method)
	}
}

// minCloseCode is the lowest close code of a web socket. Lower numbers are HTTP
// statuses.
//
// Source: https://www.rfc-editor.org/rfc/rfc6455#section-7.4
const minCloseCode = 1000

// httpEnd adds the status of a response. For a web socket, Ray's attribute has the close
// code. OpenTelemetry's current attribute has the status of the handshake, and the close code
// has an attribute of its own.
func (a *attributes) httpEnd(p Protocol, status int) {
	if a.naming.http.ray() {
		a.number(semconv.HTTPStatusCode, status)
	}
	if !a.naming.http.stable() {
		return
	}
	if p == WebSocket && status >= minCloseCode {
		a.number(semconv.ServeWebSocketCloseCode, status)
		status = http.StatusSwitchingProtocols
	}
	a.number(semconv.HTTPResponseStatusCode, status)
}

// rpcCall adds the attributes that name the method of a gRPC call or of a call by handle.
func (a *attributes) rpcCall(c call) {
	system, name := semconv.RPCSystemUndefined, semconv.RPCSystemNameServe
	if c.protocol == GRPC {
		system, name = semconv.RPCSystemGRPC, semconv.RPCSystemNameGRPC
	}
	if a.naming.rpc.ray() {
		a.text(semconv.RPCSystem, system)
		a.text(semconv.RPCService, c.deployment)
	}
	if !a.naming.rpc.stable() {
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

// failure adds the attribute error.type, if the names of the group include OpenTelemetry's
// current names. Its value is the type of err, or the status if err is nil.
func (a *attributes) failure(group names, err error, status int) {
	switch {
	case !group.stable():
	case err != nil:
		a.text(semconv.ErrorType, ExceptionType(err))
	default:
		a.text(semconv.ErrorType, strconv.Itoa(status))
	}
}
