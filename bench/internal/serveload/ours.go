package serveload

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

// pluginName is the name of the plugin in our server.
const pluginName = "spans"

// startOurs serves an application with servetrace.Run and the settings of the
// environment, like a user's program.
func startOurs(ctx context.Context, addr, app string) (*server, error) {
	a, err := ourApp(app)
	if err != nil {
		return nil, err
	}
	cfg, err := servetrace.LoadConfig()
	if err != nil {
		return nil, err
	}
	cfg.Serving.HTTPAddr = addr
	if app == appEcho {
		// The HTTP listener is always on.
		cfg.Serving.HTTPAddr, cfg.Serving.GRPC.Addr = "127.0.0.1:0", addr
	}
	log := &attributes{Handler: slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel}), values: map[string]slog.Value{}}
	ctx, cancel := context.WithCancel(ctx)
	up := make(chan net.Addr, 1)
	ended := make(chan error, 1)
	go func() { // ends by stop
		ended <- servetrace.Run(ctx, cfg, []*serving.App{a}, servetrace.WithLogger(slog.New(log)),
			servetrace.WithReady(func(addr net.Addr) { up <- addr }))
	}()
	s := &server{stop: func() (account, error) {
		cancel()
		err := <-ended
		return account{Ended: log.count("spans"), Delivered: log.count(pluginName + ".delivered")}, err
	}}
	select {
	case at := <-up:
		s.addr = at.String()
		if app == appEcho {
			s.addr = log.value("grpc").String()
		}
		return s, nil
	case err := <-ended:
		cancel()
		return nil, err
	}
}

// attributes keeps the log attributes with the addresses of the server and, after its
// stop, with the span account.
type attributes struct {
	slog.Handler
	mu     sync.Mutex
	values map[string]slog.Value
}

// Handle implements [slog.Handler].
func (l *attributes) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case "serving", "stopped", "stopped; spans were lost":
		l.mu.Lock()
		defer l.mu.Unlock()
		r.Attrs(func(a slog.Attr) bool {
			l.values[a.Key] = a.Value
			return true
		})
	}
	return l.Handler.Handle(ctx, r)
}

func (l *attributes) value(name string) slog.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.values[name]
}

// count returns an attribute that is a count. It is zero with tracing off.
func (l *attributes) count(name string) uint64 {
	n, _ := l.value(name).Any().(uint64)
	return n
}
