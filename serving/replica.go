package serving

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/servetrace/servetrace/tracing"
)

// ReplicaID names one replica of one deployment of one app, for good.
type ReplicaID struct {
	App, Deployment string
	UniqueID        string // eight lower-case letters and digits, drawn at start
}

// String gives "app#deployment#uniqueid", the value of serve.replica_id.
func (id ReplicaID) String() string { return id.App + "#" + id.Deployment + "#" + id.UniqueID }

// ReplicaInfo says where a handler runs.
type ReplicaInfo struct {
	App        string
	Deployment string
	ReplicaID  ReplicaID
}

// ReplicaContext says which replica runs the handler whose request has the
// context ctx, or one derived from it. It answers false outside of a handler.
// It is Ray's get_replica_context.
func ReplicaContext(ctx context.Context) (ReplicaInfo, bool) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return ReplicaInfo{}, false
	}
	return c.replica, true
}

// HandlerFunc is an [http.Handler] that can fail. The client gets status 500
// for its error (503 for a [*QueueFullError]) and not its text; the text is in
// span and log. If the response had begun, the connection is cut, so that the
// client does not take what it has for the whole.
//
// It works at any depth below a deployment's handler, behind a ServeMux or
// middleware. Elsewhere it answers 500 and logs the error to [slog.Default].
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP implements [http.Handler].
func (f HandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f(w, r)
	if err == nil {
		return
	}
	if c, ok := r.Context().Value(callKey{}).(*call); ok {
		c.fail(err)
		return
	}
	slog.ErrorContext(r.Context(), "handler failed outside of a replica", "error", err)
	http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
}

// call is one request in one replica. Its context carries it.
type call struct {
	replica ReplicaInfo

	mu  sync.Mutex
	err error // the first that a HandlerFunc returned
}

type callKey struct{}

func (c *call) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

func (c *call) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// replica runs a deployment's handler in this process. It never changes after
// newReplica. The router keeps it within its limit.
type replica struct {
	info       ReplicaInfo
	maxOngoing int
	handler    http.Handler
	component  *tracing.Component
	tracing    *tracing.Provider
	log        *slog.Logger
}

var _ runner = (*replica)(nil)

func newReplica(app string, d *Deployment, tp *tracing.Provider, log *slog.Logger) *replica {
	component := tp.NewReplica(app, d.name)
	return &replica{
		info: ReplicaInfo{
			App:        app,
			Deployment: d.name,
			ReplicaID:  ReplicaID{App: app, Deployment: d.name, UniqueID: component.UniqueID()},
		},
		maxOngoing: d.maxOngoing,
		handler:    d.handler,
		component:  component,
		tracing:    tp,
		log:        log,
	}
}

func (r *replica) id() ReplicaID { return r.info.ReplicaID }
func (r *replica) limit() int    { return r.maxOngoing }

// run implements [runner]. It is all done in deferred calls, because a handler
// may end its goroutine by runtime.Goexit.
func (r *replica) run(ctx context.Context, w *response, req *http.Request) (err error) {
	outer := tracing.RequestFromContext(ctx)
	ctx, span := r.tracing.StartReplica(ctx, tracing.ReplicaStart{
		Request: &tracing.Request{
			ID:         outer.ID,
			App:        r.info.App,
			Deployment: r.info.Deployment,
			Route:      outer.Route,
			ModelID:    outer.ModelID,
			Component:  r.component,
		},
		Protocol: tracing.HTTP,
		Method:   req.Method,
	})
	c := &call{replica: r.info}
	ctx = context.WithValue(ctx, callKey{}, c)

	err = errGoexit
	defer func() {
		r.logPanic(ctx, err)
		if req.MultipartForm != nil { // net/http cleans up after its own request only, not after a copy
			_ = req.MultipartForm.RemoveAll() // its files are temporary anyway
		}
		err = w.end(err)
		span.End(tracing.ReplicaResult{StatusCode: replicaStatus(w, err), Err: spanError(err)})
	}()
	req = req.WithContext(ctx)
	if w.body != nil {
		req.Body = w.body
	}
	err = r.invoke(w, req, c)
	return err
}

// invoke calls the handler and gives what it failed with.
func (r *replica) invoke(w *response, req *http.Request, c *call) (err error) {
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			err = http.ErrAbortHandler // the handler's way to cut its response
		default:
			err = &tracing.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	r.handler.ServeHTTP(w, req)
	return c.failure()
}

// replicaStatus is the status that the handler gave, or that its error becomes;
// 0 where the runtime ended the request before there was one.
func replicaStatus(w *response, err error) int {
	status := w.told()
	if status != 0 || err == nil || isAbort(err) || isCancellation(err) {
		return status
	}
	return statusOf(err)
}

func (r *replica) logPanic(ctx context.Context, err error) {
	p, ok := errors.AsType[*tracing.PanicError](err)
	if !ok {
		return
	}
	r.log.LogAttrs(ctx, slog.LevelError, "handler panicked",
		slog.String("replica", r.info.ReplicaID.String()),
		slog.String("request_id", tracing.RequestFromContext(ctx).ID),
		slog.Any("panic", p.Value),
		slog.String("stack", string(p.Stack)))
}
