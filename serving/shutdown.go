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
//  1. /-/healthz and /-/routes turn 503 with a reason, and connections are closed
//     after their response, so that load balancers go elsewhere. For
//     [Config.MinDrainingPeriod] new requests are still served.
//  2. New requests get 503. Requests in flight finish, also requests that wait for a
//     replica. Shutdown waits for every handler, even if its client has a response
//     already.
//  3. If ctx ends first, the contexts of the requests end with
//     [ErrShuttingDown], and their clients get 503 or a cut stream.
//  4. The replicas stop: batching and multiplexing release their resources,
//     and the values of [PerReplica] are stopped. Code that has not returned soon
//     after ctx ended is named in the error, and left behind.
//  5. Listener and connections are closed. A client that still has to send the rest of a
//     body, or to read the end of a response, has one second for it.
//
// The error is nil if no request was cut off, and every handler and every replica's own
// code returned. Otherwise it counts the requests that were cut off and names the code
// that still runs, and wraps ctx's cause. Later calls wait for the first and return its
// error.
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
	notEnded := s.all.stop(ctx)
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

// linger accepts requests for some time although the health checks fail. Load balancers
// check only every few seconds, and send requests until then.
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

// settle waits at most CloseGrace for the proxies, and for handlers that return when
// their context ends.
func (s *Server) settle() {
	timer := time.NewTimer(inflight.CloseGrace)
	defer timer.Stop()
	select {
	case <-s.shared.Counter.Idle():
	case <-timer.C:
	}
}
