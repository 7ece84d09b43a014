package serving

import (
	"github.com/servetrace/servetrace/serving/internal/callwire"
	"github.com/servetrace/servetrace/serving/internal/cause"
)

// ErrReplicaLost means that another process had accepted the call, and then ended or could
// not be reached before the result arrived. The function may have run, or may still run. A
// call of [Handle.Idempotent] is sent again before it fails with this error.
var ErrReplicaLost = cause.ErrReplicaLost

// RemoteError is the error of a function that ran in another process.
//
// Text is the text of the error, and Type is the name of its Go type in that process. Some
// errors can be sent between processes: the runtime's errors, errors of package context,
// statuses of gRPC, panics, and the errors of [WithErrors] and [WithErrorType]. If the
// function returns such an error, the caller gets this error and no RemoteError. If the
// function's error wraps such errors, they are in Wrapped.
type RemoteError = cause.RemoteError

// WithErrors adds error values that functions of the deployment return or wrap. A caller in
// another process then finds them with [errors.Is], as a caller in the same process does.
// The errors must have different texts, because an error is sent by its text.
func WithErrors(errs ...error) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.errors.Known = append(d.errors.Known, errs...) }}
}

// WithErrorType adds a type of errors that functions of the deployment return or wrap. A
// caller in another process then finds them with [errors.As]. Such an error is sent as JSON,
// so only its exported fields arrive, unless the type has its own JSON methods.
func WithErrorType[E error]() DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.errors.Types = append(d.errors.Types, callwire.TypeOf[E]()) }}
}
