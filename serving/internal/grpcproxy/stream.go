package grpcproxy

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// callStream is the [grpc.ServerStream] that the handler of one call sees, over
// grpc's stream.
//
// The proxy can take the call from a handler that still runs. From then on the handler's
// Send and Recv fail, and operations under way end with grpc's stream, which ends when
// the proxy returns the status. Functions with the handler's context, such as
// grpc.SetTrailer, use grpc's stream itself. After the proxy has taken the call, grpc's
// stream refuses them.
type callStream struct {
	stream  grpc.ServerStream // grpc's own stream
	info    *grpc.StreamServerInfo
	stall   time.Duration // time for which the client may delay one message; no limit if not positive
	arrived time.Time
	call    context.Context         // context of the call, see beginCall
	endCall context.CancelCauseFunc // ends call

	cancel context.CancelFunc // cancels the deadline of call; nil without a deadline
	forget func() bool        // stops waiting for the end of grpc's stream

	user     context.Context // the context that the handler sees; set before the handler runs
	received bool            // the handler has received the message of a call without a client stream

	// passing is held for reading while grpc passes a message.
	passing sync.RWMutex

	mu       sync.Mutex
	returned bool  // the handler has returned
	taken    error // reason for which the proxy took the call from the handler; nil if the handler still has the call
	refused  error // a *messageError if grpc has ended the stream with its status
}

var _ grpc.ServerStream = (*callStream)(nil)

// messageError ends a call because a message cannot be passed on, for example because
// it is too large or cannot be decoded.
type messageError struct{ status error }

func (e *messageError) Error() string { return e.status.Error() }
func (e *messageError) Unwrap() error { return e.status }

// beginCall makes the context of the call, which ends with a cause. The context of grpc's
// stream ends without a cause. The new context ends with the stream, by endCall, at the
// client's deadline, or after timeout if that is sooner. The caller must call
// releaseContext when the call is over.
func (s *callStream) beginCall(timeout time.Duration) {
	client := s.stream.Context()
	s.call, s.endCall = context.WithCancelCause(context.WithoutCancel(client))
	if deadline, why := sooner(client, timeout); why != nil {
		s.call, s.cancel = context.WithDeadlineCause(s.call, deadline, why)
	}
	s.forget = context.AfterFunc(client, s.clientEnded)
}

// releaseContext frees the context of a call that has ended.
func (s *callStream) releaseContext() {
	s.forget()
	if s.cancel != nil {
		s.cancel()
	}
	s.endCall(nil)
}

// sooner returns the deadline of a call, and the cause for its end at the deadline. Without
// a deadline the cause is nil.
func sooner(client context.Context, timeout time.Duration) (deadline time.Time, why error) {
	if at, limited := client.Deadline(); limited {
		deadline, why = at, cause.ErrClientDeadline
	}
	if timeout <= 0 {
		return deadline, why
	}
	if at := time.Now().Add(timeout); why == nil || at.Before(deadline) {
		deadline, why = at, cause.ErrRequestTimeout
	}
	return deadline, why
}

// clientEnded ends the call because grpc's stream has ended. When a message cannot pass,
// grpc ends the stream before the operation returns, so clientEnded waits for the
// operations under way, which return now.
//
// The timer of a client starts before the timer here, so at the deadline the client's
// reset mostly comes first. If a client resets the stream shortly before its deadline,
// the deadline counts as passed.
func (s *callStream) clientEnded() {
	s.passing.Lock()
	defer s.passing.Unlock()
	deadline, limited := s.stream.Context().Deadline()
	left := time.Until(deadline)
	early := min(max(deadline.Sub(s.arrived)/8, 10*time.Millisecond), time.Second)
	switch refused := s.refusal(); {
	case refused != nil:
		s.endCall(refused)
	case limited && left <= 0:
		// At the deadline grpc may cancel the stream before the timer of its context
		// fires. Our timer fires too, and its cause is DeadlineExceeded.
		<-s.call.Done()
	case limited && left < early:
		s.endCall(cause.ErrClientDeadline)
	default:
		s.endCall(cause.ErrClientGone)
	}
}

// takeCall takes the call away from its handler. From then on, the handler's operations
// fail with why. It returns false if the handler has returned.
func (s *callStream) takeCall(why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.returned {
		return false
	}
	s.taken = why
	return true
}

// completeCall records that the handler has returned. It returns the reason for the end of
// the call, or nil if the handler's result counts. The end of a context has priority
// over a message that cannot be passed on.
func (s *callStream) completeCall() error {
	if s.stream.Context().Err() != nil {
		s.clientEnded() // the handler may have seen the end first
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken != nil {
		return s.taken
	}
	s.returned = true
	if why := context.Cause(s.call); why != nil {
		return why
	}
	return s.refused
}

func (s *callStream) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// open returns the error for operations after the call was taken from the handler, or
// nil.
func (s *callStream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.taken != nil:
		return status.Error(cancelCode(s.taken), s.taken.Error())
	case s.returned:
		return status.Error(codes.Internal, "the handler of this call has returned")
	}
	return nil
}

func cancelCode(why error) codes.Code {
	switch {
	case errors.Is(why, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(why, cause.ErrShuttingDown):
		return codes.Unavailable
	}
	return codes.Canceled
}

// pass passes a message by f. If limited, the client must not delay it for longer than
// the stall limit.
func (s *callStream) pass(limited bool, f func(m any) error, m any) error {
	if err := s.open(); err != nil {
		return err
	}
	if limited && s.stall > 0 {
		defer time.AfterFunc(s.stall, func() { s.endCall(cause.ErrClientStalled) }).Stop()
	}
	s.passing.RLock()
	defer s.passing.RUnlock()
	err := f(m)
	if err == nil || errors.Is(err, io.EOF) || s.isEnd(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		s.refused = &messageError{err}
	}
	return err
}

// isEnd reports whether err is grpc's error for a stream that has ended, and then waits
// for the end of the stream's context. grpc marks a stream as done a moment before: a
// handler that returned err in that moment would seem to have answered itself.
func (s *callStream) isEnd(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		<-s.stream.Context().Done()
		return true
	}
	return false
}

// Context implements [grpc.ServerStream].
func (s *callStream) Context() context.Context { return s.user }

// SetHeader implements [grpc.ServerStream].
func (s *callStream) SetHeader(md metadata.MD) error {
	if err := s.open(); err != nil {
		return err
	}
	return s.stream.SetHeader(md)
}

// SendHeader implements [grpc.ServerStream].
func (s *callStream) SendHeader(md metadata.MD) error {
	if err := s.open(); err != nil {
		return err
	}
	err := s.stream.SendHeader(md)
	_ = s.isEnd(err) // the handler may ignore err
	return err
}

// SetTrailer implements [grpc.ServerStream].
func (s *callStream) SetTrailer(md metadata.MD) {
	if s.open() == nil {
		s.stream.SetTrailer(md)
	}
}

// SendMsg implements [grpc.ServerStream].
func (s *callStream) SendMsg(m any) error { return s.pass(true, s.stream.SendMsg, m) }

// RecvMsg implements [grpc.ServerStream]. A stream of the client may pause without a
// limit.
func (s *callStream) RecvMsg(m any) error {
	if s.info.IsClientStream {
		return s.pass(false, s.stream.RecvMsg, m)
	}
	return s.pass(true, s.receiveOne, m)
}

// receiveOne receives the message of a unary call. To grpc every call is a stream,
// because grpc knows none of the apps' methods.
func (s *callStream) receiveOne(m any) error {
	err := s.stream.RecvMsg(m)
	switch {
	case s.received:
		return err
	case errors.Is(err, io.EOF):
		return status.Error(codes.Internal, "the call came without a message, and its method takes one")
	case err != nil:
		return err
	}
	s.received = true
	switch err := s.stream.RecvMsg(m); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return status.Error(codes.Internal, "the call came with several messages, and its method takes one")
}
