package serveload

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"

	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

// pluginName is the name of the plugin in our server.
const pluginName = "spans"

// plenty is more concurrent calls than any load has, so that no limit applies.
const plenty = 1024

// ourApp returns an application for our server. Two replicas give the router a choice.
func ourApp(name string) *serving.App {
	option := []serving.DeploymentOption{serving.WithReplicas(2), serving.WithMaxOngoingRequests(plenty)}
	if name == appHello {
		return serving.NewApp(name, serving.NewDeployment("Hello", http.HandlerFunc(hello), option...))
	}
	d := serving.NewDeployment("Echo", nil, option...)
	testpb.RegisterTestServiceServer(d, echo{})
	return serving.NewApp(name, d)
}

// startOurs serves an application with servetrace.Run and the settings of the
// environment, like a user's program.
func startOurs(ctx context.Context, app string) (*server, error) {
	cfg, err := servetrace.LoadConfig()
	if err != nil {
		return nil, err
	}
	cfg.Serving.HTTPAddr = "127.0.0.1:0" // always on
	if app == appEcho {
		cfg.Serving.GRPC.Addr = "127.0.0.1:0"
	}
	log := &attributes{Handler: slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel}), values: map[string]any{}}
	ctx, cancel := context.WithCancel(ctx)
	up := make(chan net.Addr, 1)
	ended := make(chan error, 1)
	go func() { // ends by stop
		ended <- servetrace.Run(ctx, cfg, []*serving.App{ourApp(app)}, servetrace.WithLogger(slog.New(log)),
			servetrace.WithReady(func(addr net.Addr) { up <- addr }))
	}()
	s := &server{stop: func() (account, error) {
		cancel()
		err := <-ended
		return account{Ended: get[uint64](log, "spans"), Delivered: get[uint64](log, pluginName+".delivered")}, err
	}}
	select {
	case at := <-up:
		s.addr = at.String()
		if app == appEcho {
			s.addr = get[string](log, "grpc")
		}
		return s, nil
	case err := <-ended:
		cancel()
		return nil, err
	}
}

// attributes keeps the log attributes with the addresses of the server and, after its
// stop, with the delivery accounting.
type attributes struct {
	slog.Handler
	mu     sync.Mutex
	values map[string]any
}

// Handle implements [slog.Handler].
func (l *attributes) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case "serving", "stopped", "stopped; spans were lost":
		l.mu.Lock()
		defer l.mu.Unlock()
		r.Attrs(func(a slog.Attr) bool {
			l.values[a.Key] = a.Value.Any()
			return true
		})
	}
	return l.Handler.Handle(ctx, r)
}

// get returns an attribute, and the zero value without it.
func get[T any](l *attributes, name string) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	value, _ := l.values[name].(T)
	return value
}
