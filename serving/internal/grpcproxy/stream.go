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

// callStream is the [grpc.ServerStream] that the handler of one call sees. It passes
// messages to grpc's own stream.
//
// The proxy can take the call from a handler that still runs. From then on the handler's
// sends and receives fail. Operations that are under way end when the proxy returns the
// status, because that ends grpc's stream. Functions such as grpc.SetTrailer take grpc's
// stream from the handler's context. They fail when grpc's stream has ended.
type callStream struct {
	stream  grpc.ServerStream // grpc's own stream
	info    *grpc.StreamServerInfo
	stall   time.Duration           // longest time for which the client may delay one message; no limit if not positive
	arrived time.Time               // time at which the proxy got the call
	call    context.Context         // context of the call, made by beginCall
	endCall context.CancelCauseFunc // ends the context call

	user     context.Context // the context that the handler sees; set before the handler runs
	received bool            // receiveOne has received the only message of the client

	// passing is held for reading while grpc sends or receives a message.
	passing sync.RWMutex

	mu       sync.Mutex
	returned bool  // the handler has returned
	taken    error // reason for which the proxy took the call from the handler; nil before takeCall
	refused  error // a *messageError if grpc failed to send or receive a message; nil otherwise
}

var _ grpc.ServerStream = (*callStream)(nil)

// messageError is the error of a call that ended because a message could not be sent or
// received, for example because it is too large or cannot be decoded.
type messageError struct{ status error }

func (e *messageError) Error() string { return e.status.Error() }
func (e *messageError) Unwrap() error { return e.status }

// beginCall makes the context of the call. It ends with a cause, unlike the context of
// grpc's stream: when grpc's stream ends, by endCall, at the client's deadline, or after
// timeout if it is positive. The caller must call release when the call is over.
func (s *callStream) beginCall(timeout time.Duration) (release func()) {
	client, cancel := s.stream.Context(), func() {}
	s.call, s.endCall = context.WithCancelCause(context.WithoutCancel(client))
	if deadline, why := sooner(client, timeout); why != nil {
		s.call, cancel = context.WithDeadlineCause(s.call, deadline, why)
	}
	forget := context.AfterFunc(client, s.clientEnded)
	return func() {
		forget()
		cancel()
		s.endCall(nil)
	}
}

// sooner returns the earlier of two deadlines of a call: the deadline of the client, and the
// end of timeout from now if timeout is positive. why is the cause for the end of the call
// at the deadline, nil if there is no deadline.
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

// clientEnded ends the call because grpc's stream has ended, with the reason as the cause.
// grpc also ends the stream if it cannot send or receive a message, before it returns the
// error. So clientEnded waits for the operations that are under way, which set refused.
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
		// At the deadline grpc may cancel the stream before the timer of the context
		// s.call fires. That timer fires now, and sets ErrClientDeadline as the cause.
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
// the call, or nil if the handler's result counts. If the context of the call has ended,
// its cause has priority over a messageError.
func (s *callStream) completeCall() error {
	if s.stream.Context().Err() != nil {
		s.clientEnded() // its AfterFunc may not have run yet, although the handler has seen the end
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

// open returns nil if the handler may use the stream, and otherwise the error for its
// operation.
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

// pass sends or receives the message m by f. If limited is true, the call ends if f takes
// longer than the stall limit.
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

// isEnd reports whether err is grpc's error for a stream that has ended. If so, it waits for
// the end of the stream's context, which comes a moment later. Without the wait, a handler
// that returns err in that moment would seem to have answered the call itself.
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
	_ = s.isEnd(err) // waits until the context has ended, too, if the stream has ended
	return err
}

// SetTrailer implements [grpc.ServerStream].
func (s *callStream) SetTrailer(md metadata.MD) {
	if s.open() == nil {
		s.stream.SetTrailer(md)
	}
}

// SendMsg implements [grpc.ServerStream]. The stall limit bounds its wait for the client.
// grpc waits only while unsent bytes of earlier messages fill its buffer. So the limit does
// not bound the only message of a unary call.
func (s *callStream) SendMsg(m any) error { return s.pass(true, s.stream.SendMsg, m) }

// RecvMsg implements [grpc.ServerStream]. A client that sends a stream may pause between
// messages without a limit.
func (s *callStream) RecvMsg(m any) error {
	if s.info.IsClientStream {
		return s.pass(false, s.stream.RecvMsg, m)
	}
	return s.pass(true, s.receiveOne, m)
}

// receiveOne receives the message of a client that sends exactly one, and checks that no
// second message follows. grpc does not check that, because it handles all calls of apps
// as streams.
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
