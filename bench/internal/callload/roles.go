package callload

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/serving"
)

// The roles of processes.
const (
	roleCallees = "callees"
	roleCallers = "callers"
)

// The kinds of calls.
const (
	byGRPC       = "grpc"
	byHandle     = "handle"
	byIdempotent = "idempotent"
	byJSON       = "json"
)

// order is a line to a process. Callees only answer it.
type order struct {
	Length time.Duration // of a turn of calls; zero: none
	WarmUp bool          // the turn does not count
}

// made is the answer to an order: the calls of all turns so far, and the objects that the
// process has allocated since its start.
type made struct {
	Calls    uint64
	Took     time.Duration
	P50, P99 time.Duration
	Objects  float64
}

// payload is the content of each message.
var payload = []byte("the quick brown fox")

// echo is the function, as a service of grpc-go.
type echo struct {
	testpb.UnimplementedTestServiceServer
}

// UnaryCall implements [testpb.TestServiceServer]. Our deployment has it as function.
func (echo) UnaryCall(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
}

// plenty is more concurrent calls than any load has, so that no limit applies.
const plenty = 1024

// handles are the handles of an app. The app serves with one server.
type handles struct {
	echo *serving.Handle[*testpb.SimpleRequest, *testpb.SimpleResponse]
	text *serving.Handle[string, string]
}

const nameEcho = "Echo"

func newApp() (*serving.App, handles) {
	d := serving.NewDeployment(nameEcho, nil, serving.WithReplicas(2), serving.WithMaxOngoingRequests(plenty))
	h := handles{
		echo: serving.AddFunction(d, "", echo{}.UnaryCall),
		text: serving.AddFunction(d, "text", func(_ context.Context, in string) (string, error) { return in, nil }),
	}
	ingress := serving.NewDeployment("Ingress", http.NotFoundHandler())
	return serving.NewApp("app", ingress, serving.WithDeployments(d)), h
}

// startServer starts a server of the app, and waits until its deployments have this many
// replicas, or processes.
func startServer(ctx context.Context, calls serving.CallConfig, replicas int) (*serving.Server, handles, error) {
	app, h := newApp()
	s, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0", Calls: calls}, []*serving.App{app}, serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, h, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, h, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for running(s) < replicas {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, h, fmt.Errorf("%d of %d replicas run: %w", running(s), replicas, ctx.Err())
		}
	}
	return s, h, nil
}

// running returns the number of replicas, or of processes, of the deployment that is called.
func running(s *serving.Server) int {
	for _, d := range s.Status() {
		if d.Name == nameEcho {
			return d.NumReplicas
		}
	}
	return 0
}

// runCallees has this number of servers. It writes their addresses, and answers each line of
// in.
func runCallees(args []string, in io.Reader, out io.Writer) error {
	ctx, by := context.Background(), args[0]
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var addrs []string
	var stops []func() error
	for range n {
		addr, stop, err := startCallee(ctx, by)
		if err != nil {
			return err
		}
		addrs, stops = append(addrs, addr), append(stops, stop)
	}
	err = answer(in, out, addrs, func(order) (made, error) { return made{}, nil })
	for _, stop := range stops {
		err = errors.Join(err, stop())
	}
	return err
}

func startCallee(ctx context.Context, by string) (addr string, stop func() error, err error) {
	if by != byGRPC {
		s, _, err := startServer(ctx, serving.CallConfig{Addr: "127.0.0.1:0", Deployments: []string{nameEcho}}, 2)
		if err != nil {
			return "", nil, err
		}
		return s.CallAddr().String(), func() error { return s.Shutdown(ctx) }, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, echo{})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }() // ends by stop
	return l.Addr().String(), func() error {
		s.Stop()
		return <-ended
	}, nil
}

// runCallers has this number of callers of the addresses. It answers each line of in.
func runCallers(args []string, in io.Reader, out io.Writer) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var addrs []string
	if args[2] != "" {
		addrs = strings.Split(args[2], ",")
	}
	call, stop, err := newCall(context.Background(), args[0], addrs)
	if err != nil {
		return err
	}
	var all record
	err = answer(in, out, nil, func(o order) (made, error) {
		r := &all
		if o.WarmUp {
			r = new(record)
		}
		err := r.turn(o.Length, n, call)
		return r.made(), err
	})
	return errors.Join(err, stop())
}

// newCall returns a function that makes the i-th call.
func newCall(ctx context.Context, by string, addrs []string) (call func(i uint64) error, stop func() error, err error) {
	if by == byGRPC {
		return grpcCall(ctx, addrs)
	}
	calls, replicas := serving.CallConfig{}, 2
	if len(addrs) > 0 {
		calls.Remote, replicas = map[string]string{nameEcho: "static:///" + strings.Join(addrs, ",")}, len(addrs)
	}
	s, h, err := startServer(ctx, calls, replicas)
	if err != nil {
		return nil, nil, err
	}
	stop = func() error { return s.Shutdown(ctx) }
	if by == byJSON {
		return func(uint64) error {
			out, err := h.text.Call(ctx, string(payload))
			return checked([]byte(out), err)
		}, stop, nil
	}
	if by == byIdempotent {
		h.echo = h.echo.Idempotent()
	}
	in := newMessage()
	return func(uint64) error {
		out, err := h.echo.Call(ctx, in)
		return checked(out.GetPayload().GetBody(), err)
	}, stop, nil
}

func newMessage() *testpb.SimpleRequest {
	return &testpb.SimpleRequest{Payload: &testpb.Payload{Body: payload}}
}

// grpcCall returns a function that calls the addresses in turn, each by its connection.
func grpcCall(ctx context.Context, addrs []string) (call func(i uint64) error, stop func() error, err error) {
	var conns []*grpc.ClientConn
	var clients []testpb.TestServiceClient
	stop = func() (err error) {
		for _, c := range conns {
			err = errors.Join(err, c.Close())
		}
		return err
	}
	for _, addr := range addrs {
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, nil, errors.Join(err, stop())
		}
		conns, clients = append(conns, c), append(clients, testpb.NewTestServiceClient(c))
	}
	in := newMessage()
	return func(i uint64) error {
		out, err := clients[i%uint64(len(clients))].UnaryCall(ctx, in)
		return checked(out.GetPayload().GetBody(), err)
	}, stop, nil
}

// checked returns the fault of an answer.
func checked(out []byte, err error) error {
	if err == nil && !bytes.Equal(out, payload) {
		err = fmt.Errorf("answered %q", out)
	}
	return err
}

// record has the times of calls, and of turns.
type record struct {
	calls []time.Duration
	turns time.Duration
}

// turn has n callers make calls until the time is over, each a call after each answer.
func (r *record) turn(length time.Duration, n int, call func(i uint64) error) (err error) {
	if length == 0 {
		return nil
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for range n {
		all.Go(func() {
			var took []time.Duration
			var fault error
			for last := began; fault == nil && last.Sub(began) < length; {
				fault = call(uint64(len(took)))
				now := time.Now()
				took, last = append(took, now.Sub(last)), now
			}
			mu.Lock()
			defer mu.Unlock()
			err = cmp.Or(err, fault)
			r.calls = append(r.calls, took...)
		})
	}
	all.Wait()
	r.turns += time.Since(began)
	return err
}

func (r *record) made() made {
	m := made{Calls: uint64(len(r.calls)), Took: r.turns}
	if n := len(r.calls); n > 0 {
		sorted := slices.Sorted(slices.Values(r.calls))
		m.P50, m.P99 = sorted[n/2], sorted[n*99/100]
	}
	return m
}

// answer writes first unless it is nil, and answers each line of in by do, with the
// allocations of this process.
func answer(in io.Reader, out io.Writer, first []string, do func(order) (made, error)) error {
	live := measure.LiveHeap()
	enc := json.NewEncoder(out)
	var err error
	if first != nil {
		err = enc.Encode(first)
	}
	for lines := bufio.NewScanner(in); err == nil && lines.Scan(); {
		var o order
		var m made
		if err = json.Unmarshal(lines.Bytes(), &o); err != nil {
			break
		}
		if m, err = do(o); err == nil {
			m.Objects, _ = measure.HeapAllocs()
			err = enc.Encode(m)
		}
	}
	runtime.KeepAlive(live)
	return err
}
