package serveload

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/serving"
)

// roleCallers is the role of a process with callers.
const roleCallers = "callers"

// order is a question to the callers: a turn of this length, or none.
type order struct {
	Length    time.Duration
	Uncounted bool // the turn only counts in All
}

// made is the answer to an order.
type made struct {
	// All is the number of calls since the start, and Calls of the turns that count, which
	// took so long.
	All, Calls uint64
	Took       time.Duration
	P50, P99   time.Duration
	Objects    float64 // allocated by the process since its start
}

// runCallers is a process with callers of servers. Its arguments are the kind of the
// servers, the application, the number of callers and the addresses. It writes true when
// its connections are open.
func runCallers(args []string, in io.Reader, out io.Writer) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	l, err := dial(context.Background(), args[0], args[1], n, strings.FieldsFunc(args[3], func(r rune) bool { return r == ',' }))
	if err != nil {
		return err
	}
	measure.KeepLiveHeap()
	err = child.Answer(in, out, true, func(o order) (any, error) {
		err := l.turn(o)
		return l.made(), err
	})
	return errors.Join(err, l.close())
}

// load has callers, whose connections stay open between two turns.
type load struct {
	callers []call
	closers []func() error

	all   uint64
	took  time.Duration
	times *hdrhistogram.Histogram // of calls, in nanoseconds
}

// call makes the i-th call of a caller and checks the answer. After an error it is
// unusable.
type call func(i int) error

// dial opens the connections of n callers.
func dial(ctx context.Context, by, app string, n int, addrs []string) (*load, error) {
	l := &load{times: hdrhistogram.New(1, int64(time.Minute), 3)}
	var one call
	var err error
	switch {
	case by == byHandle, by == byIdempotent, by == byJSON:
		one, err = l.dialHandle(ctx, by, addrs)
	case app == appEcho:
		one, err = l.dialGRPC(ctx, addrs)
	}
	for len(l.callers) < n && err == nil {
		if app == appHello { // each caller has a connection
			one, err = l.dialHTTP(ctx, addrs[0])
		}
		l.callers = append(l.callers, one)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *load) close() (err error) {
	for _, c := range l.closers {
		err = errors.Join(err, c())
	}
	return err
}

// turn has each caller make a call after each answer, until the time is over. It returns
// after the last answer.
func (l *load) turn(o order) (err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for _, call := range l.callers {
		all.Go(func() {
			var took []time.Duration
			var fault error
			for last := began; fault == nil && last.Sub(began) < o.Length; {
				fault = call(len(took))
				now := time.Now()
				took, last = append(took, now.Sub(last)), now
			}
			mu.Lock()
			defer mu.Unlock()
			err = cmp.Or(err, fault)
			l.all += uint64(len(took))
			for _, d := range took {
				if !o.Uncounted {
					_ = l.times.RecordValue(int64(d)) // no call takes as long as the limit
				}
			}
		})
	}
	all.Wait()
	if !o.Uncounted {
		l.took += time.Since(began)
	}
	return err
}

func (l *load) made() made {
	objects, _ := measure.HeapAllocs()
	return made{
		All: l.all, Calls: uint64(l.times.TotalCount()), Took: l.took, //nolint:gosec // a count
		P50: time.Duration(l.times.ValueAtQuantile(50)), P99: time.Duration(l.times.ValueAtQuantile(99)), Objects: objects,
	}
}

// dialHTTP opens a connection of HTTP/1.1. It writes the same bytes again and again, so
// that its cost is mostly the kernel's.
func (l *load) dialHTTP(ctx context.Context, addr string) (call, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, conn.Close)
	request := fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\nUser-Agent: servetrace-bench\r\n\r\n", addr)
	in, body := bufio.NewReader(conn), new(bytes.Buffer)
	return func(int) error {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		body.Reset()
		_, err = body.ReadFrom(answer.Body)
		if err == nil && (answer.StatusCode != http.StatusOK || body.String() != helloBody) {
			err = fmt.Errorf("answered with status %d and %q", answer.StatusCode, body)
		}
		return err
	}, nil
}

// dialGRPC opens a connection to each address. A caller uses them in turn.
func (l *load) dialGRPC(ctx context.Context, addrs []string) (call, error) {
	var clients []testpb.TestServiceClient
	for _, addr := range addrs {
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		l.closers, clients = append(l.closers, c.Close), append(clients, testpb.NewTestServiceClient(c))
	}
	in := newMessage()
	return func(i int) error {
		out, err := clients[i%len(clients)].UnaryCall(ctx, in)
		return checked(out.GetPayload().GetBody(), err)
	}, nil
}

// payload is the content of each message.
var payload = []byte("the quick brown fox")

func newMessage() *testpb.SimpleRequest {
	return &testpb.SimpleRequest{Payload: &testpb.Payload{Body: payload}}
}

// checked returns the fault of an answer.
func checked(out []byte, err error) error {
	if err == nil && !bytes.Equal(out, payload) {
		err = fmt.Errorf("answered %q", out)
	}
	return err
}

// handles are the handles of an app, whose functions return their argument.
type handles struct {
	echo *serving.Handle[*testpb.SimpleRequest, *testpb.SimpleResponse]
	text *serving.Handle[string, string]
}

const nameEcho = "Echo"

// startFunctions starts a server of the app.
func startFunctions(ctx context.Context, config serving.CallConfig) (*serving.Server, handles, error) {
	d := serving.NewDeployment(nameEcho, nil, roomy...)
	h := handles{
		echo: serving.AddFunction(d, "", echo{}.UnaryCall),
		text: serving.AddFunction(d, "text", func(_ context.Context, in string) (string, error) { return in, nil }),
	}
	app := serving.NewApp("app", serving.NewDeployment("Ingress", http.NotFoundHandler()), serving.WithDeployments(d))
	s, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0", Calls: config}, []*serving.App{app}, serving.WithLogger(slog.New(slog.DiscardHandler)))
	if err == nil {
		err = s.Start(ctx)
	}
	return s, h, err
}

// startCallee starts a server that takes calls from other processes.
func startCallee(ctx context.Context) (*server, error) {
	s, _, err := startFunctions(ctx, serving.CallConfig{Addr: "127.0.0.1:0", Deployments: []string{nameEcho}})
	if err != nil {
		return nil, err
	}
	return &server{addr: s.CallAddr().String(), stop: func() (account, error) { return account{}, s.Shutdown(ctx) }}, nil
}

// dialHandle starts a server that calls the functions at the addresses, or its own.
func (l *load) dialHandle(ctx context.Context, by string, addrs []string) (call, error) {
	var config serving.CallConfig
	if len(addrs) > 0 {
		config.Remote = map[string]string{nameEcho: "static:///" + strings.Join(addrs, ",")}
	}
	s, h, err := startFunctions(ctx, config)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, func() error { return s.Shutdown(ctx) })
	if by == byJSON {
		return func(int) error {
			out, err := h.text.Call(ctx, string(payload))
			return checked([]byte(out), err)
		}, nil
	}
	if by == byIdempotent {
		h.echo = h.echo.Idempotent()
	}
	in := newMessage()
	return func(int) error {
		out, err := h.echo.Call(ctx, in)
		return checked(out.GetPayload().GetBody(), err)
	}, nil
}
