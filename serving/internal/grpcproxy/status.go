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

// codeName returns the code's name in the gRPC specification, such as NOT_FOUND, for spans,
// logs and metrics. [codes.Code.String] returns other names. For a number that is not a
// code, codeName returns UNKNOWN, as Ray does.
//
// Source: https://github.com/grpc/grpc/blob/master/doc/statuscodes.md
func codeName(c codes.Code) string {
	return cmp.Or(code.Code_name[int32(min(c, math.MaxInt32))], code.Code_UNKNOWN.String())
}

// maxStatusText is the largest length of a status message, in bytes. Some clients, such as
// gRPC's C core, refuse trailers beyond 8 KiB, and encoding makes the message longer.
const maxStatusText = 4 << 10

// truncated is appended to a shortened status message, as in Ray.
const truncated = "... [truncated]"

// statusOf translates the error that ended a call into the status for its client. Nil is
// OK.
//
// If the handler returned or wrapped a status, the client gets its code and its details. An
// error of package context becomes the code of the same meaning. Any other error of a
// handler becomes INTERNAL with the text of the error, as in Ray. A panic becomes INTERNAL
// without the text of the panic.
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
	case st.Code() == codes.OK: // the handler wrapped a status OK in an error, which is no success
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

// failure returns err as spans and the log record it, or nil if err is not a failure of the
// handler. A status for a fault of the client, such as NOT_FOUND, is not a failure if the
// handler returns it without wrapping it. All other errors are failures.
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
