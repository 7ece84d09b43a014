package batching

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a replica without a server, and its log.
type rig struct {
	replica *scope.Replica
	log     *servingtest.Log
}

// newRig makes a replica that takes up to a hundred requests, untraced.
func newRig() *rig {
	log := new(servingtest.Log)
	return &rig{
		replica: &scope.Replica{
			App: "a", Deployment: "D", UniqueID: "r1", MaxOngoing: 100,
			Tracing: spans.New(tracing.Off()), Log: slog.New(slog.NewTextHandler(log, nil)),
			Metrics: metrics.New().Replica("a", "D", "r1"),
		},
		log: log,
	}
}

// call is the context of a call in the replica, for the model, below ctx.
func (r *rig) call(ctx context.Context, model string) context.Context {
	ctx = identity.ContextWithRequest(ctx, &identity.Request{ID: "id", App: "a", Deployment: "D", ModelID: model})
	return scope.ContextWithCall(ctx, scope.NewCall(r.replica))
}

// book writes down the batches that a function got.
type book struct {
	mu      sync.Mutex
	batches []string
	began   time.Time
}

func newBook() *book { return &book{began: time.Now()} }

// note writes a batch down, with the time since the beginning.
func (b *book) note(items any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches = append(b.batches, fmt.Sprint(items, " at ", time.Since(b.began)))
}

func (b *book) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.batches...)
}

// answer is a result of Do.
type answer struct {
	Out string
	Err string
	At  time.Duration
}

// ask calls do in the background, and returns a channel for its answer.
func ask[In any](do func(context.Context, In) (string, error), ctx context.Context, in In) <-chan answer { //nolint:revive // the function first reads better
	began := time.Now()
	ch := make(chan answer, 1)
	go func() {
		out, err := do(ctx, in)
		a := answer{Out: out, At: time.Since(began)}
		if err != nil {
			a.Err = err.Error()
		}
		ch <- a
	}()
	return ch
}
