package serving

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/servetrace/servetrace/serving/internal/inflight"
)

// Shutdown drains the server and stops it:
//
//  1. /-/healthz and /-/routes return 503 with a reason, and a connection is closed after
//     its next response, so that load balancers use other servers. For
//     [Config.MinDrainingPeriod] new requests are still served.
//  2. New requests get 503. Running requests finish, and so do requests that wait for a
//     replica. Shutdown waits for every handler, even if its client already has the response.
//  3. If ctx ends first, the contexts of the requests end with [ErrShuttingDown], and their
//     clients get 503 or a cut response.
//  4. The replicas stop. Batching and multiplexing release their resources, and the values of
//     [PerReplica] are stopped. If user code has not returned soon after the end of ctx,
//     Shutdown no longer waits for it, and the error names it.
//  5. The listeners and the connections are closed. A client that has not yet sent its whole
//     body, or not yet read its whole response, has one second to do so.
//
// The error is nil if no request was cut off and all user code has returned. Otherwise it
// has the number of requests that were cut off and the names of the code that still runs,
// and wraps the cause of ctx. Later calls wait for the first call and return its error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() { s.stopErr = s.shutdown(ctx) })
	return s.stopErr
}

func (s *Server) shutdown(ctx context.Context) error {
	s.shared.Counter.Leave()
	s.Addr() // waits for a Start that runs; a later Start fails
	if s.grpc != nil {
		s.grpc.Leave()
	}
	s.calls.leave()
	s.linger(ctx)
	s.shared.Counter.Drain()
	s.http.Drain()
	if s.grpc != nil {
		s.grpc.Drain()
	}
	cutOff := 0
	select {
	case <-s.shared.Counter.Idle():
	case <-ctx.Done():
		cutOff, _ = s.shared.Counter.Counts()
		s.cut(ErrShuttingDown)
		s.settle()
	}
	notEnded := s.deployments.stop(ctx)
	s.http.Stop(ctx)
	if s.grpc != nil {
		s.grpc.Stop(ctx)
	}
	s.calls.stop(ctx)
	s.shared.Workers.Close()
	s.cut(ErrShuttingDown)
	if _, running := s.shared.Counter.Counts(); cutOff > 0 || running > 0 {
		return errors.Join(fmt.Errorf("drain: %d requests cut off, %d handlers still running: %w",
			cutOff, running, context.Cause(ctx)), notEnded)
	}
	return notEnded
}

// linger waits for MinDrainingPeriod, in which the server takes new requests although its
// health checks fail. Load balancers check only every few seconds, and send requests until
// they notice.
func (s *Server) linger(ctx context.Context) {
	if s.cfg.MinDrainingPeriod <= 0 || s.Addr() == nil {
		return
	}
	timer := time.NewTimer(s.cfg.MinDrainingPeriod)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.over.Done(): // the listener has failed, so no request comes
	}
}

// settle waits until all requests have ended, at most for CloseGrace. Their contexts have
// ended, so well-behaved handlers return soon.
func (s *Server) settle() {
	timer := time.NewTimer(inflight.CloseGrace)
	defer timer.Stop()
	select {
	case <-s.shared.Counter.Idle():
	case <-timer.C:
	}
}
