package cause

import "errors"

// ErrReplicaLost is documented in package serving.
var ErrReplicaLost = errors.New("the process that had accepted the call is lost")

// RemoteError is documented in package serving.
type RemoteError struct {
	Text string
	Type string // the Go type in the other process
	// Wrapped are the errors that the error wraps there, as far as they were sent.
	Wrapped []error
}

// Error returns the text of the error in the other process.
func (e *RemoteError) Error() string { return e.Text }

// Unwrap returns Wrapped.
func (e *RemoteError) Unwrap() []error { return e.Wrapped }

// ErrorType returns Type, for spans.
func (e *RemoteError) ErrorType() string { return e.Type }
