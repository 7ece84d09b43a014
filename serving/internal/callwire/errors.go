package callwire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	servev1 "github.com/servetrace/servetrace/internal/gen/servetrace/serve/v1"
	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/tracing"
)

// Errors lists the errors of user code that errors.Is and errors.As also find in another
// process. The zero value lists none. An Errors does not change after a server uses it.
type Errors struct {
	// Known are the errors that callers find with errors.Is. Messages contain their texts as
	// names.
	Known []error
	// Types are the types of errors that callers find with errors.As.
	Types []ErrorType
}

// ErrorType is a type of errors that are sent to other processes as JSON.
type ErrorType struct {
	Name   string                           // name of the type in messages
	Find   func(error) (found any)          // returns the error of this type that an error is or wraps, or nil
	Decode func(data []byte) (error, error) // returns the error that the JSON data encodes
}

// TypeOf returns the ErrorType for the errors of type E.
func TypeOf[E error]() ErrorType {
	return ErrorType{
		Name: reflect.TypeFor[E]().String(),
		Find: func(err error) any {
			if e, ok := errors.AsType[E](err); ok {
				return e
			}
			return nil
		},
		Decode: func(data []byte) (error, error) {
			var e E
			if err := json.Unmarshal(data, &e); err != nil {
				return nil, err
			}
			return e, nil
		},
	}
}

// wellKnown are the errors of the runtime and the standard library that errors.Is also finds
// in another process. name is the name of the error in messages.
var wellKnown = []struct {
	name string
	err  error
}{
	{"context.Canceled", context.Canceled},
	{"context.DeadlineExceeded", context.DeadlineExceeded},
	{"http.ErrAbortHandler", http.ErrAbortHandler},
	{"serving.Goexit", cause.ErrGoexit},
	{"serving.ErrRequestTimeout", cause.ErrRequestTimeout},
	{"serving.ErrClientStalled", cause.ErrClientStalled},
	{"serving.ErrClientGone", cause.ErrClientGone},
	{"serving.ErrClientDeadline", cause.ErrClientDeadline},
	{"serving.ErrReplicaStopped", cause.ErrReplicaStopped},
	{"serving.ErrReplicaLost", cause.ErrReplicaLost},
	{"serving.ErrShuttingDown", cause.ErrShuttingDown},
}

// ofUser is the prefix of the names of Errors.Known in messages, so that these names differ
// from the names of wellKnown.
const ofUser = "user:"

// Encode returns the message for an error. It returns nil if err is nil.
func (e *Errors) Encode(err error) *servev1.CallError {
	if err == nil {
		return nil
	}
	m := &servev1.CallError{
		Text: err.Error(), Type: spans.ExceptionType(err), Status: statusOf(err),
		Is: nil, Values: nil, Panic: nil, QueueFull: nil, Unavailable: nil,
	}
	if p, is := errors.AsType[*tracing.PanicError](err); is {
		m.Panic = &servev1.Panic{Value: fmt.Sprint(p.Value), Stack: p.Stack}
	}
	for _, known := range wellKnown {
		if errors.Is(err, known.err) {
			m.Is = append(m.Is, known.name)
		}
	}
	for _, known := range e.Known {
		if errors.Is(err, known) {
			m.Is = append(m.Is, ofUser+known.Error())
		}
	}
	for _, t := range e.Types {
		found := t.Find(err)
		if found == nil {
			continue
		}
		if data, err := json.Marshal(found); err == nil { // without JSON, the caller gets only the text and the type's name
			m.Values = append(m.Values, &servev1.ErrorValue{Type: t.Name, Json: data})
		}
	}
	if full, is := errors.AsType[*cause.QueueFullError](err); is {
		m.QueueFull = &servev1.QueueFull{
			Deployment: full.Deployment, Queued: int64(full.Queued), Limit: int64(full.Limit),
			StatusCode: int64(full.StatusCode), RetryAfterMs: full.RetryAfter.Milliseconds(),
		}
	}
	if gone, is := errors.AsType[*cause.DeploymentUnavailableError](err); is {
		m.Unavailable = EncodeUnavailable(gone)
	}
	return m
}

// statusOf returns the gRPC status that err is or wraps, as bytes. It returns nil if there is
// none.
func statusOf(err error) []byte {
	has, is := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err)
	if !is || has.GRPCStatus() == nil {
		return nil
	}
	data, _ := proto.Marshal(has.GRPCStatus().Proto()) // a status can always be encoded
	return data
}

// EncodeUnavailable returns the message for a DeploymentUnavailableError.
func EncodeUnavailable(err *cause.DeploymentUnavailableError) *servev1.Unavailable {
	m := &servev1.Unavailable{App: err.App, Deployment: err.Deployment, Tries: int64(err.Tries), Reason: ""}
	if err.Reason != nil {
		m.Reason = err.Reason.Error()
	}
	return m
}

// DecodeUnavailable returns the error from a message of EncodeUnavailable.
func DecodeUnavailable(m *servev1.Unavailable) *cause.DeploymentUnavailableError {
	return &cause.DeploymentUnavailableError{
		App: m.GetApp(), Deployment: m.GetDeployment(), Tries: int(m.GetTries()), Reason: errors.New(m.GetReason()),
	}
}

// Decode returns the error from a message of Encode. It returns nil if m is nil. If an error
// that could be decoded has the whole text, Decode returns it. Otherwise it returns a
// *cause.RemoteError, which wraps the errors that could be decoded.
func (e *Errors) Decode(m *servev1.CallError) error {
	if m == nil {
		return nil
	}
	wrapped := e.wrapped(m)
	for _, inner := range slices.Backward(wrapped) { // from the most specific error to the wellKnown errors
		if inner.Error() == m.GetText() {
			return inner
		}
	}
	return &cause.RemoteError{Text: m.GetText(), Type: m.GetType(), Wrapped: wrapped}
}

// wrapped returns the errors that could be decoded from m, the wellKnown errors first.
func (e *Errors) wrapped(m *servev1.CallError) []error {
	var list []error
	for _, known := range wellKnown {
		if slices.Contains(m.GetIs(), known.name) {
			list = append(list, known.err)
		}
	}
	for _, known := range e.Known {
		if slices.Contains(m.GetIs(), ofUser+known.Error()) {
			list = append(list, known)
		}
	}
	for _, v := range m.GetValues() {
		for _, t := range e.Types {
			if t.Name != v.GetType() {
				continue
			}
			if err, fault := t.Decode(v.GetJson()); fault == nil {
				list = append(list, err)
			}
		}
	}
	if p := m.GetPanic(); p != nil {
		list = append(list, &tracing.PanicError{Value: p.GetValue(), Stack: p.GetStack()})
	}
	if full := m.GetQueueFull(); full != nil {
		list = append(list, &cause.QueueFullError{
			Deployment: full.GetDeployment(), Queued: int(full.GetQueued()), Limit: int(full.GetLimit()),
			StatusCode: int(full.GetStatusCode()), RetryAfter: time.Duration(full.GetRetryAfterMs()) * time.Millisecond,
		})
	}
	if gone := m.GetUnavailable(); gone != nil {
		list = append(list, DecodeUnavailable(gone))
	}
	if data := m.GetStatus(); data != nil {
		st := new(spb.Status)
		if proto.Unmarshal(data, st) == nil && st.GetCode() != 0 {
			list = append(list, status.FromProto(st).Err())
		}
	}
	return list
}
