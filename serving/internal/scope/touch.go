package scope

import "errors"

// Touch calls the methods of an error that user code returned, and returns the error. Such a
// method may panic, for example because of a nil pointer. Call Touch in a function that
// recovers from panics of user code. The first panic then happens there, and not later on a
// goroutine of the runtime, where it would end the process.
func Touch(err error) error {
	if err == nil {
		return nil
	}
	_ = err.Error()
	_, _ = errors.AsType[*untouched](err) // calls the methods Unwrap and As of err and of all errors that it wraps
	_ = errors.Is(err, errUntouched)      // calls the methods Unwrap and Is of these errors
	return err
}

// untouched is an error type that user code cannot use, so that Touch compares err with all
// errors that it wraps.
type untouched struct{}

func (*untouched) Error() string { return "" }

var errUntouched = error(&untouched{})
