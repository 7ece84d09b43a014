package serving_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/baggage"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// callee serves the deployments of an app for other processes.
func callee(t testing.TB, deployments ...*serving.Deployment) *rig {
	t.Helper()
	return calleeOf(t, serving.CallConfig{}, deployments...)
}

func calleeOf(t testing.TB, cfg serving.CallConfig, deployments ...*serving.Deployment) *rig {
	t.Helper()
	cfg.Addr = "127.0.0.1:0"
	for _, d := range deployments {
		cfg.Deployments = append(cfg.Deployments, d.Name())
	}
	app := serving.NewApp("a", serving.NewDeployment("A", noHandler), serving.WithDeployments(deployments...))
	return startApps(t, serving.Config{Calls: cfg}, app)
}

// callerOf serves an ingress A whose handler is f. It calls the deployments, which other
// processes run.
func callerOf(t testing.TB, f serving.HandlerFunc, at []*rig, deployments ...*serving.Deployment) *rig {
	t.Helper()
	var addrs []string
	for _, r := range at {
		addrs = append(addrs, r.server.CallAddr().String())
	}
	cfg := serving.Config{Calls: serving.CallConfig{Remote: map[string]string{}}}
	for _, d := range deployments {
		cfg.Calls.Remote[d.Name()] = "static:///" + strings.Join(addrs, ",")
	}
	return caller(t, cfg, f, deployments...)
}

// TestRemoteCall: a call to another process is one trace with the spans of a local call,
// and has the request's identity, baggage and deadline.
func TestRemoteCall(t *testing.T) {
	type seen struct {
		Request, Route, Replica, Member string
		Limited                         bool
	}
	in := make(chan seen, 1)
	deployment := func() (*serving.Deployment, *serving.Handle[string, int]) {
		d := functions("B")
		return d, serving.AddFunction(d, "length", func(ctx context.Context, text string) (int, error) {
			r := identity.RequestFromContext(ctx)
			info, _ := serving.ReplicaContext(ctx)
			_, limited := ctx.Deadline()
			in <- seen{r.ID, r.Route, info.Deployment, baggage.FromContext(ctx).Member("user").Value(), limited}
			return len(text), nil
		})
	}
	there, _ := deployment()
	b := callee(t, there)
	here, length := deployment()
	a := callerOf(t, func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), servingtest.Patience)
		defer cancel()
		n, err := length.Call(ctx, "four")
		if err == nil {
			_, err = fmt.Fprint(w, n)
		}
		return err
	}, []*rig{b}, here)

	if got := a.get("/x", headerRequestID, "r1", "baggage", "user=u7"); got.Status != 200 || got.Body != "4" {
		t.Fatalf("answer %d %q, want 4", got.Status, got.Body)
	}
	if diff := cmp.Diff(seen{"r1", "/", "B", "u7", true}, <-in); diff != "" {
		t.Errorf("in the callee (-want +got):\n%s", diff)
	}
	remote := b.spans.take(t, 1)
	chain(t, append(a.spans.take(t, 4), remote...),
		"proxy_http_request A GET /", "route_to_replica A __call__", "replica_handle_request A __call__",
		"route_to_replica B length", "replica_handle_request B length")
	if !remote[0].Parent().IsRemote() {
		t.Error("the parent of the replica span is not remote")
	}
	if n := len(a.server.Status()); n != 2 {
		t.Errorf("%d deployments, want 2", n)
	}
	status := a.server.Status()[1]
	if status.State != serving.DeploymentHealthy || status.Target == "" || status.NumReplicas != 1 || status.MaxOngoingRequests != 5 {
		t.Errorf("status of B in the caller: %+v", status)
	}
}

// TestRemoteMessage: a message of Protocol Buffers crosses as such.
func TestRemoteMessage(t *testing.T) {
	deployment := func() (*serving.Deployment, *serving.Handle[*wrapperspb.StringValue, *wrapperspb.Int64Value]) {
		d := functions("B")
		return d, serving.AddFunction(d, "", func(_ context.Context, in *wrapperspb.StringValue) (*wrapperspb.Int64Value, error) {
			return wrapperspb.Int64(int64(len(in.GetValue()))), nil
		})
	}
	there, _ := deployment()
	here, length := deployment()
	callerOf(t, nil2, []*rig{callee(t, there)}, here)
	out, err := length.Call(t.Context(), wrapperspb.String("three"))
	if err != nil || out.GetValue() != 5 {
		t.Errorf("%v, %v, want 5", out, err)
	}
}

func nil2(http.ResponseWriter, *http.Request) error { return nil }

var errKnown = errors.New("a known error")

type typedError struct{ Code int }

func (e *typedError) Error() string { return fmt.Sprintf("typed %d", e.Code) }

// TestRemoteErrors: errors cross by their kind.
func TestRemoteErrors(t *testing.T) {
	deployment := func() (*serving.Deployment, *serving.Handle[string, int]) {
		d := functions("B", serving.WithErrors(errKnown), serving.WithErrorType[*typedError]())
		return d, serving.AddFunction(d, "", func(ctx context.Context, kind string) (int, error) {
			switch kind {
			case "known":
				return 0, fmt.Errorf("wrapped: %w", errKnown)
			case "typed":
				return 0, fmt.Errorf("wrapped: %w", &typedError{7})
			case "status":
				return 0, status.Error(codes.NotFound, "no such")
			case "panic":
				panic("boom")
			case "deadline":
				ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				<-ctx.Done()
				return 0, ctx.Err()
			case "full":
				return 0, fmt.Errorf("rank: %w", &serving.QueueFullError{Deployment: "C", Queued: 2, Limit: 2, StatusCode: 429, RetryAfter: time.Second})
			}
			return 0, errors.New(kind)
		})
	}
	there, _ := deployment()
	here, call := deployment()
	callerOf(t, nil2, []*rig{callee(t, there)}, here)
	for kind, check := range map[string]func(error) bool{
		"plain": func(err error) bool {
			r, is := errors.AsType[*serving.RemoteError](err)
			return is && r.Type == "*errors.errorString" && err.Error() == "plain"
		},
		"known": func(err error) bool { return errors.Is(err, errKnown) && err.Error() == "wrapped: a known error" },
		"typed": func(err error) bool {
			e, is := errors.AsType[*typedError](err)
			return is && e.Code == 7
		},
		"status": func(err error) bool {
			return status.Code(err) == codes.NotFound && status.Convert(err).Message() == "no such"
		},
		"panic": func(err error) bool {
			p, is := err.(*tracing.PanicError)
			return is && p.Value == "boom" && strings.Contains(string(p.Stack), "remote_test.go")
		},
		"deadline": func(err error) bool { return errors.Is(err, context.DeadlineExceeded) },
		"full": func(err error) bool {
			f, is := errors.AsType[*serving.QueueFullError](err)
			return is && *f == serving.QueueFullError{Deployment: "C", Queued: 2, Limit: 2, StatusCode: 429, RetryAfter: time.Second} &&
				strings.HasPrefix(err.Error(), "rank: ")
		},
	} {
		if _, err := call.Call(t.Context(), kind); err == nil || !check(err) {
			t.Errorf("%s: %#v: %v", kind, err, err)
		}
	}
}

// TestTypesThatDoNotCross: New refuses them, with their place.
func TestTypesThatDoNotCross(t *testing.T) {
	type hidden struct{ n int } //nolint:unused // only its type matters
	type inside struct{ C chan int }
	d := functions("B")
	serving.AddFunction(d, "chan", func(context.Context, inside) (int, error) { return 0, nil })
	serving.AddFunction(d, "hidden", func(context.Context, int) (hidden, error) { return hidden{}, nil })
	serving.AddFunction(d, "reader", func(context.Context, io.Reader) (int, error) { return 0, nil })
	serving.AddFunction(d, "message", func(context.Context, []*wrapperspb.StringValue) (time.Time, error) { return time.Time{}, nil })
	app := serving.NewApp("a", serving.NewDeployment("A", noHandler), serving.WithDeployments(d))
	_, err := serving.New(serving.Config{Calls: serving.CallConfig{Remote: map[string]string{"B": "static:///127.0.0.1:1"}}}, []*serving.App{app})
	want := `app "a": deployment "B" is called from one process to another: ` +
		`method "chan": argument: field C of serving_test.inside: chan int has no form in JSON` + "\n" +
		`method "hidden": result: serving_test.hidden has no exported field, so nothing of it has a form in JSON` + "\n" +
		`method "reader": argument: io.Reader is an interface with methods, which cannot be read from JSON` + "\n" +
		`method "message": argument: *wrapperspb.StringValue is a message inside of a value that is JSON; make the message the whole value, or give the deployment a codec`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("New (-want +got):\n%s", diff)
	}
}

// TestPlacesOfDeployments: every fault of the settings is reported, with what to do.
func TestPlacesOfDeployments(t *testing.T) {
	b := functions("Model")
	serving.AddFunction(b, "", func(context.Context, int) (int, error) { return 0, nil })
	app := serving.NewApp("a", serving.NewDeployment("A", noHandler), serving.WithDeployments(b))
	for _, tt := range []struct {
		cfg  serving.CallConfig
		want string
	}{
		{serving.CallConfig{Remote: map[string]string{"Modle": "static:///h:1"}}, `SERVE_REMOTE: no app has a deployment "Modle"; did you mean Model?`},
		{serving.CallConfig{Remote: map[string]string{"Model": "h:1"}}, `SERVE_REMOTE: deployment "Model": target "h:1" has no scheme`},
		{serving.CallConfig{Remote: map[string]string{"a/A": "static:///h:1"}}, `SERVE_REMOTE: deployment "a/A" is the ingress of app "a"`},
		{serving.CallConfig{Deployments: []string{"Model"}, Remote: map[string]string{"Model": "static:///h:1"}}, `deployment "Model" is in SERVE_DEPLOYMENTS and in SERVE_REMOTE: want one of them`},
		{serving.CallConfig{Deployments: []string{"b/Model"}}, `SERVE_DEPLOYMENTS: there is no app "b"`},
	} {
		_, err := serving.New(serving.Config{Calls: tt.cfg}, []*serving.App{app})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.cfg, err, tt.want)
		}
	}
}

// TestFailedLookup has a name that does not exist. The log and the status have the
// deployment, its target and the reason.
func TestFailedLookup(t *testing.T) {
	dns := servingtest.StartDNS(t, "model.test.")
	here, _ := echoer()
	a := caller(t, serving.Config{Calls: serving.CallConfig{Remote: map[string]string{"B": "dns://" + dns.Addr() + "/model.test.:9100"}}}, nil2, here)
	line := a.access.take(t, "discovery fails, and no process is known", 1)[0]
	if want := "lookup model.test. on " + dns.Addr() + ": no such host"; line["app"] != "a" || line["deployment"] != "B" || line["error"] != want {
		t.Errorf("log %v, want app a, deployment B and error %q", line, want)
	}
	for _, d := range a.server.Status() {
		switch {
		case d.Name == "B" && (d.State != serving.DeploymentUnhealthy || d.Target != "dns://"+dns.Addr()+"/model.test.:9100" ||
			d.Error != "search for processes: lookup model.test. on "+dns.Addr()+": no such host"):
			t.Errorf("status %+v, want the target and the reason", d)
		case d.Name != "B" && d.Target != "":
			t.Errorf("status %+v, want no target", d)
		}
	}
}

// unreached is the warning for a process that neither clients nor processes can reach.
const unreached = "the process runs no ingress, and no other process can call its deployments; set SERVE_CALL_ADDR to a host:port"

// TestReachedProcessesDoNotWarn has a process with the ingress, and a process with an address.
func TestReachedProcessesDoNotWarn(t *testing.T) {
	for _, cfg := range []serving.CallConfig{{Deployments: []string{"A", "B"}}, {Deployments: []string{"B"}, Addr: "127.0.0.1:0"}} {
		there, _ := echoer()
		r := startApps(t, serving.Config{Calls: cfg}, serving.NewApp("a", serving.NewDeployment("A", noHandler), serving.WithDeployments(there)))
		if lines := r.access.Lines(t, unreached); len(lines) > 0 {
			t.Errorf("%+v: %v", cfg, lines)
		}
	}
}

// TestElsewhere: a process without the ingress takes no requests, and a call of a
// deployment that it neither runs nor reaches says what to set.
func TestElsewhere(t *testing.T) {
	b, c := functions("B"), functions("C")
	inB := serving.AddFunction(b, "", func(context.Context, int) (int, error) { return 1, nil })
	inC := serving.AddFunction(c, "", func(context.Context, int) (int, error) { return 1, nil })
	app := serving.NewApp("a", serving.NewDeployment("A", noHandler), serving.WithDeployments(b, c))
	r := startApps(t, serving.Config{Calls: serving.CallConfig{Deployments: []string{"B"}}}, app)
	if line := r.access.take(t, unreached, 1)[0]; line["deployments"] != "B" {
		t.Errorf("log: %v", line)
	}
	if n, err := inB.Call(t.Context(), 0); n != 1 || err != nil {
		t.Errorf("B: %d, %v", n, err)
	}
	_, err := inC.Call(t.Context(), 0)
	if want := `call __call__ of deployment "C": this process does not run it: add it to SERVE_DEPLOYMENTS, or say in SERVE_REMOTE where it runs`; fmt.Sprint(err) != want {
		t.Errorf("C: %v, want %s", err, want)
	}
	if got := r.get("/"); got.Status != 404 {
		t.Errorf("the ingress answers %d, want 404", got.Status)
	}
	if got := r.get("/-/healthz"); got.Status != 200 {
		t.Errorf("health is %d %s", got.Status, got.Body)
	}
}

var _ sdktrace.SpanProcessor = (*spanLog)(nil)
