package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"

	"github.com/servetrace/servetrace/host"
)

// Server takes requests of OTLP and passes them to a Host. Its methods are safe for
// concurrent use.
type Server struct {
	service *service
	grpc    grpcService
	conns   *connections

	fronts    []front // written by Start
	serving   sync.WaitGroup
	stop      context.CancelFunc // ends the context grpc.stopped
	drainOnce sync.Once
	drained   chan struct{} // closed after Shutdown, when all connections are closed

	ended context.Context // ends when the Server should be shut down; its cause is an *ending
	end   context.CancelCauseFunc
}

// ending is the reason for which a Server should be shut down, as the cause of a context.
type ending struct {
	reason string
	err    error // error of a listener; nil if none has failed
}

// Error returns the reason.
func (e *ending) Error() string { return e.reason }

// front is a listener with its gRPC or HTTP server.
type front struct {
	protocol string // "grpc" or "http"
	secure   bool   // the listener has TLS
	listener net.Listener
	serve    func(net.Listener) error
	drain    func() // closes the listener and blocks until each request is answered
	cut      func() // closes the connections, also with unanswered requests
}

// Listener describes an address at which a Server takes requests.
type Listener struct {
	// Protocol is "grpc" or "http". Endpoint is the address in the form of
	// OTEL_EXPORTER_OTLP_ENDPOINT: "unix:///path", or a URL with the real port.
	Protocol, Endpoint string
}

// New returns a Server that is not started. If requests arrive before the Host is started,
// their spans wait in its queue. New returns the error of cfg.Validate, or an error if the
// token cannot be read.
func New(cfg Config, h *host.Host, log *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("relay settings: %w", err)
	}
	cfg = cfg.withDefaults()
	readToken, err := cfg.readToken(log)
	if err != nil {
		return nil, fmt.Errorf("relay settings: %w", err)
	}
	s := &Server{
		service: &service{cfg: cfg, host: h, instance: h.Stats().Instance, log: log, counts: newCounts(), decoder: newDecoder(cfg.MaxRequestBytes), token: readToken},
		drained: make(chan struct{}),
	}
	s.ended, s.end = context.WithCancelCause(context.Background())
	stopped, stop := context.WithCancel(context.Background())
	s.grpc, s.stop = newGRPCService(s.service, stopped), stop
	s.conns = newConnections(cfg, s.unused, log)
	return s, nil
}

// Start listens, and accepts requests in the background. It blocks while host names are
// looked up, until ctx ends or two seconds have passed. It returns a RunningError if
// another relay listens at the socket, and another error if an address is not available.
// It must be called once.
func (s *Server) Start(ctx context.Context) error {
	if err := s.listen(ctx); err != nil {
		for _, f := range s.fronts {
			_ = f.listener.Close() // an error has no effect, because no request has arrived
		}
		return err
	}
	for _, f := range s.fronts {
		s.serving.Go(func() { // ends with Shutdown
			if err := f.serve(listener{f.listener, s.conns, f.protocol}); !s.service.stopping.Load() {
				s.end(&ending{"a listener failed", fmt.Errorf("serve %s at %s: %w", f.protocol, f.listener.Addr(), err)})
			}
		})
	}
	s.conns.startTimer()
	return nil
}

// listen opens the listeners of the settings.
func (s *Server) listen(ctx context.Context) error {
	cfg := s.service.cfg
	type place struct {
		addr, variable string
		front          func(net.Listener, *tls.Config) front
		protocols      []string
	}
	for _, p := range []place{
		{unixPrefix + cfg.Socket, EnvSocket, s.grpc.front, nil},
		{cfg.GRPCAddr, EnvGRPC, s.grpc.front, []string{"h2"}},
		{cfg.HTTPAddr, EnvHTTP, httpService{s.service}.front, []string{"h2", "http/1.1"}},
	} {
		path, local := strings.CutPrefix(p.addr, unixPrefix)
		if path == "" {
			continue
		}
		var secure *tls.Config
		var l net.Listener
		var err error
		if local {
			l, err = listenUnix(path)
		} else if secure, err = cfg.tlsConfig(s.service.log, p.protocols); err == nil {
			l, err = listenTCP(ctx, p.addr, p.variable)
		}
		if err != nil {
			return err
		}
		s.fronts = append(s.fronts, p.front(l, secure))
		if !local {
			s.warnOfOpen(p.addr)
		}
	}
	return nil
}

// warnOfOpen logs a warning if programs on other machines can reach the address, but there is no
// encryption or no authentication.
func (s *Server) warnOfOpen(addr string) {
	var missing []string
	cfg := s.service.cfg
	if cfg.TLSCert == "" {
		missing = append(missing, "encryption ("+EnvTLSCert+")")
	}
	if s.service.token == nil && cfg.TLSClientCA == "" {
		missing = append(missing, "authentication ("+EnvTokenFile+" or "+EnvTLSClientCA+")")
	}
	if !isLoopback(addr) && len(missing) > 0 {
		s.service.log.Warn("THE RELAY IS OPEN to other machines; it lacks "+strings.Join(missing, " and "), "address", addr)
	}
}

// Listeners returns the addresses of a Server that was started.
func (s *Server) Listeners() []Listener {
	var list []Listener
	for _, f := range s.fronts {
		addr := f.listener.Addr()
		scheme := "http://"
		switch {
		case addr.Network() == "unix":
			scheme = unixPrefix
		case f.secure:
			scheme = "https://"
		}
		list = append(list, Listener{f.protocol, scheme + addr.String()})
	}
	return list
}

// Done returns a channel that is closed when the Server should be shut down: no connection
// was open for Config.Linger, or a listener failed.
func (s *Server) Done() <-chan struct{} { return s.ended.Done() }

// Err returns the reason after Done is closed, and the error of a listener that has failed.
func (s *Server) Err() (reason string, err error) {
	if e, ended := errors.AsType[*ending](context.Cause(s.ended)); ended {
		return e.reason, e.err
	}
	return "", nil
}

// unused is called when no connection was open for Config.Linger. It ends the Server. If spans
// still wait for a plugin, it measures the time again instead. Spans wait at most for
// host.Config.MaxAge.
func (s *Server) unused() {
	for _, x := range s.service.host.Stats().Plugins() {
		if x.Waiting > 0 {
			s.conns.startTimer()
			return
		}
	}
	if s.conns.isEmpty() {
		s.end(&ending{reason: fmt.Sprintf("no connection for %v", s.service.cfg.Linger)})
	}
}

// Shutdown closes the listeners and removes the sockets, so that another relay can start.
// Further requests get UNAVAILABLE. It blocks until each request is answered. If ctx ends
// first, it returns an error with the cause. Shut the Host down next, because the Host
// answers the requests that wait for their delivery. Then call Close.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drainOnce.Do(func() {
		s.service.stopping.Store(true)
		s.stop()
		s.conns.stop()
		s.grpc.health.Shutdown()
		for _, f := range s.fronts {
			s.serving.Go(f.drain)
		}
		go func() { // ends when the last connection is closed, at the latest by Close
			s.serving.Wait()
			close(s.drained)
		}()
	})
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("requests are not answered yet"), context.Cause(ctx))
	}
}

// Close calls Shutdown, and then closes the remaining connections.
func (s *Server) Close(ctx context.Context) error {
	err := s.Shutdown(ctx)
	for _, f := range s.fronts {
		f.cut()
	}
	<-s.drained
	return err
}
