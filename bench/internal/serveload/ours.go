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

// pluginName is the entry of the plugin in a server of ours.
const pluginName = "spans"

// startOurs serves an application as a user's program would: with the settings of
// the environment, by servetrace.Run.
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
		// HTTP listens in any case.
		cfg.Serving.HTTPAddr, cfg.Serving.GRPC.Addr = "127.0.0.1:0", addr
	}
	log := &watchedLog{Handler: slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel}), said: &said{}}
	ctx, cancel := context.WithCancel(ctx)
	up := make(chan net.Addr, 1)
	ended := make(chan error, 1)
	go func() { // ends by stop
		ended <- servetrace.Run(ctx, cfg, []*serving.App{a}, servetrace.WithLogger(slog.New(log)),
			servetrace.WithReady(func(addr net.Addr) { up <- addr }))
	}()
	s := &server{stop: func() (books, error) {
		cancel()
		err := <-ended
		return log.said.books(), err
	}}
	select {
	case at := <-up:
		s.addr = at.String()
		if app == appEcho {
			s.addr = log.said.text("grpc")
		}
		return s, nil
	case err := <-ended:
		cancel()
		return nil, err
	}
}

// watchedLog remembers what the log says of the server's address, and of its
// books at the end.
type watchedLog struct {
	slog.Handler
	said *said
}

// Handle implements [slog.Handler].
func (l *watchedLog) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case "serving", "stopped", "stopped; spans were lost":
		l.said.add(r)
	}
	return l.Handler.Handle(ctx, r)
}

// said are attributes of lines of the log, by their names.
type said struct {
	mu    sync.Mutex
	attrs map[string]slog.Value
}

func (s *said) add(r slog.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attrs == nil {
		s.attrs = map[string]slog.Value{}
	}
	r.Attrs(func(a slog.Attr) bool {
		s.attrs[a.Key] = a.Value
		return true
	})
}

func (s *said) text(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attrs[name].String()
}

// books are those that the server closes when it stops; zero with tracing off.
func (s *said) books() books {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := func(name string) uint64 {
		if v, ok := s.attrs[name].Any().(uint64); ok {
			return v
		}
		return 0
	}
	return books{Ended: count("spans"), Delivered: count(pluginName + ".delivered")}
}
