package callserver

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	servev1 "github.com/servetrace/servetrace/internal/gen/servetrace/serve/v1"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/callwire"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/requestid"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// Call implements [servev1.CallsServer]. The calls of a stream run on another goroutine.
// Call returns when that goroutine ends, a call has reached its deadline, or the caller has
// left. A Send or Recv that waits for the caller then fails. Call does not wait for user
// code that still runs.
func (s *Server) Call(stream servev1.Calls_CallServer) error {
	ended := make(chan error, 2) // gets at most two errors: of the goroutine, and of a call at its deadline
	go func() {
		err := status.Error(codes.Aborted, cause.ErrGoexit.Error()) // stays if user code ends the goroutine
		defer func() { ended <- err }()
		err = s.calls(stream, ended)
	}()
	select {
	case err := <-ended:
		return err
	case <-stream.Context().Done(): // the caller has left, or the server stops
		return status.FromContextError(stream.Context().Err()).Err()
	}
}

// calls runs the calls of a stream, one after another. If a call reaches its deadline, late
// gets an error.
func (s *Server) calls(stream servev1.Calls_CallServer, late chan<- error) (err error) {
	defer func() {
		if v := recover(); v != nil { // grpc does not recover from panics
			err = status.Error(codes.Internal, s.cfg.Shared.Log.Recovered(stream.Context(), v).Error())
		}
	}()
	for {
		first, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case first.GetStart() == nil:
			return status.Error(codes.InvalidArgument, "the first message of a call has no start")
		}
		if next, err := s.call(stream, first, late); !next {
			return err
		}
	}
}

// call runs the call that begins with first, or refuses it. It reports whether the stream
// can carry another call.
func (s *Server) call(stream servev1.Calls_CallServer, first *servev1.CallRequest, late chan<- error) (next bool, err error) {
	start := first.GetStart()
	f, no := s.admit(start)
	if no != nil {
		return refuse(stream, no)
	}
	defer s.cfg.Shared.Counter.HandlerDone()
	ctx, end := s.contextOf(stream.Context(), start, late)
	defer func() { next = end() && next }() // after the deadline the stream ends
	assigned, err := f.Deployment.Accept(ctx, start.GetModelId())
	if err != nil {
		return refuse(stream, refusalOf(err))
	}
	x := &Exchange{ctx: ctx, stream: stream, first: first, errors: f.Errors}
	return x.run(f, assigned)
}

// admit returns the function of a call, and counts the call, or returns a refusal.
// HandlerDone of the counter must follow an admitted call.
func (s *Server) admit(start *servev1.CallStart) (f Function, no *servev1.Refused) {
	f, fault := s.find(start)
	if fault != "" {
		return f, &servev1.Refused{Reason: servev1.Refused_REASON_UNKNOWN, Text: fault, Unavailable: nil}
	}
	if err := s.cfg.Shared.Counter.AdmitCall(false); err != nil {
		return f, &servev1.Refused{Reason: servev1.Refused_REASON_STOPPING, Text: err.Error(), Unavailable: nil}
	}
	return f, nil
}

// find returns the function of a call, or a text that describes the fault of the call.
func (s *Server) find(start *servev1.CallStart) (f Function, fault string) {
	f, has := s.cfg.Functions[Key{start.GetApp(), start.GetDeployment(), start.GetMethod()}]
	name := cmp.Or(start.GetMethod(), semconv.DefaultCallMethod) +
		" of deployment " + start.GetDeployment() + " of app " + start.GetApp()
	switch {
	case !has:
		return f, "this process does not run " + name
	case f.Codec != start.GetCodec():
		return f, name + " has the codec " + f.Codec + " here, and " + start.GetCodec() + " in the caller"
	case f.Streaming != start.GetStreaming():
		return f, name + " returns a stream in one of the two processes only"
	}
	return f, ""
}

// contextOf returns the context of a call. It has the trace and the request of the call,
// and ends with the stream, with the server, or at the deadline of the call. At that
// deadline, late gets an error. The caller must call end after the call. end returns false
// if the call had a deadline and its context ended before, because the stream then ends.
func (s *Server) contextOf(ctx context.Context, start *servev1.CallStart, late chan<- error) (_ context.Context, end func() bool) {
	provider := s.cfg.Shared.Tracer.Provider
	ctx, cancel := context.WithCancelCause(ctx)
	base := s.cfg.Shared.Base
	forget := context.AfterFunc(base, func() { cancel(context.Cause(base)) })
	free, inTime := func() {}, func() bool { return true }
	if timeout := start.GetTimeoutNs(); timeout > 0 {
		limited, release := context.WithTimeout(ctx, time.Duration(timeout))
		ctx, free = limited, release
		inTime = context.AfterFunc(limited, func() {
			if errors.Is(limited.Err(), context.DeadlineExceeded) {
				late <- status.FromContextError(limited.Err()).Err()
			}
		})
	}
	md := metadata.MD{}
	for _, f := range start.GetPropagated() {
		md.Append(f.GetKey(), f.GetValue())
	}
	ctx = provider.ExtractMetadata(ctx, md)
	if !provider.Config().TrustInbound {
		// The server does not trust the sampling decisions of clients. But the caller belongs
		// to the same app, so its decision counts. A span context that is not remote is
		// trusted.
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContextFromContext(ctx).WithRemote(false))
	}
	ctx = identity.ContextWithRequest(ctx, &identity.Request{
		ID:        requestid.Fit(start.GetRequestId()),
		Route:     start.GetRoute(),
		RPCMethod: start.GetRpcMethod(),
	})
	return ctx, func() bool {
		next := inTime()
		forget()
		free()
		cancel(nil)
		return next
	}
}

// refuse sends the refusal of a call. next reports whether the stream can carry another call,
// which is false only if the refusal could not be sent.
func refuse(stream servev1.Calls_CallServer, no *servev1.Refused) (next bool, err error) {
	err = stream.Send(&servev1.CallResponse{Value: nil, Error: nil, Replica: "", Refused: no, Last: false})
	return err == nil, err
}

// refusalOf returns the refusal for an error of Deployment.Accept.
func refusalOf(err error) *servev1.Refused {
	no := &servev1.Refused{Reason: servev1.Refused_REASON_FULL, Text: err.Error(), Unavailable: nil}
	if gone, is := errors.AsType[*cause.DeploymentUnavailableError](err); is {
		no.Reason, no.Unavailable = servev1.Refused_REASON_UNAVAILABLE, callwire.EncodeUnavailable(gone)
	}
	return no
}

// Exchange receives the argument of an accepted call, and sends its results. Recv and Send
// may run at the same time.
type Exchange struct {
	ctx    context.Context // context of the call
	stream servev1.Calls_CallServer
	first  *servev1.CallRequest // first message of the call, which Recv has not read; nil after that
	errors *callwire.Errors     // encodes and decodes errors of user code

	ended    error // error of the call; nil for success
	returned bool  // Function.Serve has returned
	whole    bool  // the whole argument was received; always false for a stream of arguments
	last     bool  // the last result was sent
}

// run confirms to the caller that the call is accepted, and runs f on the replica of a. It
// reports whether the stream can carry another call.
func (x *Exchange) run(f Function, a *router.Assignment) (next bool, err error) {
	accepted := &servev1.CallResponse{Value: nil, Error: nil, Replica: a.UniqueID(), Refused: nil, Last: false}
	if err := x.stream.Send(accepted); err != nil {
		a.Abandon()
		return false, err
	}
	defer func() { next = x.end() }() // deferred, because user code may end the goroutine
	x.ended, x.returned = f.Serve(a, x), true
	return next, nil // x.end sets next
}

// Recv returns the argument, or the next item of a stream of arguments. It fails with io.EOF
// after the last item, or with the error with which the caller ended the stream.
func (x *Exchange) Recv() ([]byte, error) {
	for !x.whole {
		m := x.first
		x.first = nil
		if m == nil {
			var err error
			if m, err = x.stream.Recv(); err != nil {
				return nil, x.endOf(err)
			}
		}
		switch {
		case m.GetError() != nil:
			return nil, x.errors.Decode(m.GetError())
		case m.Value != nil:
			x.whole = m.GetWhole()
			return m.GetValue(), nil
		}
	}
	return nil, io.EOF
}

// endOf returns the error of Recv for an error of the stream. If the stream was cancelled, it
// returns the error of the call's context instead of grpc's error.
func (x *Exchange) endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if status.Code(err) == codes.Canceled {
		<-x.ctx.Done()
		return x.ctx.Err()
	}
	return bounded(err)
}

// Send sends a result, or the next item of a stream of results. last reports that no other
// result follows. Send blocks while the caller does not read.
func (x *Exchange) Send(value []byte, last bool) error {
	if value == nil {
		value = []byte{} // in a message, nil means that there is no value
	}
	err := bounded(x.stream.Send(&servev1.CallResponse{Value: value, Error: nil, Replica: "", Refused: nil, Last: last}))
	x.last = last && err == nil
	return err
}

// bounded adds the name of the setting SERVE_CALL_MAX_MESSAGE_BYTES to the error of a message
// that was too large. It returns other errors unchanged.
func bounded(err error) error {
	if status.Code(err) == codes.ResourceExhausted {
		return errors.New(status.Convert(err).Message() + callwire.TooLarge)
	}
	return err
}

// end sends the end of the results, or the error of the call. It reports whether the gRPC
// stream can carry another call. It cannot if user code has ended the goroutine, or if the
// argument was a stream, because only the end of the gRPC stream ends such an argument.
func (x *Exchange) end() (next bool) {
	if !x.returned {
		x.ended = cause.ErrGoexit
	}
	if !x.last {
		m := &servev1.CallResponse{Value: nil, Error: x.errors.Encode(x.ended), Replica: "", Refused: nil, Last: x.returned}
		if x.stream.Send(m) != nil {
			return false // the caller has left
		}
	}
	return x.returned && x.whole
}

// Watch implements [servev1.CallsServer]. It sends the state of a deployment at each change,
// until the caller leaves or Stop is called.
func (s *Server) Watch(r *servev1.WatchRequest, stream grpc.ServerStreamingServer[servev1.WatchResponse]) error {
	d := s.watched[Key{App: r.GetApp(), Deployment: r.GetDeployment()}]
	if d == nil {
		return status.Errorf(codes.NotFound, "this process does not run deployment %q of app %q", r.GetDeployment(), r.GetApp())
	}
	changed, stop := d.Watch()
	defer stop()
	leaving := s.leaving.Done()
	var last *servev1.WatchResponse
	for {
		now := s.stateOf(d)
		if last == nil || !proto.Equal(last, now) {
			if err := stream.Send(now); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-changed:
		case <-leaving:
			leaving = nil
		case <-stream.Context().Done():
			return nil
		case <-s.over.Done():
			return nil
		}
	}
}

// stateOf returns the state of a deployment in the form for Watch.
func (s *Server) stateOf(d *router.Deployment) *servev1.WatchResponse {
	load := d.Load()
	now := &servev1.WatchResponse{Capacity: int64(load.Capacity), Models: load.Models, Stopping: s.leaving.Err() != nil, Unavailable: nil}
	if gone, is := errors.AsType[*cause.DeploymentUnavailableError](load.Unavailable); is {
		now.Unavailable = callwire.EncodeUnavailable(gone)
	}
	return now
}
