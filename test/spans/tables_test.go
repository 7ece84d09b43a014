package spans

import "slices"

// span is a span in the form of the tables, with all spans below it. A value that is not
// known in advance is one of the placeholders below.
type span struct {
	Name, Kind, Status, Description string
	Attributes                      attributes
	Events                          []event
	Links                           []string // the names of the spans they lead to
	Children                        []*span  // in the order of their names, and of their starts
}

type attributes map[string]any

type event struct {
	Name       string
	Attributes attributes
}

// Placeholders stand for values whose form has been checked.
const (
	someReplica = "(eight letters and digits)"
	someWait    = "(a float64 of milliseconds)"
	someStack   = "(a stack)"
)

// call has the values for the rows of the tables: one call of one deployment.
type call struct {
	id         string // of the request
	app        string
	deployment string
	protocol   string // "http", "websocket", "grpc" or "handle"
	verb       string // HTTP only
	path       string // HTTP: the raw one below the prefix
	full       string // gRPC: the full method
	method     string // the call method
	route      string
	model      string
	streaming  bool
}

// request is an HTTP GET of / at deployment D of app "a".
func request(id string) call {
	return call{
		id: id, app: "a", deployment: "D", protocol: "http", verb: "GET", path: "/",
		method: "__call__", route: "/", streaming: true,
	}
}

// nested is a call by handle of a deployment's method, inside c.
func (c call) nested(deployment, method string) call {
	c.deployment, c.method, c.protocol = deployment, method, "handle"
	c.verb, c.path, c.full, c.streaming = "", "", "", false
	return c
}

// overHTTP: the spans have http.* attributes, else rpc.*.
func (c call) overHTTP() bool { return c.protocol == "http" || c.protocol == "websocket" }

// proxy is table 1.2 for HTTP and web sockets, and the rules of 2.1 for a
// response without an exception.
func (c call) proxy(status int, below ...*span) *span {
	name := "proxy_http_request " + c.deployment + " " + c.verb + " " + c.route
	failed := status >= 400
	if c.protocol == "websocket" {
		name = "proxy_websocket_request " + c.deployment + " WS " + c.route
		failed = status != 1000 && status != 1001
	}
	s := &span{Name: name, Kind: "server", Status: "Ok", Children: below, Attributes: attributes{
		"request_id":         c.id,
		"deployment":         c.deployment,
		"app":                c.app,
		"request_type":       c.protocol,
		"request_method":     c.verb,
		"request_route_path": c.path,
		"resource.name":      name,
		"http.method":        c.verb,
		"http.status_code":   int64(status),
		"http.route":         c.route,
	}}
	if failed {
		s.Status = "Error"
	}
	return s
}

// proxyGRPC is table 1.2 for gRPC.
func (c call) proxyGRPC(code string, below ...*span) *span {
	name := "proxy_grpc_request " + c.deployment + " " + c.full
	s := &span{Name: name, Kind: "server", Status: "Ok", Children: below, Attributes: attributes{
		"request_id":           c.id,
		"deployment":           c.deployment,
		"app":                  c.app,
		"request_type":         "grpc",
		"resource.name":        name,
		"rpc.system":           "grpc",
		"rpc.method":           c.full,
		"rpc.grpc.status_code": code,
	}}
	if code != "OK" {
		s.Status = "Error"
	}
	return s
}

// router is table 1.3.
func (c call) router(below ...*span) *span {
	name := "route_to_replica " + c.deployment + " " + c.method
	s := &span{Name: name, Kind: "server", Status: "Unset", Children: below, Attributes: attributes{
		"request_id":           c.id,
		"deployment":           c.deployment,
		"app":                  c.app,
		"call_method":          c.method,
		"route":                c.route,
		"multiplexed_model_id": c.model,
		"is_streaming":         c.streaming,
		"is_http_request":      c.overHTTP(),
		"is_grpc_request":      c.protocol == "grpc",
		"resource.name":        name,
		"serve.queue_wait_ms":  someWait,
	}}
	if c.overHTTP() {
		s.Attributes["http.method"] = c.method
		s.Attributes["http.route"] = c.route
	} else {
		s.rpc(c)
	}
	return s
}

// refused is table 1.3 if no replica was looked for: without the attributes that are set
// at the end.
func (c call) refused() *span {
	s := c.router()
	for _, key := range []string{"http.method", "http.route", "rpc.system", "rpc.method", "rpc.service", "serve.queue_wait_ms"} {
		delete(s.Attributes, key)
	}
	return s
}

// noStatus is the status of a replica span that has none.
const noStatus = 0

// replica is table 1.4. The status is an HTTP status.
func (c call) replica(status int, below ...*span) *span {
	name := "replica_handle_request " + c.deployment + " " + c.method
	s := &span{Name: name, Kind: "server", Status: "Unset", Children: below, Attributes: attributes{
		"request_id":           c.id,
		"replica_id":           someReplica,
		"deployment":           c.deployment,
		"app":                  c.app,
		"call_method":          c.method,
		"route":                c.route,
		"multiplexed_model_id": c.model,
		"is_streaming":         c.streaming,
		"resource.name":        name,
	}}
	if !c.overHTTP() {
		s.rpc(c)
		return s
	}
	s.Attributes["http.method"] = c.verb
	s.Attributes["http.route"] = c.route
	if status != noStatus {
		s.Attributes["http.status_code"] = int64(status)
	}
	return s
}

// rpc adds the last attributes of the router and replica spans of a call without HTTP.
func (s *span) rpc(c call) {
	s.Attributes["rpc.system"] = "UNDEFINED"
	if c.protocol == "grpc" {
		s.Attributes["rpc.system"] = "gRPC"
	}
	s.Attributes["rpc.method"] = c.method
	s.Attributes["rpc.service"] = c.deployment
}

// called are the router and the replica span of an HTTP call that was answered
// with a status.
func (c call) called(status int, below ...*span) *span { return c.router(c.replica(status, below...)) }

// user is a span that user code has started and let be.
func user(name string, below ...*span) *span {
	return &span{Name: name, Kind: "internal", Status: "Unset", Attributes: attributes{}, Children: below}
}

// raised adds the event of an exception, as 2.1 says of the three families: it
// did not escape the replica, which has answered it.
func (s *span) raised(kind, message string) *span {
	escaped := "True"
	if s.isReplica() {
		escaped = "False"
	}
	s.Events = append(s.Events, event{Name: "exception", Attributes: attributes{
		"exception.type":    kind,
		"exception.message": message,
		"exception.escaped": escaped,
	}})
	return s
}

// panicked is raised, with the stack.
func (s *span) panicked(kind, message string) *span {
	s.raised(kind, message)
	s.Events[len(s.Events)-1].Attributes["exception.stacktrace"] = someStack
	return s
}

// canceled and timedOut are raised, as Ray's CancelledError and TimeoutError:
// 2.1 gives them no description.
func (s *span) canceled() *span { return s.raised("context.Canceled", "context canceled") }
func (s *span) timedOut() *span {
	return s.raised("context.DeadlineExceeded", "context deadline exceeded")
}

// failed sets the status ERROR with a description.
func (s *span) failed(description string) *span {
	s.Status, s.Description = "Error", description
	return s
}

func (s *span) isReplica() bool { return familyOf(s.Name) == "replica_handle_request" }

// families are Ray Serve's spans, by the first words of their names.
var families = []string{
	"proxy_http_request", "proxy_websocket_request", "proxy_grpc_request", "route_to_replica", "replica_handle_request",
}

// isFamily reports whether a span is one of the runtime, and not of user code.
func isFamily(name string) bool { return slices.Contains(families, familyOf(name)) }
