package serving

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Shutdown drains the server and stops it:
//
//  1. /-/healthz and /-/routes turn 503 with a reason, and connections are closed
//     after their response, so that load balancers go elsewhere. For
//     [Config.MinDrainingPeriod] new requests are still served.
//  2. New requests get 503. Requests in flight, those that wait for a replica
//     included, finish. It waits for every handler, also one whose client was
//     answered long ago.
//  3. If ctx ends first, the contexts of the requests end with
//     [ErrShuttingDown], and their clients get 503 or a cut stream.
//  4. The replicas stop: what batching and multiplexing hold in them is let go,
//     and the values of [PerReplica] are stopped. What has not returned soon
//     after ctx ended is named in the error, and left behind.
//  5. Listener and connections are closed. A client that still owes the rest of
//     a body, or is slow to read the end of a response, has a second for it.
//
// The error is nil if every handler and every replica's own code returned; else
// it says what was cut off and what still runs, and wraps ctx's cause. Later
// calls wait for the first and return what it did.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() { s.stopErr = s.shutdown(ctx) })
	return s.stopErr
}

// closeGrace bounds what follows once ctx has ended: the proxies answer and
// conclude their spans, which takes them microseconds unless a client is slow
// to read. It is longer than cutGrace, which they may use up.
const closeGrace = 2 * cutGrace

func (s *Server) shutdown(ctx context.Context) error {
	s.work.leave()
	s.Addr() // Start is through with it, or will refuse
	if s.grpc != nil {
		s.grpc.leave()
	}
	s.linger(ctx)
	s.work.drain()
	// Only now: it closes idle connections, also one whose request net/http has
	// just read. Nobody serves that any more.
	s.http.SetKeepAlivesEnabled(false)
	if s.grpc != nil {
		s.grpc.drain()
	}
	cutOff := 0
	select {
	case <-s.work.idle:
	case <-ctx.Done():
		cutOff, _ = s.work.counts()
		s.cut(ErrShuttingDown)
		s.settle()
	}
	notEnded := s.all.stop(ctx)
	s.http.stop(ctx, s.Addr() != nil)
	if s.grpc != nil {
		s.grpc.stop(ctx)
	}
	s.workers.close()
	s.cut(ErrShuttingDown)
	if _, running := s.work.counts(); cutOff > 0 || running > 0 {
		return errors.Join(fmt.Errorf("drain: %d requests cut off, %d handlers still running: %w",
			cutOff, running, context.Cause(ctx)), notEnded)
	}
	return notEnded
}

// linger takes requests for a while though health says that it is over: those who
// balance load look at it every few seconds, and send requests until they have.
func (s *Server) linger(ctx context.Context) {
	if s.cfg.MinDrainingPeriod <= 0 || s.Addr() == nil {
		return
	}
	timer := time.NewTimer(s.cfg.MinDrainingPeriod)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.over.done: // the listener has failed: no request comes any more
	}
}

// settle waits for the proxies, and for handlers that heed their context.
func (s *Server) settle() {
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-s.work.idle:
	case <-timer.C:
	}
}
