package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Error is the error with which a plugin answers a batch. In the plugin, the SDK makes it from the
// exporter's error. In the host, FromStatus makes it from the received gRPC status.
type Error struct {
	// Code is the name of the gRPC code in OTLP's spelling, such as "UNAVAILABLE".
	Code string
	// Final reports that the same batch must not be sent again.
	Final bool
	// After is the time for which the back end asks not to be called. Zero if it did not
	// ask.
	After time.Duration
	// Err is the cause. In the host, its text is the message that the plugin sent.
	Err error
}

// Error returns the text of the cause, without the code.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// The codes of a plugin's answer if the exporter's error has no code: for a final error,
// for an error that may be retried, and for a panic.
const (
	CodeFinal = "INVALID_ARGUMENT"
	CodeRetry = "UNAVAILABLE"
	CodePanic = "INTERNAL"
)

// retried lists the gRPC codes after which a sender of OTLP sends the batch again. All other
// codes are final, except RESOURCE_EXHAUSTED with a RetryInfo:
// https://opentelemetry.io/docs/specs/otlp/#failures
var retried = []codes.Code{
	codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss,
}

// FromStatus converts the error of a gRPC call, in the host. It returns nil for nil. If gRPC does
// not define the code of the error, the code becomes UNKNOWN.
func FromStatus(err error) *Error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	e := &Error{Code: code.Code_UNKNOWN.String(), Final: !slices.Contains(retried, st.Code()), Err: errors.New(Clip(st.Message()))}
	if name, ok := code.Code_name[int32(st.Code())]; ok { //nolint:gosec // codes are small numbers
		e.Code = name
	}
	for _, detail := range st.Details() {
		info, ok := detail.(*errdetails.RetryInfo)
		if !ok {
			continue
		}
		e.After = max(0, info.GetRetryDelay().AsDuration())
		if st.Code() == codes.ResourceExhausted {
			e.Final = false
		}
	}
	return e
}

// Reword returns the error of a gRPC call with another text, which the function text makes from
// the old text. The code and the details stay. err must not be nil.
func Reword(err error, text func(string) string) error {
	st := status.Convert(err).Proto()
	if message := text(st.GetMessage()); message != st.GetMessage() {
		st.Message = message
		return status.ErrorProto(st)
	}
	return err
}

// ToStatus converts the error of an exporter or processor to a gRPC status, in the plugin. An
// *Error keeps its code, and a gRPC status keeps its code and details. The error of a context
// becomes CANCELLED or DEADLINE_EXCEEDED. Any other error becomes CodeRetry. Long texts are cut,
// because gRPC does not send a status of megabytes: the host would get INTERNAL instead, which
// is final.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	return truncate(toStatus(err))
}

func toStatus(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.status(err.Error())
	}
	if st, ok := status.FromError(err); ok {
		return withoutPrefix(err, st)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return (&Error{Code: CodeRetry}).status(err.Error())
}

// maxSent bounds the text of a status that a plugin sends, and each of its details, in bytes. It
// is larger than maxText, because the host must redact secrets before it cuts the text. A secret
// that is cut here is not in the part that the host shows.
const maxSent = 16 << 10

// Sent cuts s to maxSent bytes.
func Sent(s string) string { return cut(s, maxSent) }

// cut returns s, or its first n bytes and an ellipsis if it is longer.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// truncate cuts the text of a status to maxSent bytes. If the details are too large, only the
// RetryInfo stays, because the host reads no other details.
func truncate(err error) error {
	st := status.Convert(err).Proto()
	if proto.Size(st) <= maxSent {
		return err
	}
	st.Message = Sent(st.GetMessage())
	if proto.Size(st) > 2*maxSent {
		st.Details = slices.DeleteFunc(st.GetDetails(), func(detail *anypb.Any) bool {
			return !detail.MessageIs((*errdetails.RetryInfo)(nil)) || proto.Size(detail) > maxSent
		})
		st.Details = st.Details[:min(1, len(st.Details))]
	}
	return status.ErrorProto(st)
}

// withoutPrefix returns the status of err with the text of err, but without gRPC's prefix
// ("rpc error: code = … desc = …"), which only repeats the code.
func withoutPrefix(err error, st *status.Status) error {
	var inner interface {
		error
		GRPCStatus() *status.Status
	}
	if !errors.As(err, &inner) || inner.GRPCStatus() == nil {
		return st.Err()
	}
	plain := st.Proto()
	plain.Message = Text(strings.Replace(err.Error(), inner.Error(), inner.GRPCStatus().Message(), 1))
	return status.ErrorProto(plain)
}

// status returns a gRPC status with the code and the pause of e, and with the argument text.
func (e *Error) status(text string) error {
	text = Text(text)
	st := status.New(codes.Unknown, text)
	if number, ok := code.Code_value[e.Code]; ok {
		st = status.New(codes.Code(number), text) //nolint:gosec // the numbers are not negative
	}
	if e.After <= 0 {
		return st.Err()
	}
	detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.After)})
	if err != nil { // possible only if the code is OK
		return status.Error(st.Code(), fmt.Sprintf("%s (retry after %v)", text, e.After))
	}
	return detailed.Err()
}

// Text returns s with each run of bytes that is not valid UTF-8 replaced by U+FFFD.
// Texts of a back end may hold such bytes, and protobuf does not accept them: gRPC
// would lose the details or the whole message.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// maxText is the largest text of a plugin that the host keeps and logs, in bytes.
const maxText = 1 << 10

// Clip cuts s to maxText bytes.
func Clip(s string) string { return cut(s, maxText) }

// Unimplemented reports whether err means that the peer does not implement the method.
func Unimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }
