// Package callserver takes calls by handle from other processes, and has replicas in this
// process run them.
//
// The life of a call:
//
//  1. The caller sends the start of the call on a stream of Calls/Call.
//  2. Deployment.Accept reserves a slot of a replica, or the call is refused. A call never
//     waits in this process. It waits in the queue of the caller's process.
//  3. The caller gets the answer that the call is accepted, and sends the argument. The
//     replica runs the function. Its span is a child of the caller's router span.
//  4. The results or the error are sent to the caller. Then the stream can carry another
//     call.
//
// The life of a [Server]: New, Start, Leave and Stop.
//
// The package does not know the types of arguments and results: a [Function] decodes and
// encodes them. Package callclient is the caller's side. Open server.go first, then call.go.
package callserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	servev1 "github.com/servetrace/servetrace/internal/gen/servetrace/serve/v1"
	"github.com/servetrace/servetrace/serving/internal/callwire"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// Config describes a server.
type Config struct {
	Shared      *router.Shared
	Deployments []*router.Deployment // the deployments that this process runs
	Functions   map[Key]Function
	Failed      func(error) // called if the listener fails
	Settings    Settings
}

// Settings are the operator's settings. No field is zero, except Credentials.
type Settings struct {
	MaxMessageBytes int // largest size of a message, in both directions
	MaxStreams      int // largest number of streams of calls on a connection
	// Credentials are the credentials for TLS. If they are nil, connections have no TLS.
	Credentials credentials.TransportCredentials
}

// Key identifies a function. An empty Method means __call__.
type Key struct{ App, Deployment, Method string }

// Function is a function of a deployment that other processes may call.
type Function struct {
	Deployment *router.Deployment
	Codec      string           // name of the codec of the argument and the results
	Streaming  bool             // the function returns a stream of results
	Errors     *callwire.Errors // encodes and decodes errors
	// Serve receives the argument of a call, runs or abandons the assignment, and sends the
	// results. It returns the error of the call, which is sent to the caller.
	Serve func(a *router.Assignment, x *Exchange) error
}

// Server takes calls from other processes. Its methods are safe for concurrent use.
type Server struct {
	servev1.UnimplementedCallsServer

	cfg     Config
	watched map[Key]*router.Deployment // the deployments of Config, by keys without a method
	grpc    *grpc.Server
	serving sync.WaitGroup

	leaving  context.Context    // ends when Leave is called
	leave    context.CancelFunc // ends leaving
	over     context.Context    // ends when Stop is called
	finish   context.CancelFunc // ends over
	listener net.Listener       // nil until Start
}

// keepaliveMinTime is the shortest time that is allowed between two pings of a caller. It is
// less than callwire.KeepaliveTime, so that late or early pings are no fault.
const keepaliveMinTime = 5 * time.Second

// maxHeaderBytes is the largest size of a stream's metadata. Calls need no metadata, so the
// bound is small.
const maxHeaderBytes = 64 << 10

// connectionTimeout bounds the time of a connection's handshakes, of TLS and HTTP/2.
const connectionTimeout = 10 * time.Second

// New returns a server that does not listen yet.
func New(c Config) *Server {
	s := &Server{cfg: c, watched: map[Key]*router.Deployment{}}
	s.leaving, s.leave = context.WithCancel(context.Background())
	s.over, s.finish = context.WithCancel(context.Background())
	for _, d := range c.Deployments {
		s.watched[Key{App: d.App, Deployment: d.Name}] = d
	}
	creds := c.Settings.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	s.grpc = grpc.NewServer(
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(c.Settings.MaxMessageBytes),
		grpc.MaxSendMsgSize(c.Settings.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(min(c.Settings.MaxStreams+len(s.watched), math.MaxInt32))), // watches are streams, too
		grpc.StaticStreamWindowSize(callwire.WindowBytes),
		grpc.StaticConnWindowSize(callwire.WindowBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(connectionTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: callwire.KeepaliveTime, Timeout: callwire.KeepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMinTime, PermitWithoutStream: true}),
	)
	servev1.RegisterCallsServer(s.grpc, s)
	return s
}

// Start serves the connections of l in the background.
func (s *Server) Start(l net.Listener) {
	s.listener = l
	s.serving.Go(func() {
		if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
			s.cfg.Failed(fmt.Errorf("serve calls on %s: %w", l.Addr(), err))
		}
	})
}

// Addr returns the listener's address, or nil before Start.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Leave reports to the callers that this process is about to stop, so that they send their
// calls to other processes. Calls are accepted until the server's counter drains.
func (s *Server) Leave() { s.leave() }

// finishGrace bounds the time in which grpc sends the last results.
const finishGrace = time.Second

// Stop closes the listener and the connections. Call it when all calls have ended, or when
// ctx has ended. It waits for the last results for at most finishGrace, or CloseGrace if ctx
// has ended.
func (s *Server) Stop(ctx context.Context) {
	s.Leave()
	s.finish()
	grace := finishGrace
	if ctx.Err() != nil {
		grace = inflight.CloseGrace
	}
	timer := time.AfterFunc(grace, s.grpc.Stop)
	s.grpc.GracefulStop()
	timer.Stop()
	s.grpc.Stop()
	s.serving.Wait()
}
