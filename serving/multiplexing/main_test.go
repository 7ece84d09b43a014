package multiplexing_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/serving/multiplexing"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a replica without a server. It records log lines and the models announced to
// the router.
type rig struct {
	replica *scope.Replica
	log     servingtest.Log

	mu   sync.Mutex
	told []string // the ids of each announcement
}

func newRig() *rig {
	r := &rig{}
	r.replica = &scope.Replica{
		App: "a", Deployment: "D", UniqueID: "r1", Tracing: spans.New(tracing.Off()),
		Log: slog.New(slog.NewTextHandler(&r.log, nil)), Metrics: metrics.New().Replica("a", "D", "r1"),
		SetModels: func(ids []string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told = append(r.told, strings.Join(ids, " "))
		},
	}
	return r
}

// router returns the model ids of each announcement to the router.
func (r *rig) router() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.told...)
}

// call returns the context of a call for the model, derived from ctx, and a function
// that ends the call.
func (r *rig) call(ctx context.Context, id string) (callCtx context.Context, end func()) {
	ctx = identity.ContextWithRequest(ctx, &identity.Request{ID: "id", App: "a", Deployment: "D", ModelID: id})
	call := scope.NewCall(r.replica)
	return scope.ContextWithCall(ctx, call), call.End
}

// shop is a loader and unloader of models that takes a second for each, and
// writes down what happens.
type shop struct {
	began time.Time

	mu    sync.Mutex
	lines []string
	fail  map[string]error // by id
	panic map[string]any
}

func newShop() *shop { return &shop{began: time.Now()} }

func (s *shop) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...)+" at "+time.Since(s.began).String())
}

func (s *shop) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.lines...)
}

func (s *shop) load(ctx context.Context, id string) (string, error) {
	s.note("load %s", id)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		s.note("cancelled %s: %v", id, context.Cause(ctx))
		return "", context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.panic[id]; v != nil {
		panic(v)
	}
	return "model " + id, s.fail[id]
}

func (s *shop) unload(_ context.Context, id, model string) {
	if model != "model "+id {
		s.note("wrong model %q", model)
	}
	s.note("unload %s", id)
	<-time.After(time.Second) // in bubbles, where it takes no time
	s.note("unloaded %s", id)
}

// models are those of the shop.
func (s *shop) models(opts ...multiplexing.Option) *multiplexing.Models[string] {
	return multiplexing.New(s.load, append([]multiplexing.Option{multiplexing.WithUnload(s.unload)}, opts...)...)
}

// gotten is the result of Get, and its time.
type gotten struct {
	Model, Err string
	At         time.Duration
}

// ask calls Get under ctx in a goroutine of its own.
func (s *shop) ask(ctx context.Context, m *multiplexing.Models[string]) <-chan gotten {
	ch := make(chan gotten, 1)
	go func() {
		model, err := m.Get(ctx)
		a := gotten{Model: model, At: time.Since(s.began)}
		if err != nil {
			a.Err = err.Error()
		}
		ch <- a
	}()
	return ch
}
