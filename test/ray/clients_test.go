package ray

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

// Those of the caller in the recording.
const (
	callerTrace = "0af7651916cd43dd8448eb211c80319c"
	callerSpan  = "b7ad6b7169203331"
)

// timeout is for the scenarios with a timeout. It is long enough to reach the point at
// which they wait, also on a loaded machine.
const timeout = time.Second

// stage is a server for one scenario.
type stage struct {
	t       testing.TB
	server  *serving.Server
	service *service
	spans   *recorder
	client  *http.Client
	conn    *grpc.ClientConn
	stop    func()
}

// newStage starts a server with the settings that Ray Serve had: everything is
// sampled, and requests have a timeout where the scenario is about it. If apart, the
// deployments that A calls run behind two other servers, as in other processes.
func newStage(t testing.TB, limited, apart bool) *stage {
	t.Helper()
	limit := time.Duration(0)
	if limited {
		limit = timeout
	}
	s := &stage{t: t, spans: &recorder{}, client: &http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	provider := s.provider()
	s.service = newService(provider.TracerProvider().Tracer("user"))
	cfg := serving.Config{
		RequestTimeout: limit,
		GRPC:           serving.GRPCConfig{Addr: "127.0.0.1:0", RequestTimeout: limit},
	}
	var stops []func()
	if apart {
		c, stopC := s.start(serving.Config{Calls: serving.CallConfig{Addr: "127.0.0.1:0", Deployments: []string{"chain/C"}}}, s.provider())
		toC := "static:///" + c.CallAddr().String()
		b, stopB := s.start(serving.Config{Calls: serving.CallConfig{
			Addr: "127.0.0.1:0", Deployments: []string{"chain/B", "chain/Narrow"}, Remote: map[string]string{"chain/C": toC},
		}}, s.provider())
		toB := "static:///" + b.CallAddr().String()
		cfg.Calls.Remote = map[string]string{"chain/B": toB, "chain/Narrow": toB, "chain/C": toC}
		stops = []func(){stopB, stopC}
	}
	server, stop := s.start(cfg, provider)
	s.server = server
	var err error
	s.conn, err = grpc.NewClient(s.server.GRPCAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() {
		s.service.letGo()
		_ = s.conn.Close()
		s.client.CloseIdleConnections()
		for _, stop := range append([]func(){stop}, stops...) {
			stop()
		}
	})
	t.Cleanup(s.stop)
	return s
}

// provider returns a provider that records everything for the stage.
func (s *stage) provider() *tracing.Provider {
	s.t.Helper()
	cfg, err := tracing.ConfigFromEnv(func(key string) string {
		return map[string]string{"SERVE_TRACING_SEMCONV": "ray"}[key]
	})
	if err != nil {
		s.t.Fatal(err)
	}
	provider, err := tracing.NewProvider(cfg, s.spans)
	if err != nil {
		s.t.Fatal(err)
	}
	return provider
}

// start starts a server of the applications, and returns its stop.
func (s *stage) start(cfg serving.Config, provider *tracing.Provider) (*serving.Server, func()) {
	s.t.Helper()
	cfg.HTTPAddr = "127.0.0.1:0"
	server, err := serving.New(cfg, s.service.apps(), serving.WithTracing(provider), serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := server.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return server, func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			s.t.Errorf("Shutdown: %v", err)
		}
		if err := provider.Shutdown(ctx); err != nil {
			s.t.Errorf("shut tracing down: %v", err)
		}
	}
}

// play acts as the clients of a scenario, and returns the responses that they got.
func (s *stage) play(what sent) []seen {
	s.t.Helper()
	held := s.holdAll(what)
	for _, path := range what.Before {
		s.get("before", sent{Path: path, Headers: what.Headers})
	}
	one := map[string]func(sent) seen{
		"get": func(what sent) seen { return s.get(what.ID, what) }, "leave": s.leave, "leave-mid": s.leaveMid, "socket": s.socket, "rpc": s.rpc, "rpc-leave": s.rpcLeave,
	}[what.Do]
	if one == nil {
		s.t.Fatalf("what is to %q?", what.Do)
	}
	saw := make([]seen, max(what.Times, 1))
	var all sync.WaitGroup
	for i := range saw {
		all.Go(func() { saw[i] = one(what) })
	}
	all.Wait()
	s.service.letGo()
	held.Wait()
	return saw
}

// holdAll takes places: the first gets the replica, the others wait in the queue.
func (s *stage) holdAll(what sent) *sync.WaitGroup {
	s.t.Helper()
	var held sync.WaitGroup
	for i, hold := range what.Hold {
		held.Go(func() {
			if hold.App != "" {
				_ = s.call(s.t.Context(), "held", sent{App: hold.App, Method: "Waits", Kind: "unary"})
			} else {
				s.get("held", sent{Path: hold.Path})
			}
		})
		if i == 0 {
			servingtest.Receive(s.t, "the first to hold a place", s.service.entered)
			continue
		}
		s.awaitQueued(i)
	}
	return &held
}

func (s *stage) awaitQueued(n int) {
	s.t.Helper()
	servingtest.Await(s.t, "a place in the queue", func() bool {
		queued := 0
		for _, d := range s.server.Status() {
			queued += d.Queued
		}
		return queued == n
	})
}

func (s *stage) send(ctx context.Context, id string, what sent) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, cmp.Or(what.Verb, http.MethodGet), "http://"+s.server.Addr().String()+what.Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header = header(id, what)
	return s.client.Do(req)
}

func header(id string, what sent) http.Header {
	h := http.Header{"X-Request-Id": {id}}
	for key, value := range what.Headers {
		h.Set(key, value)
	}
	return h
}

func (s *stage) get(id string, what sent) seen {
	resp, err := s.send(s.t.Context(), id, what)
	if err != nil {
		return seen{Cut: true}
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return seen{Status: resp.StatusCode, Cut: err != nil}
}

// leave goes when its request has come to where it waits.
func (s *stage) leave(what sent) seen {
	ctx, cancel := context.WithCancel(s.t.Context())
	var gone sync.WaitGroup
	gone.Go(func() {
		if resp, err := s.send(ctx, what.ID, what); err == nil {
			_ = resp.Body.Close()
			s.t.Errorf("there is a response: %s", resp.Status)
		}
	})
	if len(what.Hold) > 0 {
		s.awaitQueued(len(what.Hold))
	} else {
		servingtest.Receive(s.t, "the handler", s.service.entered)
	}
	cancel()
	gone.Wait()
	if len(what.Hold) > 0 {
		s.awaitQueued(len(what.Hold) - 1) // else it may yet get the place
	}
	return seen{Cut: true}
}

// leaveMid goes with the first bytes of the response.
func (s *stage) leaveMid(what sent) seen {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	resp, err := s.send(ctx, what.ID, what)
	if err != nil {
		s.t.Error(err)
		return seen{}
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadFull(resp.Body, make([]byte, len("begin"))); err != nil {
		s.t.Error(err)
	}
	return seen{Status: resp.StatusCode, Cut: true}
}

func (s *stage) socket(what sent) seen {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	//nolint:bodyclose // there is none after an upgrade
	c, _, err := websocket.Dial(ctx, "ws://"+s.server.Addr().String()+what.Path, &websocket.DialOptions{HTTPHeader: header(what.ID, what)})
	if err != nil {
		s.t.Error(err)
		return seen{}
	}
	defer func() { _ = c.CloseNow() }()
	if err := c.Write(ctx, websocket.MessageText, []byte(what.Say)); err != nil {
		s.t.Error(err)
	}
	if _, got, err := c.Read(ctx); err != nil || string(got) != what.Say {
		s.t.Errorf("the answer is %q, %v", got, err)
	}
	switch {
	case what.Close == nil:
		_, _, err := c.Read(ctx)
		if code := websocket.CloseStatus(err); code != -1 {
			return seen{Status: int(code)}
		}
		return seen{Status: int(websocket.StatusAbnormalClosure), Cut: true}
	case *what.Close == 0:
		_ = c.CloseNow()
		return seen{Cut: true}
	default:
		_ = c.Close(websocket.StatusCode(*what.Close), "")
		return seen{Status: *what.Close}
	}
}
