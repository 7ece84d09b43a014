package tracing

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/servetrace/servetrace/internal/ended"
	"github.com/servetrace/servetrace/semconv"
)

// attributes gathers what is set on a span: see span.begin and span.attributes.
type attributes struct {
	span *span
	like *ended.Like
	id   *ended.Attributes // of the request
	task uint64            // as ended.Light has it
	// bytes is the heap of these that is there for few spans.
	bytes int
	all   ended.Attributes // its own
	odd   bool             // some text is not valid UTF-8
	whole bool             // as ended.Light has it
	naming
}

func (a *attributes) text(key, value string) {
	if utf8.ValidString(value) {
		a.all = a.all.Text(key, value)
	} else {
		a.all, a.odd = a.all.Odd(key, value), true
	}
}

func (a *attributes) number(key string, value int) { a.all = a.all.Int(key, int64(value)) }

func (a *attributes) flag(key string, value bool) { a.all = a.all.Bool(key, value) }

func (a *attributes) decimal(key string, value float64) { a.all = a.all.Double(key, value) }

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

// call adds what all families begin with, which is the same for all spans of r: its
// id, as Ray names it too, and its task. With r nil there is no call.
func (a *attributes) call(r *Request) {
	if r == nil {
		return
	}
	id := r.identity()
	a.odd = a.odd || id.odd
	a.bytes += id.bytes
	if a.id = &id.stamp; a.serve.ray() { // in every mode, serve.request_id says the same
		a.id = &id.all
	}
	if r.Component != nil {
		a.task = r.ownTask()
	}
}

// inside adds the replica that c is, if it is one.
func (a *attributes) inside(c *Component) {
	if c != nil && c.replicaID != "" {
		a.text(semconv.ServeReplicaID, c.replicaID)
	}
}

// shape adds what all spans of a shape begin with. One that is new may soon be held by
// this span alone.
func (a *attributes) shape(s *spanShape, isNew bool) {
	a.like, a.odd = &s.Like, a.odd || s.odd
	if isNew {
		a.bytes += s.bytes()
	}
}

// endShape adds what they end with.
func (a *attributes) endShape(s *spanShape) {
	if a.whole = true; !a.span.beside {
		a.like = &ended.Like{End: s.End} // the rest is with the SDK's span
	}
}

// owner adds what is called.
func (a *attributes) owner(deployment, app string) {
	a.serveText(semconv.Deployment, semconv.ServeDeployment, deployment)
	a.serveText(semconv.App, semconv.ServeApp, app)
}

// replica adds the short id of c, which may be nil.
func (a *attributes) replica(c *Component) {
	if c != nil && a.serve.ray() { // in every mode, serve.replica_id ends in it
		a.text(semconv.ReplicaID, c.uniqueID)
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

// rpcCall adds what router and replica spans of calls other than HTTP end with.
func (a *attributes) rpcCall(k spanKind) {
	system, name := semconv.RPCSystemUndefined, semconv.RPCSystemNameServe
	if k.protocol == GRPC {
		system, name = semconv.RPCSystemGRPC, semconv.RPCSystemNameGRPC
	}
	if a.rpc.ray() {
		a.text(semconv.RPCSystem, system)
		a.text(semconv.RPCService, k.deployment)
	}
	if !a.rpc.stable() {
		a.text(semconv.RPCMethod, k.method)
		return
	}
	a.text(semconv.RPCSystemName, name)
	if k.rpcMethod != "" {
		a.text(semconv.RPCMethod, strings.TrimPrefix(k.rpcMethod, "/"))
	} else {
		a.text(semconv.RPCMethod, k.deployment+"/"+k.method)
	}
}

// failure adds the type of what went wrong, where the names of its group are
// today's: that of an error, or without one the status.
func (a *attributes) failure(group names, kind string, status int) {
	switch {
	case !group.stable():
	case kind != "":
		a.text(semconv.ErrorType, kind)
	default:
		a.text(semconv.ErrorType, strconv.Itoa(status))
	}
}

// failureType is the kind that [attributes.failure] takes, empty without an error.
// It calls the error, which is foreign code.
func failureType(group names, err error) string {
	if err == nil || !group.stable() {
		return ""
	}
	return exceptionType(err)
}
