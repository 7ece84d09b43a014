package remote_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/serving/multiplexing"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/test/testplugin"
	"github.com/servetrace/servetrace/tracing"
)

// envChild is set in the processes that a test starts.
const envChild = "SERVETRACE_TEST_REMOTE"

func TestMain(m *testing.M) {
	testplugin.Main()
	if os.Getenv(envChild) != "" {
		go func() { // the end of standard input is the end of the test, however that ended
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		if err := runChild(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// event is a line that a process prints.
type event struct {
	Kind string `json:"kind"` // ready, ran, canceled, left, loaded, span or account
	ID   string `json:"id,omitempty"`

	Calls string `json:"calls,omitempty"` // the address for calls
	HTTP  string `json:"http,omitempty"`

	Trace, Span, Parent string
	Remote              bool // the parent is of another process

	Ended, Delivered uint64 // spans, by the account
}

// printer prints events in whole lines.
type printer struct {
	mu sync.Mutex
	to io.Writer
	// host gets the spans, too, unless it is nil.
	host *host.Host
}

func (p *printer) print(e event) {
	line, _ := json.Marshal(e) // an event has a form
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.to.Write(append(line, '\n')) // a reader that has left is no matter
}

// printer is also the processor of spans.
func (p *printer) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (p *printer) ForceFlush(context.Context) error                { return nil }
func (p *printer) Shutdown(context.Context) error                  { return nil }

func (p *printer) OnEnd(s sdktrace.ReadOnlySpan) {
	p.print(event{
		Kind: "span", ID: s.Name(), Trace: s.SpanContext().TraceID().String(), Span: s.SpanContext().SpanID().String(),
		Parent: s.Parent().SpanID().String(), Remote: s.Parent().IsRemote(),
	})
	if p.host != nil {
		p.host.OnEnd(s)
	}
}

// account prints the account of the host's plugin, after its stop.
func (p *printer) account(ctx context.Context) error {
	if p.host == nil {
		return nil
	}
	err := p.host.Shutdown(ctx)
	stats := p.host.Stats()
	p.print(event{Kind: "account", Ended: stats.Ended, Delivered: stats.Exporters[0].Delivered})
	return err
}

// job is the argument of Model.
type job struct {
	ID   string
	Wait bool // until the call's context ends
	Nap  time.Duration
}

// handles are the handles of the app.
type handles struct {
	model  *serving.Handle[job, string]
	ranker *serving.Handle[string, string]
	loads  *serving.Handle[string, string] // of multiplexed models
	count  *serving.StreamHandle[int, *wrapperspb.BytesValue]
	sent   *serving.Handle[string, int64] // the items that count has sent in the process
}

// newApp returns the app of all processes: Ingress calls Model, which calls Ranker.
// events gets what the functions report.
func newApp(events *printer, opts ...serving.DeploymentOption) (*serving.App, handles) {
	var h handles
	ranker := serving.NewDeployment("Ranker", nil)
	h.ranker = serving.AddFunction(ranker, "rank", func(_ context.Context, text string) (string, error) {
		return "ranked " + text, nil
	})
	model := serving.NewDeployment("Model", nil, opts...)
	h.model = serving.AddFunction(model, "", func(ctx context.Context, in job) (string, error) {
		events.print(event{Kind: "ran", ID: in.ID})
		switch {
		case in.Wait:
			<-ctx.Done()
			events.print(event{Kind: "canceled", ID: in.ID})
			return "", ctx.Err()
		case in.Nap > 0:
			nap(ctx, in.Nap)
			return in.ID, nil
		case strings.HasPrefix(in.ID, "rank"):
			return h.ranker.Call(ctx, in.ID)
		}
		return in.ID, nil
	})
	cache := multiplexing.New(func(_ context.Context, id string) (string, error) {
		events.print(event{Kind: "loaded", ID: id})
		return "weights of " + id, nil
	}, multiplexing.WithMaxModels(4))
	h.loads = serving.AddFunction(model, "load", func(ctx context.Context, _ string) (string, error) {
		return cache.Get(ctx)
	})
	var sent atomic.Int64
	h.count = serving.AddStream(model, "count", func(_ context.Context, n int) iter.Seq2[*wrapperspb.BytesValue, error] {
		return func(yield func(*wrapperspb.BytesValue, error) bool) {
			events.print(event{Kind: "ran", ID: "count"})
			defer events.print(event{Kind: "left", ID: "count"})
			for i := range n {
				if !yield(wrapperspb.Bytes(newItem(i)), nil) {
					return
				}
				sent.Add(1)
			}
		}
	})
	h.sent = serving.AddFunction(model, "sent", func(context.Context, string) (int64, error) { return sent.Load(), nil })
	ingress := serving.NewDeployment("Ingress", serving.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		if n, err := strconv.Atoi(r.URL.Query().Get("items")); err == nil {
			return writeItems(w, h.count.Stream(r.Context(), n))
		}
		out, err := h.model.Call(r.Context(), job{ID: r.URL.Query().Get("id")})
		if err == nil {
			_, err = io.WriteString(w, out)
		}
		return err
	}))
	return serving.NewApp("app", ingress, serving.WithDeployments(model, ranker)), h
}

// itemBytes is the size of an item of count.
const itemBytes = 32 << 10

// newItem returns an item of count, which begins with its number.
func newItem(i int) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, itemBytes), uint64(i))[:itemBytes]
}

// writeItems writes the items of a stream, until one fails.
func writeItems(w io.Writer, items iter.Seq2[*wrapperspb.BytesValue, error]) error {
	for item, err := range items {
		if err != nil {
			return err
		}
		if _, err := w.Write(item.GetValue()); err != nil {
			return err
		}
	}
	return nil
}

// nap waits for d, or until ctx ends.
func nap(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// newServer returns a started server of the app with the settings of getenv.
func newServer(getenv func(string) string, events *printer, opts ...serving.DeploymentOption) (*serving.Server, handles, error) {
	cfg, err := serving.ConfigFromEnv(getenv)
	if err != nil {
		return nil, handles{}, err
	}
	cfg.HTTPAddr = "127.0.0.1:0"
	provider, err := tracing.NewProvider(tracing.DefaultConfig(), events)
	if err != nil {
		return nil, handles{}, err
	}
	app, h := newApp(events, opts...)
	log := warnings()
	server, err := serving.New(cfg, []*serving.App{app}, serving.WithTracing(provider), serving.WithLogger(log))
	if err != nil {
		return nil, h, err
	}
	return server, h, server.Start(context.Background())
}

// runChild serves until SIGTERM.
func runChild() error {
	term, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	events := &printer{to: os.Stdout}
	cfg, err := host.ConfigFromEnv(os.Getenv)
	if err != nil {
		return err
	}
	if len(cfg.Plugins) > 0 {
		if events.host, err = host.New(cfg, host.WithLogger(warnings())); err != nil {
			return err
		}
		if err := events.host.Start(context.Background()); err != nil {
			return err
		}
	}
	server, _, err := newServer(os.Getenv, events)
	if err != nil {
		return err
	}
	e := event{Kind: "ready", HTTP: server.Addr().String()}
	if addr := server.CallAddr(); addr != nil {
		e.Calls = addr.String()
	}
	events.print(e)
	<-term.Done()
	ctx, cancel := context.WithTimeout(context.Background(), servingtest.Patience)
	defer cancel()
	return errors.Join(server.Shutdown(ctx), events.account(ctx))
}

// process is a process of the app.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	ready event
	ended chan struct{} // closed when it has ended, and all its events are read

	mu     sync.Mutex
	events []event
	more   chan struct{} // closed and replaced at each event
}

// start starts a process with variables, and waits until it is ready.
func start(t testing.TB, environ ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{}), more: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0]) //nolint:gosec // itself
	p.cmd.Env = append(os.Environ(), append(environ, envChild+"=1")...)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.cmd.StdinPipe(); err != nil { // Wait closes it
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(p.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				p.add(e)
			}
		}
		_ = p.cmd.Wait() // a killed process is no fault
	}()
	t.Cleanup(p.kill)
	p.ready = p.await("ready", "")
	return p
}

// callee starts a process that takes calls of Model and Ranker at addr.
func callee(t testing.TB, addr string, environ ...string) *process {
	t.Helper()
	return start(t, append([]string{"SERVE_DEPLOYMENTS=Model,Ranker", "SERVE_CALL_ADDR=" + addr}, environ...)...)
}

func (p *process) add(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	close(p.more)
	p.more = make(chan struct{})
}

// all returns the events of a kind, and a channel that is closed at the next event.
func (p *process) all(kind string) (list []event, more <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if e.Kind == kind {
			list = append(list, e)
		}
	}
	return list, p.more
}

// await waits for an event of the kind with the id, or with any id if it is empty.
func (p *process) await(kind, id string) event {
	p.t.Helper()
	late := time.After(servingtest.Patience)
	for {
		list, more := p.all(kind)
		for _, e := range list {
			if id == "" || e.ID == id {
				return e
			}
		}
		select {
		case <-more:
		case <-p.ended:
			if again, _ := p.all(kind); len(again) == len(list) {
				p.t.Fatalf("the process ended without the event %s %s", kind, id)
			}
		case <-late:
			p.t.Fatalf("waited in vain for the event %s %s", kind, id)
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("%v: %v", s, err)
	}
}

// kill ends the process at once, if it runs.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// stop ends the process in the ordinary way, unless it has ended. All its events are read
// then.
func (p *process) stop() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(servingtest.Patience):
		p.t.Error("the process does not stop")
	}
}

// caller returns handles of a server in this process that calls the addresses.
func caller(t testing.TB, addrs []string, opts ...serving.DeploymentOption) (*serving.Server, handles) {
	t.Helper()
	server, h, err := newServer(func(name string) string {
		if name == serving.EnvRemote {
			return "Model=static:///" + strings.Join(addrs, ",")
		}
		return ""
	}, &printer{to: io.Discard}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), servingtest.Patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return server, h
}

// addrs returns the addresses of processes.
func addrs(ps ...*process) (list []string) {
	for _, p := range ps {
		list = append(list, p.ready.Calls)
	}
	return list
}

// warnings is a log of what a test should not see.
func warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
