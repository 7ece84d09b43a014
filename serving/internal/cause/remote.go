package cause

import "errors"

// ErrReplicaLost is the error of a call by handle if the process that ran it was lost.
// Package serving documents it.
var ErrReplicaLost = errors.New("the process that had accepted the call is lost")

// RemoteError is an error of user code in another process, of which only the text and the type
// could be sent whole. Package serving documents it.
type RemoteError struct {
	Text string
	Type string // name of the error's Go type in the other process
	// Wrapped are the errors that this error wraps in the other process. Errors that could
	// not be sent are missing.
	Wrapped []error
}

// Error returns the text of the error in the other process.
func (e *RemoteError) Error() string { return e.Text }

// Unwrap returns Wrapped, for errors.Is and errors.As.
func (e *RemoteError) Unwrap() []error { return e.Wrapped }

// ErrorType returns the type's name in spans, which is Type.
func (e *RemoteError) ErrorType() string { return e.Type }
