package grpcproxy

import (
	"cmp"
	"errors"
	"math"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/cause"
)

// codeName returns the code's name in the gRPC specification, which spans, logs and
// metrics use; [codes.Code.String] has other names. For a number that is no code it
// returns UNKNOWN, as Ray does.
//
// Source: https://github.com/grpc/grpc/blob/master/doc/statuscodes.md
func codeName(c codes.Code) string {
	return cmp.Or(code.Code_name[int32(min(c, math.MaxInt32))], code.Code_UNKNOWN.String())
}

// maxStatusText bounds a status message, in bytes. Some clients, such as gRPC's C core,
// refuse trailers beyond 8 KiB, and percent-encoding makes the message longer.
const maxStatusText = 4 << 10

// truncated is the end of a shortened message, as in Ray.
const truncated = "... [truncated]"

// statusOf translates the error that ended a call into the status for its client. Nil is
// OK.
//
// A status that the handler returned, or wrapped, is passed on with its code and its
// details. An error of package context becomes its code. Any other error of a handler is
// INTERNAL with its text, as in Ray; a panic is INTERNAL without the text of the panic.
func (p *proxy) statusOf(requestID string, err error) *status.Status {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cause.ErrClientDeadline):
		return status.New(codes.DeadlineExceeded, textClientDeadline)
	case errors.Is(err, cause.ErrRequestTimeout):
		return status.Newf(codes.DeadlineExceeded, textTimeout, requestID, p.timeout.Seconds())
	case errors.Is(err, cause.ErrClientStalled):
		return status.Newf(codes.DeadlineExceeded, textStalled, requestID, p.stall.Seconds())
	case errors.Is(err, cause.ErrClientGone):
		return status.Newf(codes.Canceled, textClientGone, requestID)
	case errors.Is(err, cause.ErrShuttingDown):
		return status.New(codes.Unavailable, textDraining)
	case errors.Is(err, cause.ErrReplicaStopped):
		return status.New(codes.Unavailable, textReplicaStopped)
	case cause.IsPanic(err), errors.Is(err, cause.ErrGoexit):
		return status.New(codes.Internal, textInternal)
	}
	if full, ok := errors.AsType[*cause.QueueFullError](err); ok {
		return status.New(codes.ResourceExhausted, full.Error())
	}
	if gone, ok := errors.AsType[*cause.DeploymentUnavailableError](err); ok {
		return status.New(codes.Unavailable, gone.Error())
	}
	if m, ok := errors.AsType[*messageError](err); ok {
		return status.Convert(m.status)
	}
	st, ours := status.FromError(err)
	switch {
	case !ours:
		if st = status.FromContextError(err); st.Code() == codes.Unknown {
			st = status.New(codes.Internal, err.Error())
		}
	case st.Code() == codes.OK: // an error cannot mean success
		st = status.New(codes.Unknown, err.Error())
	}
	return shortened(st)
}

// shortened returns st with a message of at most maxStatusText bytes.
func shortened(st *status.Status) *status.Status {
	text := st.Message()
	if len(text) <= maxStatusText {
		return st
	}
	end := maxStatusText - len(truncated)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	p := st.Proto()
	p.Message = text[:end] + truncated
	return status.FromProto(p)
}

// failure returns err as spans and the log record it, or nil if err is no failure. It is no
// failure if a handler returns a bare status with a code for a fault of the client, such as
// NOT_FOUND. If a handler wraps a status in another error, or returns another error, it has
// failed.
func failure(err error) error {
	bare, ok := err.(interface{ GRPCStatus() *status.Status })
	if ok {
		code := bare.GRPCStatus().Code()
		if code != codes.OK && !(spans.ProxyResult{GRPCCode: codeName(code)}).Failed(spans.GRPC) {
			return nil
		}
	}
	return cause.ForSpan(err)
}
