package serving_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// kept is what a goroutine that outlives its request has of it.
type kept struct {
	id      string // the request's
	ctx     context.Context
	inner   *serving.Handle[int, int]
	others  []func() error // must all fail
	replica string
}

// use makes use of all of it, after the client has its answer: a request that is
// over stays what it was, and does nothing more.
func (k kept) use() error {
	select {
	case <-k.ctx.Done():
	case <-time.After(servingtest.Patience):
		return errors.New("the context does not end")
	}
	fired := make(chan struct{})
	context.AfterFunc(k.ctx, func() { close(fired) })
	<-fired
	child, cancel := context.WithTimeout(k.ctx, time.Hour)
	defer cancel()
	if k.ctx.Err() == nil || child.Err() == nil || context.Cause(child) == nil {
		return fmt.Errorf("err %v, child's %v, cause %v", k.ctx.Err(), child.Err(), context.Cause(child))
	}
	request, span := identity.RequestFromContext(k.ctx), trace.SpanFromContext(k.ctx)
	info, inReplica := serving.ReplicaContext(k.ctx)
	if request == nil || request.ID != k.id || !inReplica || info.ReplicaID.UniqueID != k.replica || serving.ModelID(k.ctx) != "" {
		return fmt.Errorf("request %+v, replica %+v", request, info)
	}
	await := time.After(servingtest.Patience)
	for span.IsRecording() { // a handler may have been left behind itself
		select {
		case <-await:
			return errors.New("the span does not end")
		case <-time.After(time.Millisecond):
		}
	}
	span.SetAttributes(attribute.Bool("late", true))
	span.SetName("late")
	span.AddEvent("late")
	span.RecordError(errors.New("late"))
	span.End()
	_, own := span.TracerProvider().Tracer("user").Start(k.ctx, "late child of "+k.id)
	own.End()
	slog.New(tracing.NewLogHandler(slog.DiscardHandler)).InfoContext(k.ctx, "late")
	if _, err := k.inner.Call(k.ctx, 1); err == nil {
		return errors.New("a late call by handle succeeds")
	}
	for i, f := range k.others {
		if f() == nil {
			return fmt.Errorf("operation %d succeeds", i)
		}
	}
	return nil
}

func TestLeftBehind(t *testing.T) {
	inner := functions("B")
	echo := serving.AddFunction(inner, "", func(_ context.Context, i int) (int, error) { return i, nil })
	var over sync.Map // request id → chan that is closed once the client has its answer
	var left sync.WaitGroup
	leave := func(ctx context.Context, others ...func() error) error {
		if _, err := echo.Call(ctx, 1); err != nil {
			return err
		}
		info, _ := serving.ReplicaContext(ctx)
		k := kept{id: identity.RequestFromContext(ctx).ID, ctx: ctx, inner: echo, others: others, replica: info.ReplicaID.UniqueID}
		answered, _ := over.LoadOrStore(k.id, make(chan struct{}))
		left.Go(func() {
			<-answered.(chan struct{})
			if err := k.use(); err != nil {
				t.Errorf("request %s: %v", k.id, err)
			}
		})
		return nil
	}
	d := serving.NewDeployment("D", serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		_, _ = io.WriteString(w, "hello")
		return leave(r.Context(), func() error {
			_ = r.URL.Path + r.Header.Get("X")
			_, err := io.WriteString(w, "late")
			return err
		})
	}))
	pb.RegisterTestServiceServer(d, testService{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return &pb.SimpleResponse{}, leave(ctx, func() error { return grpc.SetHeader(ctx, metadata.Pairs("late", "")) })
	}, bidi: func(stream pb.TestService_FullDuplexCallServer) error {
		return leave(stream.Context(), func() error { return stream.Send(&pb.StreamingOutputCallResponse{}) },
			func() error { _, err := stream.Recv(); return err })
	}})
	r := startGRPCApps(t, serving.Config{}, serving.NewApp("a", d, serving.WithDeployments(inner)))
	const callers, calls = 6, 30
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for call := range calls {
				id := fmt.Sprintf("%d-%d", caller, call)
				var err error
				switch call % 3 {
				case 0:
					if got := r.do(t.Context(), http.MethodPost, "/", "X-Request-Id", id); got.Body != "hello" {
						err = fmt.Errorf("%+v", got)
					}
				case 1:
					_, err = r.stub.UnaryCall(with(patient(t), metaRequestID, id), &pb.SimpleRequest{})
				case 2:
					var stream pb.TestService_FullDuplexCallClient
					if stream, err = r.stub.FullDuplexCall(with(patient(t), metaRequestID, id)); err == nil {
						if _, err = stream.Recv(); errors.Is(err, io.EOF) {
							err = nil
						}
					}
				}
				if err != nil {
					t.Errorf("call %s: %v", id, err)
				}
				answered, _ := over.LoadOrStore(id, make(chan struct{}))
				close(answered.(chan struct{}))
			}
		})
	}
	group.Wait()
	left.Wait()
	lateChildren := 0
	for _, s := range r.spans.all() {
		if _, late := attr(s, "late"); late || s.Name() == "late" || len(s.Events()) > 0 && s.Events()[0].Name == "late" {
			t.Errorf("%q has changed after its end", s.Name())
		}
		if id, ok := attr(s, "serve.request_id"); ok && s.Name() == "late child of "+id.AsString() {
			lateChildren++
		}
	}
	if lateChildren != callers*calls {
		t.Errorf("%d late children, want %d", lateChildren, callers*calls)
	}
}

// TestContextPrints: to print the context of a call reads nothing of it that
// changes, whoever else has it.
func TestContextPrints(t *testing.T) {
	var left sync.WaitGroup
	d := serving.NewDeployment("D", serving.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
		info, _ := serving.ReplicaContext(r.Context())
		left.Go(func() {
			if got, want := fmt.Sprint(r.Context()), "call in "+info.ReplicaID.String(); !strings.Contains(got, want) {
				t.Errorf("prints %.200q, want %q", got, want)
			}
		})
		return nil
	}))
	// Without tracing: no span is around the context.
	s, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"}, []*serving.App{serving.NewApp("a", d)}, serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Shutdown(patient(t)); err != nil {
			t.Error(err)
		}
	}()
	resp, err := http.Get("http://" + s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	left.Wait()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
}
