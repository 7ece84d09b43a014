package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"sync/atomic"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/ended"
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

// Component is a proxy or a replica: whoever handles calls. It never changes
// and is safe for concurrent use.
type Component struct {
	app, deployment string
	uniqueID        string // empty for a proxy
	actorID         string
	replicaID       string // with app and deployment; empty for a proxy
}

// NewProxy draws the identity of a proxy.
func (p *Provider) NewProxy() *Component {
	return &Component{actorID: drawHex(actorOwnBytes) + p.jobID}
}

// NewReplica draws the identity of a replica of the deployment of app: a
// unique id of eight lower-case letters and digits, and an actor id.
func (p *Provider) NewReplica(app, deployment string) *Component {
	id := drawReplicaID()
	return &Component{
		app: app, deployment: deployment,
		uniqueID:  id,
		actorID:   drawHex(actorOwnBytes) + p.jobID,
		replicaID: app + "#" + deployment + "#" + id,
	}
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
func (c *Component) NewTask() string {
	return string(c.appendTask(make([]byte, 0, 2*(taskOwnBytes+actorOwnBytes+jobIDBytes))))
}

func (c *Component) appendTask(to []byte) []byte {
	var own [taskOwnBytes]byte
	binary.NativeEndian.PutUint64(own[:], rand.Uint64())
	return append(hex.AppendEncode(to, own[:]), c.actorID...)
}

// Request is the identity of one call in one component. A proxy makes one for
// the request, the replica that handles it makes another with the same ID.
//
// Fill the exported fields, then hand it to StartProxy or StartReplica, which
// note where the request came from; from then on it must not change, and it is
// safe for concurrent use. It must not be copied.
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

	// came is the context that the request came into the proxy with: the
	// caller's span, and baggage. It is kept as it is, because reading the two
	// costs, and only user code that extracts them again needs them (insider).
	// Nil before StartProxy, and for a call without a proxy.
	came context.Context
	// rpcMethod is the full method of the gRPC call that the request is, with
	// its leading slash.
	rpcMethod string

	// drawn is set by the first recording span, so that an unsampled request
	// draws no ids and builds no values.
	drawn atomic.Pointer[drawn]
	// stamp is drawn's as a list, once user code has started a span.
	stamp atomic.Pointer[[]attribute.KeyValue]
}

// drawn is what the recording spans of one call have in common. It never changes,
// and it is apart from the Request because spans refer to it until they have been
// encoded.
type drawn struct {
	task       string           // part of stamp
	all, stamp ended.Attributes // the second is the end of the first: all but Ray's name for the id
	bytes      int              // of heap
	odd        bool             // some text is not valid UTF-8
}

// Continue makes r, a new Request, that of another component for the same call
// as outer: it takes over the ID, the Route and where the call came from.
func (r *Request) Continue(outer *Request) {
	r.ID, r.Route = outer.ID, outer.Route
	r.came, r.rpcMethod = outer.came, outer.rpcMethod
}

// carry returns ctx with r, which it may have already.
func (r *Request) carry(ctx context.Context) context.Context {
	if RequestFromContext(ctx) == r {
		return ctx
	}
	return ContextWithRequest(ctx, r)
}

// TaskID returns the task id of this call, 48 lower-case hexadecimal digits,
// drawn at the first use; empty without a Component.
func (r *Request) TaskID() string { return r.identity().task }

// attributes returns what every recording span of this call is stamped with, for
// the spans of user code, which may be many.
func (r *Request) attributes() []attribute.KeyValue {
	if have := r.stamp.Load(); have != nil {
		return *have
	}
	list := r.identity().stamp.List()
	r.stamp.Store(&list)
	return list
}

func (r *Request) identity() *drawn {
	if d := r.drawn.Load(); d != nil {
		return d
	}
	d := r.draw()
	if !r.drawn.CompareAndSwap(nil, d) { // two spans started at once: the first one's counts
		return r.drawn.Load()
	}
	return d
}

// draw makes what r.drawn is to be.
func (r *Request) draw() *drawn {
	c := r.Component
	room := 42 + 2*len(r.ID)
	if c != nil {
		room += 37 + 2*taskOwnBytes + len(c.actorID)
		if c.replicaID != "" {
			room += 24 + len(c.replicaID)
		}
	}
	d, behind := newDrawn(room)
	a := attributes{all: behind}
	a.text(semconv.RequestID, r.ID)
	stamp := len(a.all)
	a.text(semconv.ServeRequestID, r.ID)
	if c != nil {
		var text [2 * (taskOwnBytes + actorOwnBytes + jobIDBytes)]byte
		id := c.appendTask(text[:0]) // on the stack
		a.text(semconv.ServeTaskID, unsafe.String(&id[0], len(id)))
		end := len(a.all)
		if c.replicaID != "" {
			a.text(semconv.ServeReplicaID, c.replicaID)
		}
		d.task = unsafe.String(&a.all[end-len(id)], len(id))
	}
	d.all, d.stamp, d.odd = a.all, a.all[stamp:], a.odd
	if cap(a.all) > cap(behind) {
		d.bytes += cap(a.all)
	}
	return d
}

// newDrawn gives one, and so much room behind it, in one piece, of one of the
// collector's sizes.
func newDrawn(room int) (*drawn, ended.Attributes) {
	switch {
	case room <= 128:
		return drawnBefore[[128]byte]()
	case room <= 208:
		return drawnBefore[[208]byte]()
	case room <= 240:
		return drawnBefore[[240]byte]()
	}
	return drawnBefore[[336]byte]()
}

func drawnBefore[Room any]() (*drawn, ended.Attributes) {
	d := new(struct {
		drawn

		behind Room
	})
	d.bytes = int(unsafe.Sizeof(*d))
	return &d.drawn, unsafe.Slice((*byte)(unsafe.Pointer(&d.behind)), unsafe.Sizeof(d.behind))[:0]
}

// RequestKey is where a context has its *Request. It is for contexts that carry
// one themselves, as a field; others are made by ContextWithRequest.
type RequestKey struct{}

// ContextWithRequest returns a context that carries r. StartProxy and
// StartReplica do it themselves where theirs does not.
func ContextWithRequest(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, RequestKey{}, r)
}

// RequestFromContext returns the Request that ctx carries, or nil.
func RequestFromContext(ctx context.Context) *Request {
	r, _ := ctx.Value(RequestKey{}).(*Request)
	return r
}

type replicaKey struct{}

// ContextWithReplica returns a context for what user code does in a replica
// outside of any request: its start, its health checks, its end. [NewLogHandler]
// names the replica in lines that are logged with it. A [Request] in ctx, or in
// a context derived of it, goes over it. Without a c it returns ctx.
func ContextWithReplica(ctx context.Context, c *Component) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, replicaKey{}, c)
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

// isHex says whether s is n bytes in lower-case hexadecimal digits.
func isHex(s string, n int) bool {
	if len(s) != 2*n {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
