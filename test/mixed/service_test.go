package mixed

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving"
)

// timeout is short, so that handlers that hang do not take long.
const timeout = 300 * time.Millisecond

var errPlanned = errors.New("as planned")

// Slots of the deployments. The tight one turns requests away.
const (
	frontReplicas, frontOngoing   = 3, 8
	tightReplicas, tightOngoing   = 2, 1
	tightQueued                   = 2
	middleReplicas, middleOngoing = 2, 8
	middleQueued                  = 6
	backReplicas, backOngoing     = 2, 12
)

// service is the code of a user.
type service struct {
	plans   []plan
	witness *witness
	tracer  func() trace.Tracer
	gate    gate

	called
}

// apps are the applications, which serve runs under a server.
func (s *service) apps() []*serving.App {
	front := serving.NewDeployment("Front", s.handler("Front"),
		serving.WithReplicas(frontReplicas), serving.WithMaxOngoingRequests(frontOngoing))
	tight := serving.NewDeployment("Tight", s.handler("Tight"),
		serving.WithReplicas(tightReplicas), serving.WithMaxOngoingRequests(tightOngoing), serving.WithMaxQueuedRequests(tightQueued))
	pb.RegisterTestServiceServer(front, methods{service: s, deployment: "Front"})
	pb.RegisterTestServiceServer(tight, methods{service: s, deployment: "Tight"})
	middle, back := s.deployCalled()
	return []*serving.App{
		serving.NewApp("front", front, serving.WithDeployments(middle, back)),
		serving.NewApp("tight", tight, serving.WithRoutePrefix("/tight")),
	}
}

func (s *service) handler(deployment string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/run/{n}", serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		n, ok := numberOf(identity.RequestFromContext(r.Context()).ID)
		if !ok {
			return errors.New("no request of a plan")
		}
		s.witness.entered(r.Context(), deployment)
		if s.plans[n].version == socket {
			return s.speak(w, r, s.plans[n])
		}
		return s.run(w, r, s.plans[n])
	}))
	mux.Handle("/gate", serving.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
		s.witness.entered(r.Context(), deployment)
		s.gate.wait()
		return nil
	}))
	return mux
}

// run executes the plan.
func (s *service) run(w http.ResponseWriter, r *http.Request, p plan) error {
	ctx := r.Context()
	piece := func() {
		_, _ = io.WriteString(w, "piece")
		_ = http.NewResponseController(w).Flush()
	}
	if err := s.steps(ctx, p, piece, func() { _, _ = io.Copy(io.Discard, r.Body) }); err != nil {
		return err
	}
	if p.end == answer404 || p.end == answer503 {
		w.WriteHeader(map[ending]int{answer404: http.StatusNotFound, answer503: http.StatusServiceUnavailable}[p.end])
		return nil
	}
	return p.end.do(ctx)
}

// steps executes the steps of the plan. send and receive are those of its protocol.
func (s *service) steps(ctx context.Context, p plan, send, receive func()) error {
	for _, what := range p.steps {
		switch what {
		case pause:
			wait(ctx, p.after/4)
		case read:
			receive()
		case write:
			send()
		case userOwn:
			_, span := s.tracer().Start(ctx, "user")
			span.End()
		default:
			if err := s.make(ctx, what, p); err != nil && p.deep == p.end {
				return err // else the handler bears it
			}
		}
	}
	return nil
}

// do ends a call in one of the ways.
func (e ending) do(ctx context.Context) error {
	switch e {
	case fail:
		return errPlanned
	case doPanic:
		panic(errPlanned)
	case abort:
		panic(http.ErrAbortHandler)
	case goexit:
		runtime.Goexit()
	case hang:
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// wait waits for a while, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// gate holds calls until it opens, to see how many fit in.
type gate struct {
	mu     sync.Mutex
	inside int
	opened chan struct{}
}

// close has calls wait from now on.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside, g.opened = 0, make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

// wait heeds nothing but the gate: a call that waits keeps its slot, however
// long its client has gone.
func (g *gate) wait() {
	g.mu.Lock()
	g.inside++
	opened := g.opened
	g.mu.Unlock()
	<-opened
}
