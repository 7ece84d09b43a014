package serving_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// hollow is an error whose methods panic where it has none inside, as a nil
// pointer of it in an error does: what a forgotten `return nil` gives.
type hollow struct{ inner error }

func (e *hollow) Error() string              { return e.inner.Error() }
func (e *hollow) Unwrap() error              { return e.inner }
func (e *hollow) GRPCStatus() *status.Status { return status.Convert(e.inner) }

// speechless is one of which only the gRPC status panics.
type speechless struct{ hollow }

func (*speechless) Error() string { return "speechless" }
func (*speechless) Unwrap() error { return nil }

// hollows are such errors, as user code may return or panic with.
var hollows = map[string]error{
	"nil pointer":      (*hollow)(nil),
	"empty":            &hollow{},
	"wrapped":          fmt.Errorf("it failed: %w", (*hollow)(nil)),
	"joined":           errors.Join(errors.New("one"), fmt.Errorf("two: %w", (*hollow)(nil))),
	"nil under status": (*speechless)(nil),
}

// TestHollowErrors: an error whose methods panic is a panic of the code that
// returned it. It ends the process nowhere.
func TestHollowErrors(t *testing.T) {
	for name, hollow := range hollows {
		t.Run(name, func(t *testing.T) {
			returns := start(t, serving.Config{}, serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return hollow }))
			panics := start(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(hollow) }))
			for _, r := range []*rig{returns, panics} {
				if got := r.get("/"); got.Status != http.StatusInternalServerError {
					t.Errorf("HTTP: status %d", got.Status)
				}
				if r == panics || name != "nil under status" {
					r.access.take(t, "handler panicked", 1)
				}
			}
			r := startGRPC(t, serving.Config{}, failing(hollow))
			if got := told(r.unaryCall()); got != "INTERNAL: Internal server error." {
				t.Errorf("gRPC: %s", got)
			}
		})
	}
}

// TestHollowErrorOfCallee: the caller by handle has it as the panic that it is.
func TestHollowErrorOfCallee(t *testing.T) {
	callee := serving.NewDeployment("Callee", nil)
	h := serving.AddFunction(callee, "", func(context.Context, int) (int, error) { return 0, hollows["nil pointer"] })
	got := make(chan error, 1)
	r := startApps(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("D", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := h.Call(r.Context(), 1)
		got <- err
	})), serving.WithDeployments(callee)))
	r.get("/")
	err := servingtest.Receive(t, "the caller's error", got)
	if _, is := errors.AsType[*tracing.PanicError](err); !is || !strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("caller got %v", err)
	}
}

// hangs is a value whose Stop waits.
type hangs struct{ stop func(context.Context) }

func (h *hangs) Stop(ctx context.Context) error {
	h.stop(ctx)
	return nil
}

// TestOneHangingStop: a deployment whose code does not return takes no time from
// the others, and none of those is named.
func TestOneHangingStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		heeds := func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Millisecond)
		}
		nothing := func(context.Context) {}
		stops := []func(context.Context){func(context.Context) { <-stuck }, heeds, nothing, nothing, nothing, nothing}
		var deployments []*serving.Deployment
		for i, stop := range stops {
			d := serving.NewDeployment(fmt.Sprintf("D%d", i), noHandler)
			serving.AddFunction(d, "", func(context.Context, int) (int, error) { return 0, nil })
			serving.PerReplica(d, func(context.Context) (*hangs, error) { return &hangs{stop}, nil })
			deployments = append(deployments, d)
		}
		s, err := serving.New(serving.Config{}, []*serving.App{serving.NewApp("a", deployments[0], serving.WithDeployments(deployments[1:]...))}, serving.WithLogger(discard))
		if err != nil {
			t.Fatal(err)
		}
		s.StartReplicas()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = s.StopReplicas(ctx)
		if err == nil || strings.Count(err.Error(), "stop deployment") != 1 || !strings.Contains(err.Error(), `"D0"`) {
			t.Errorf("error %v, want one of D0 only", err)
		}
		close(stuck) // the bubble waits for the rest
	})
}
