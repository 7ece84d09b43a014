package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Error is an answer to a batch other than delivered. On the plugin's side it
// is what the SDK makes of an exporter's error, on the host's what arrived.
type Error struct {
	// Code is the gRPC code's name as OTLP writes it: "UNAVAILABLE".
	Code string
	// Final: the same batch must not be sent again.
	Final bool
	// After is how long the back end wants to be left alone; zero: it did not
	// say.
	After time.Duration
	// Err is the cause. On the host's side its text is the plugin's message.
	Err error
}

// Error is the text of the cause; the code is for the books.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// The codes a plugin answers with when its exporter's error says no more than
// that it is final, or not, or that it panicked.
const (
	CodeFinal = "INVALID_ARGUMENT"
	CodeRetry = "UNAVAILABLE"
	CodePanic = "INTERNAL"
)

// codeTable is the one place where gRPC codes are known. Which are retried is
// OTLP's rule: https://opentelemetry.io/docs/specs/otlp/#failures
var codeTable = []struct {
	code  codes.Code
	name  string
	final bool
}{
	{codes.OK, "OK", true},
	{codes.Canceled, "CANCELLED", false},
	{codes.Unknown, "UNKNOWN", true},
	{codes.InvalidArgument, "INVALID_ARGUMENT", true},
	{codes.DeadlineExceeded, "DEADLINE_EXCEEDED", false},
	{codes.NotFound, "NOT_FOUND", true},
	{codes.AlreadyExists, "ALREADY_EXISTS", true},
	{codes.PermissionDenied, "PERMISSION_DENIED", true},
	// Final unless RetryInfo says otherwise.
	{codes.ResourceExhausted, "RESOURCE_EXHAUSTED", true},
	{codes.FailedPrecondition, "FAILED_PRECONDITION", true},
	{codes.Aborted, "ABORTED", false},
	{codes.OutOfRange, "OUT_OF_RANGE", false},
	{codes.Unimplemented, "UNIMPLEMENTED", true},
	{codes.Internal, "INTERNAL", true},
	{codes.Unavailable, "UNAVAILABLE", false},
	{codes.DataLoss, "DATA_LOSS", false},
	{codes.Unauthenticated, "UNAUTHENTICATED", true},
}

// FromStatus reads the error of a gRPC call on the host's side. It is nil for
// nil. A code that gRPC does not define counts as UNKNOWN.
func FromStatus(err error) *Error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	e := &Error{Code: "UNKNOWN", Final: true, Err: errors.New(Clip(st.Message()))}
	for _, row := range codeTable {
		if row.code == st.Code() {
			e.Code, e.Final = row.name, row.final
		}
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

// Reword gives the error of a gRPC call, which is not nil, with another text:
// code and details stay.
func Reword(err error, text func(string) string) error {
	st := status.Convert(err).Proto()
	if said := text(st.GetMessage()); said != st.GetMessage() {
		st.Message = said
		return status.ErrorProto(st)
	}
	return err
}

// ToStatus turns an exporter's or processor's error into what gRPC sends, on
// the plugin's side. An *Error keeps its code; a gRPC status keeps code and
// details; a context's end is CANCELLED or DEADLINE_EXCEEDED; anything else is
// CodeRetry. What is longer than a host reads is cut: gRPC refuses to carry an
// answer of megabytes, and then the host would hear INTERNAL, which is final.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	return bounded(toStatus(err))
}

func toStatus(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e.status(err.Error())
	}
	if st, ok := status.FromError(err); ok {
		return plainly(err, st)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return (&Error{Code: CodeRetry}).status(err.Error())
}

// maxSent is how much of a text or of details a plugin sends, bytes. It is beyond
// what a host keeps, which hides secrets before it cuts: of one that is cut here
// nothing is shown.
const maxSent = 16 << 10

// Sent cuts a text to what a plugin sends.
func Sent(s string) string {
	if len(s) <= maxSent {
		return s
	}
	return strings.ToValidUTF8(s[:maxSent], "") + "…"
}

// bounded cuts a status to what is sent. Of details that are too much the pause
// stays, which is all that a host looks for.
func bounded(err error) error {
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

// plainly gives the status of an error that has one in it, with what it says
// and without gRPC's own words for that ("rpc error: code = … desc = …"), which
// are for nobody who has the code.
func plainly(err error, st *status.Status) error {
	var inner interface {
		error
		GRPCStatus() *status.Status
	}
	if !errors.As(err, &inner) || inner.GRPCStatus() == nil {
		return st.Err()
	}
	said := st.Proto()
	said.Message = Text(strings.Replace(err.Error(), inner.Error(), inner.GRPCStatus().Message(), 1))
	return status.ErrorProto(said)
}

// status is the gRPC status of e with the text of the error that wraps it.
func (e *Error) status(text string) error {
	text = Text(text)
	st := status.New(codes.Unknown, text)
	for _, row := range codeTable {
		if row.name == e.Code {
			st = status.New(row.code, text)
		}
	}
	if e.After <= 0 {
		return st.Err()
	}
	detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.After)})
	if err != nil { // only an unmarshalable detail or code OK gives one
		return status.Error(st.Code(), fmt.Sprintf("%s (retry after %v)", text, e.After))
	}
	return detailed.Err()
}

// Text is s with U+FFFD for each run of bytes that are no UTF-8. protobuf does
// not carry such bytes, and a back end's words may hold them: gRPC would then
// lose a status's details or the whole message.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// maxText is how much a host keeps and logs of any text that a plugin sends,
// bytes.
const maxText = 1 << 10

// Clip cuts a plugin's text to what a host keeps of it.
func Clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// Unimplemented tells whether the other end does not know the method.
func Unimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }
