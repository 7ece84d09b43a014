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
// Text is its text, and Type the name of its Go type there. Wrapped are the errors that it
// wraps and that cross: the runtime's errors, errors of package context, statuses of gRPC,
// panics, and the errors of [WithErrors] and [WithErrorType]. An error that is one of
// these itself comes as it is, and not as a RemoteError.
type RemoteError = cause.RemoteError

// WithErrors names errors that functions of the deployment return, or wrap. A caller in
// another process then finds them with [errors.Is], as one in the same process does. They
// are told apart by their texts.
func WithErrors(errs ...error) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.errors.Known = append(d.errors.Known, errs...) }}
}

// WithErrorType names a type of errors that functions of the deployment return, or wrap. A
// caller in another process then finds them with [errors.As]. They cross as JSON, so that
// the exported fields count.
func WithErrorType[E error]() DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.errors.Types = append(d.errors.Types, callwire.TypeOf[E]()) }}
}
