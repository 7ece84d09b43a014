package serving

import (
	"github.com/servetrace/servetrace/serving/internal/callwire"
	"github.com/servetrace/servetrace/serving/internal/cause"
)

// ErrReplicaLost means that another process had accepted the call, and ended or was cut off
// before its result came. The function may have run, or may run on. Calls of
// [Handle.Idempotent] are repeated instead, if another process takes them.
var ErrReplicaLost = cause.ErrReplicaLost

// RemoteError is the error of a function in another process.
//
// Text is the text of the error, and Type is the name of its Go type in the other
// process. Wrapped has the wrapped errors that can be sent: the runtime's errors, errors
// of package context, statuses of gRPC, panics, and the errors of [WithErrors] and
// [WithErrorType]. An error that is itself in this list arrives as it is, and not as a
// RemoteError.
type RemoteError = cause.RemoteError

// WithErrors names errors that functions of the deployment return, or wrap. A caller in
// another process then finds them with [errors.Is], as a caller in the same process does.
// The errors are told apart by their texts.
func WithErrors(errs ...error) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.errors.Known = append(d.errors.Known, errs...) }}
}

// WithErrorType names a type of errors that functions of the deployment return, or wrap.
// A caller in another process then finds them with [errors.As]. They are sent as JSON, so
// that only exported fields arrive, unless the type has its own JSON methods.
func WithErrorType[E error]() DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.errors.Types = append(d.errors.Types, callwire.TypeOf[E]()) }}
}
