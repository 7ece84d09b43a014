// Package identity holds the identity of a span's work: its request, and the proxy or
// replica that handles it. Ids have Ray's formats, so that back ends recognise them.
//
//  1. A proxy and each replica create a Component at their start.
//  2. Each call of a request in a Component has a Request, carried by the context.
//  3. Package tracing stamps every recording span of the call with Request.Stamp.
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

// Lengths of Ray's ids, in bytes. A task id ends in its actor id, and an actor id ends
// in its job id.
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

// Request is the identity of a call in a component. A proxy makes a Request for each
// request, and the replica that handles it makes another Request with the same ID.
//
// Set the fields up to Component and pass the Request to StartProxy or StartReplica of
// package spans, which set the other exported fields. After that the Request must not
// change, and is safe for concurrent use. It must not be copied.
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
	// Component handles the call. If it is nil, spans have only the request id.
	Component *Component

	// Inbound is the context with the trace context and baggage that arrived with the
	// request. The user propagator of package tracing reads both from it. StartProxy sets it.
	// It is nil before StartProxy, and for a call without a proxy.
	Inbound context.Context
	// RPCMethod is the full method of a gRPC request, with its leading slash. The start
	// of the proxy span sets it.
	RPCMethod string

	// once guards stamp. Only a recording span needs the stamp, so the first such span
	// computes it.
	once  sync.Once
	stamp []attribute.KeyValue
}

// Continue makes r, a new Request, the request of another component for the same call as
// outer. It copies ID, Route, Inbound and RPCMethod.
func (r *Request) Continue(outer *Request) {
	r.ID, r.Route = outer.ID, outer.Route
	r.Inbound, r.RPCMethod = outer.Inbound, outer.RPCMethod
}

// Stamp returns the attributes for every recording span of this call: serve.request_id;
// with a Component also serve.task_id; and in a replica also serve.replica_id. The
// first call computes them. The caller must not change the slice.
func (r *Request) Stamp() []attribute.KeyValue {
	r.once.Do(r.identify)
	return r.stamp
}

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

// ContextWithReplica returns a context for user code that a replica runs outside of any
// request: its start, its health checks, its end. The log handler of package tracing
// adds the replica to lines that are logged with it. A [Request] in ctx, or in a
// context derived from it, takes precedence. If c is nil, it returns ctx.
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

func randomReplicaID() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var id [replicaIDLength]byte
	for i := range id {
		id[i] = letters[rand.IntN(len(letters))]
	}
	return string(id[:])
}
