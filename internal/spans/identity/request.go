// Package identity says whose work a span is: of which request, and in which proxy or
// replica. Ray's formats of ids are kept, so that a back end finds what it knows.
//
//  1. A proxy and each replica draw a Component when they are made.
//  2. Each call of a request in a Component has a Request, which rides in the context.
//  3. Package tracing stamps every recording span inside it with Request.Stamp.
//
// It makes no spans and reads no headers. Open request.go, which is all.
package identity

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/semconv"
)

// Lengths of Ray's ids, in bytes. A task id ends in its actor's id, and an
// actor id in its job's.
const (
	jobIDBytes      = 4
	actorOwnBytes   = 12
	taskOwnBytes    = 8
	replicaIDLength = 8 // characters, not bytes
)

// Component is a proxy or a replica: whoever handles calls. What it shows never
// changes. It is safe for concurrent use.
type Component struct {
	app, deployment string
	uniqueID        string // empty for a proxy
	actorID         string
	replicaID       string // with app and deployment; empty for a proxy
}

// NewJobID draws a job id in Ray's form: 8 lower-case hexadecimal digits.
func NewJobID() string { return drawHex(jobIDBytes) }

// NewProxy draws the identity of a proxy of the job.
func NewProxy(jobID string) *Component {
	return &Component{actorID: drawHex(actorOwnBytes) + jobID}
}

// NewReplica draws the identity of a replica of the deployment of app, in the job: a
// unique id of eight lower-case letters and digits, and an actor id.
func NewReplica(jobID, app, deployment string) *Component {
	c := NewProxy(jobID)
	c.app, c.deployment, c.uniqueID = app, deployment, drawReplicaID()
	c.replicaID = app + "#" + deployment + "#" + c.uniqueID
	return c
}

// App returns the application of a replica; empty for a proxy.
func (c *Component) App() string { return c.app }

// Deployment returns the deployment of a replica; empty for a proxy.
func (c *Component) Deployment() string { return c.deployment }

// UniqueID returns a replica's unique id, eight characters, the value of the
// attribute replica_id; empty for a proxy.
func (c *Component) UniqueID() string { return c.uniqueID }

// ActorID returns the id in Ray's form: 32 lower-case hexadecimal digits, of
// which the last eight are the job id.
func (c *Component) ActorID() string { return c.actorID }

// NewTask draws a task id in Ray's form: 48 lower-case hexadecimal digits, of
// which the last 32 are the actor id.
func (c *Component) NewTask() string { return drawHex(taskOwnBytes) + c.actorID }

// Request is the identity of one call in one component. A proxy makes one for
// the request, the replica that handles it makes another with the same ID.
//
// Fill the fields up to Component, then hand it to StartProxy or StartReplica of
// package spans, which note where the request came from; from then on it must not
// change, and it is safe for concurrent use. It must not be copied.
type Request struct {
	// ID is the request id, as in X-Request-ID; the same in every component.
	ID string
	// App and Deployment are those called.
	App, Deployment string
	// Route is the matched route pattern where the application shows one, else
	// the route prefix; for gRPC the application's name. Calls by handle keep
	// the route of the outer request.
	Route string
	// ModelID is the multiplexed model's id; empty for none.
	ModelID string
	// Component handles the call. Nil is allowed: spans then carry the request
	// id alone.
	Component *Component

	// Came is the context that the request came into the proxy with: the caller's
	// span, and baggage. It is kept as it is, because reading the two costs, and
	// only user code that extracts them again needs them. The proxy span's start
	// sets it; nil before, and for a call without a proxy.
	Came context.Context
	// RPCMethod is the full method of the gRPC call that the request is, with its
	// leading slash. The proxy span's start sets it.
	RPCMethod string

	// once guards stamp and task, which the first recording span needs: an
	// unsampled request draws nothing and builds no values.
	once  sync.Once
	stamp []attribute.KeyValue
	task  string // empty without a Component
}

// Continue makes r, a new Request, that of another component for the same call
// as outer: it takes over the ID, the Route and where the call came from.
func (r *Request) Continue(outer *Request) {
	r.ID, r.Route = outer.ID, outer.Route
	r.Came, r.RPCMethod = outer.Came, outer.RPCMethod
}

// Carry returns ctx with r, which it may have already.
func (r *Request) Carry(ctx context.Context) context.Context {
	if RequestFromContext(ctx) == r {
		return ctx
	}
	return ContextWithRequest(ctx, r)
}

// TaskID returns the task id of this call, 48 lower-case hexadecimal digits,
// drawn at the first use; empty without a Component.
func (r *Request) TaskID() string {
	r.once.Do(r.identify)
	return r.task
}

// Stamp returns the attributes that every recording span of this call gets:
// serve.request_id, and with a Component serve.task_id and for a replica
// serve.replica_id. The values are made at the first use. The caller must not change
// the slice.
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
	r.task = c.NewTask()
	r.stamp = append(r.stamp, attribute.String(semconv.ServeTaskID, r.task))
	if c.replicaID != "" {
		r.stamp = append(r.stamp, attribute.String(semconv.ServeReplicaID, c.replicaID))
	}
}

// requestKey is the key under which a context has its *Request.
type requestKey struct{}

// ContextWithRequest returns a context that carries r. StartProxy and
// StartReplica do it themselves where theirs does not.
func ContextWithRequest(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// RequestFromContext returns the Request that ctx carries, or nil.
func RequestFromContext(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

type replicaKey struct{}

// ContextWithReplica returns a context for what user code does in a replica
// outside of any request: its start, its health checks, its end. The log handler of
// package tracing names the replica in lines that are logged with it. A [Request] in ctx, or in
// a context derived of it, goes over it. Without a c it returns ctx.
func ContextWithReplica(ctx context.Context, c *Component) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, replicaKey{}, c)
}

// ReplicaFromContext returns the Component that ContextWithReplica put into ctx, or
// nil.
func ReplicaFromContext(ctx context.Context) *Component {
	c, _ := ctx.Value(replicaKey{}).(*Component)
	return c
}

// drawHex returns n random bytes as lower-case hexadecimal digits. The ids are
// names, not secrets: the fast generator will do.
func drawHex(n int) string {
	var raw [actorOwnBytes]byte
	for i := range n {
		raw[i] = byte(rand.Uint32())
	}
	return hex.EncodeToString(raw[:n])
}

func drawReplicaID() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var id [replicaIDLength]byte
	for i := range id {
		id[i] = letters[rand.IntN(len(letters))]
	}
	return string(id[:])
}
