package ray

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/coder/websocket"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/batching"
	"github.com/servetrace/servetrace/serving/multiplexing"
	"github.com/servetrace/servetrace/test/servingtest"
)

// patience bounds every wait: beyond it something is stuck.
const patience = servingtest.Patience

var errBoom = errors.New("boom")

// service is the applications of apps.py.
type service struct {
	tracer trace.Tracer
	// entered has a value for each request that has come to where it waits.
	entered chan struct{}
	// release releases the requests that hold a place.
	release chan struct{}
	once    sync.Once
}

func newService(tracer trace.Tracer) *service {
	return &service{tracer: tracer, entered: make(chan struct{}, 100), release: make(chan struct{})}
}

func (s *service) letGo() { s.once.Do(func() { close(s.release) }) }

// own runs f in a span of user code.
func (s *service) own(ctx context.Context, name string, f func(context.Context)) {
	ctx, span := s.tracer.Start(ctx, name)
	defer span.End()
	f(ctx)
}

// holds keeps its place until the test lets go.
func (s *service) holds() {
	s.entered <- struct{}{}
	<-s.release
}

// waits lasts until its context ends.
func (s *service) waits(ctx context.Context) error {
	s.entered <- struct{}{}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (s *service) apps() []*serving.App {
	many := serving.WithMaxOngoingRequests(100)
	narrow := []serving.DeploymentOption{serving.WithMaxOngoingRequests(1), serving.WithMaxQueuedRequests(1)}
	ok := serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		_, err := io.WriteString(w, "ok")
		return err
	})
	queue := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.holds() })
	return append(s.rpcApps(many, narrow),
		serving.NewApp("root", serving.NewDeployment("Root", ok)),
		serving.NewApp("plain", serving.NewDeployment("Plain", serving.HandlerFunc(s.plain), many), serving.WithRoutePrefix("/plain")),
		serving.NewApp("queue", serving.NewDeployment("Queue", queue, narrow...), serving.WithRoutePrefix("/queue")),
		s.chain(many, narrow),
		s.batch(many),
		models(),
		serving.NewApp("api", serving.NewDeployment("Api", s.api(), many), serving.WithRoutePrefix("/api")),
	)
}

func begin(w http.ResponseWriter) error {
	_, err := io.WriteString(w, "begin")
	return errors.Join(err, http.NewResponseController(w).Flush())
}

func (s *service) plain(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	switch what := path.Base(r.URL.Path); what {
	case "/", "ok":
		return write(w, "ok")
	case "created":
		w.WriteHeader(http.StatusCreated)
	case "redirected":
		w.Header().Set("Location", "/")
		w.WriteHeader(http.StatusFound)
	case "missing":
		w.WriteHeader(http.StatusNotFound)
	case "unready":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "raises":
		return errBoom
	case "spans":
		s.own(ctx, "outer", func(ctx context.Context) { s.own(ctx, "inner", func(context.Context) {}) })
	case "stream":
		for i := range 3 {
			if _, err := fmt.Fprintln(w, i); err != nil {
				return err
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
		}
	case "breaks":
		if err := begin(w); err != nil {
			return err
		}
		return errBoom
	case "waits":
		return s.waits(ctx)
	case "lingers":
		if err := begin(w); err != nil {
			return err
		}
		return s.waits(ctx)
	default:
		return fmt.Errorf("what is %s?", what)
	}
	return nil
}

func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

func (s *service) chain(many serving.DeploymentOption, narrow []serving.DeploymentOption) *serving.App {
	c := serving.NewDeployment("C", nil)
	toC := serving.AddFunction(c, "", func(_ context.Context, x string) (string, error) { return x + " C", nil })
	cFails := serving.AddFunction(c, "fails", func(context.Context, string) (string, error) { return "", errBoom })
	b := serving.NewDeployment("B", nil)
	predict := serving.AddFunction(b, "predict", func(ctx context.Context, x string) (string, error) { return toC.Call(ctx, x+" B") })
	forward := serving.AddFunction(b, "forward", cFails.Call)
	count := serving.AddStream(b, "count", func(_ context.Context, n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range n {
				if !yield(i, nil) {
					return
				}
			}
		}
	})
	full := serving.NewDeployment("Narrow", nil, narrow...)
	toFull := serving.AddFunction(full, "", func(context.Context, string) (string, error) {
		s.holds()
		return "", nil
	})
	a := serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) (err error) {
		ctx := r.Context()
		out := ""
		switch path.Base(r.URL.Path) {
		case "chain":
			out, err = predict.Call(ctx, "A")
		case "spans":
			s.own(ctx, "think", func(ctx context.Context) { out, err = predict.Call(ctx, "A") })
		case "parallel":
			out, err = together(ctx, predict.Call, toC.Call, toC.Call)
		case "twice":
			if out, err = toC.Call(ctx, "A"); err == nil {
				out, err = toC.Call(ctx, out)
			}
		case "count":
			for i, err := range count.Stream(ctx, 3) {
				if err != nil {
					return err
				}
				out += fmt.Sprint(i)
			}
		case "fails":
			out, err = forward.Call(ctx, "A")
		case "catches":
			if _, err := cFails.Call(ctx, "A"); err == nil {
				return errors.New("it did not fail")
			}
		case "full", "hold":
			out, err = toFull.Call(ctx, "A")
		case "model":
			out, err = toC.WithModelID("m1").Call(ctx, "A")
		}
		if err != nil {
			return err
		}
		return write(w, out)
	})
	return serving.NewApp("chain", serving.NewDeployment("A", a, many), serving.WithRoutePrefix("/chain"), serving.WithDeployments(b, c, full))
}

// together makes calls at once.
func together(ctx context.Context, calls ...func(context.Context, string) (string, error)) (string, error) {
	outs, errs := make([]string, len(calls)), make([]error, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { outs[i], errs[i] = call(ctx, "A") })
	}
	all.Wait()
	return strings.Join(outs, ""), errors.Join(errs...)
}

func (s *service) batch(many serving.DeploymentOption) *serving.App {
	together := batching.New("together", func(ctx context.Context, in []string) (out []string, err error) {
		s.own(ctx, "batched", func(context.Context) { out = in })
		return out, nil
	}, batching.WithMaxBatchSize(3), batching.WithWaitTimeout(patience), batching.WithMaxConcurrentBatches(2))
	failing := batching.New("failing", func(context.Context, []string) ([]string, error) {
		return nil, errBoom
	}, batching.WithMaxBatchSize(1))
	return serving.NewApp("batch", serving.NewDeployment("Batched", serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		do := together.Do
		if path.Base(r.URL.Path) == "fails" {
			do = failing.Do
		}
		out, err := do(r.Context(), "x")
		if err != nil {
			return err
		}
		return write(w, out)
	}), many), serving.WithRoutePrefix("/batch"))
}

func models() *serving.App {
	loaded := multiplexing.New(func(_ context.Context, id string) (string, error) { return id, nil }, multiplexing.WithMaxModels(2))
	return serving.NewApp("models", serving.NewDeployment("Models", serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		model, err := loaded.Get(r.Context())
		if err != nil {
			return err
		}
		return write(w, model)
	})), serving.WithRoutePrefix("/models"))
}

func (s *service) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{user}", func(w http.ResponseWriter, r *http.Request) { _ = write(w, r.PathValue("user")) })
	mux.HandleFunc("GET /missing/{user}", http.NotFound)
	mux.Handle("GET /raises", serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errBoom }))
	mux.Handle("GET /chat", serving.HandlerFunc(chat))
	return mux
}

// chat answers one message, and then acts as the message said.
func chat(w http.ResponseWriter, r *http.Request) error {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseNow() }()
	_, told, err := c.Read(r.Context())
	if err != nil {
		return err
	}
	if err := c.Write(r.Context(), websocket.MessageText, told); err != nil {
		return err
	}
	var code websocket.StatusCode
	switch _, err := fmt.Sscanf(string(told), "close %d", &code); {
	case err == nil:
		return c.Close(code, "")
	case string(told) == "raise":
		return errBoom
	}
	if _, _, err := c.Read(r.Context()); websocket.CloseStatus(err) == -1 {
		return err
	}
	return nil
}
