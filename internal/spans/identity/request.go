// Package identity holds the ids that connect a span with its request, and with the proxy or
// replica that handled it. The ids have Ray's formats, so that back ends recognise them.
//
//  1. Each proxy and each replica creates a Component at its start, with its own ids.
//  2. Whenever a Component handles a request or a call, it makes a Request, which the context
//     carries.
//  3. Package tracing sets the attributes of Request.Stamp on every recording span that
//     starts in this context.
//
// The package makes no spans and reads no headers. It has a single file, request.go.
package identity

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/semconv"
)

// Lengths of the parts of Ray's ids, in bytes. An actor id consists of its own bytes and the
// job id. A task id consists of its own bytes and the actor id.
const (
	jobIDBytes      = 4
	actorOwnBytes   = 12
	taskOwnBytes    = 8
	replicaIDLength = 8 // characters, not bytes
)

// Component is the immutable identity of a proxy or a replica.
type Component struct {
	app, deployment string
	uniqueID        string // empty for a proxy
	actorID         string
	replicaID       string // "app#deployment#uniqueID"; empty for a proxy
}

// NewJobID returns a random job id in Ray's form: 8 lower-case hexadecimal digits.
func NewJobID() string { return randomHex(jobIDBytes) }

// NewProxy returns a new identity for a proxy of the job.
func NewProxy(jobID string) *Component {
	return &Component{actorID: randomHex(actorOwnBytes) + jobID}
}

// NewReplica returns a new identity for a replica of the deployment of app, in the job.
// It has a random unique id of eight lower-case letters and digits, and a random actor
// id.
func NewReplica(jobID, app, deployment string) *Component {
	c := NewProxy(jobID)
	c.app, c.deployment, c.uniqueID = app, deployment, randomReplicaID()
	c.replicaID = app + "#" + deployment + "#" + c.uniqueID
	return c
}

// App returns the application of a replica, or "" for a proxy.
func (c *Component) App() string { return c.app }

// Deployment returns the deployment of a replica, or "" for a proxy.
func (c *Component) Deployment() string { return c.deployment }

// UniqueID returns the unique id of a replica, or "" for a proxy. It has eight
// characters and is the value of the attribute replica_id.
func (c *Component) UniqueID() string { return c.uniqueID }

// ActorID returns the actor id in Ray's form: 32 lower-case hexadecimal digits. The
// last eight digits are the job id.
func (c *Component) ActorID() string { return c.actorID }

// NewTask returns a new task id in Ray's form: 48 lower-case hexadecimal digits. The
// last 32 digits are the actor id.
func (c *Component) NewTask() string { return randomHex(taskOwnBytes) + c.actorID }

// Request is the identity of a request in one Component. A proxy makes a Request for each
// request. The replica that handles the request makes another Request with the same ID.
//
// The caller must set the fields up to Component, and pass the Request to StartProxy or
// StartReplica of package spans, which set the other exported fields. After that the Request
// must not change, and is safe for concurrent use. It must not be copied.
type Request struct {
	// ID is the request id, as in X-Request-ID. It is the same in every component.
	ID string
	// App and Deployment are the called application and deployment.
	App, Deployment string
	// Route is the matched route pattern if the application reports it, otherwise the route
	// prefix. For gRPC it is the application's name. A call by handle keeps the route of the
	// outer request.
	Route string
	// ModelID is the multiplexed model's id, or "".
	ModelID string
	// Component is the proxy or replica that handles the request. If it is nil, spans have
	// only the request id.
	Component *Component

	// Inbound is the context with the trace context and baggage that arrived with the
	// request. The user propagator of package tracing reads both from it. StartProxy sets it.
	// It is nil before StartProxy, and for a call without a proxy.
	Inbound context.Context
	// RPCMethod is the full method of a gRPC request, with its leading slash. The start
	// of the proxy span sets it.
	RPCMethod string

	// once computes stamp at the first call of Stamp, because only recording spans need it.
	once  sync.Once
	stamp []attribute.KeyValue // the result of Stamp
}

// Continue makes r, a new Request, the request of another component for the same call as
// outer. It copies ID, Route, Inbound and RPCMethod.
func (r *Request) Continue(outer *Request) {
	r.ID, r.Route = outer.ID, outer.Route
	r.Inbound, r.RPCMethod = outer.Inbound, outer.RPCMethod
}

// Stamp returns the attributes that every recording span of this request gets. These are
// serve.request_id, and serve.task_id if there is a Component, and serve.replica_id if the
// Component is a replica. The caller must not change the slice.
func (r *Request) Stamp() []attribute.KeyValue {
	r.once.Do(r.identify)
	return r.stamp
}

// identify sets stamp.
func (r *Request) identify() {
	r.stamp = append(make([]attribute.KeyValue, 0, 3), attribute.String(semconv.ServeRequestID, r.ID))
	c := r.Component
	if c == nil {
		return
	}
	r.stamp = append(r.stamp, attribute.String(semconv.ServeTaskID, c.NewTask()))
	if c.replicaID != "" {
		r.stamp = append(r.stamp, attribute.String(semconv.ServeReplicaID, c.replicaID))
	}
}

type requestKey struct{}

// ContextWithRequest returns a context with r. StartProxy and StartReplica call it.
func ContextWithRequest(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// RequestFromContext returns the Request that ctx carries, or nil.
func RequestFromContext(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

// ModelID returns the id of the multiplexed model that the Request in ctx names, or "".
func ModelID(ctx context.Context) string {
	if r := RequestFromContext(ctx); r != nil {
		return r.ModelID
	}
	return ""
}

type replicaKey struct{}

// ContextWithReplica returns a context for user code that the replica c runs outside of any
// request: at its start, in health checks, and at its end. The log handler of package tracing
// adds the names of the replica to lines that are logged with this context. A [Request] in
// the context takes precedence. If c is nil, ContextWithReplica returns ctx.
func ContextWithReplica(ctx context.Context, c *Component) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, replicaKey{}, c)
}

// ReplicaFromContext returns the Component set by ContextWithReplica, or nil.
func ReplicaFromContext(ctx context.Context) *Component {
	c, _ := ctx.Value(replicaKey{}).(*Component)
	return c
}

// randomHex returns n random bytes as lower-case hexadecimal digits. The ids are names
// and not secrets, so the fast generator is sufficient.
func randomHex(n int) string {
	var raw [actorOwnBytes]byte
	for i := range n {
		raw[i] = byte(rand.Uint32())
	}
	return hex.EncodeToString(raw[:n])
}

// randomReplicaID returns a random unique id of a replica.
func randomReplicaID() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var id [replicaIDLength]byte
	for i := range id {
		id[i] = letters[rand.IntN(len(letters))]
	}
	return string(id[:])
}
