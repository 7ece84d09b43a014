package scope

import "errors"

// Touch calls the methods of an error that user code returned, and returns the error.
// A method may panic, for example because of a nil pointer in the error. Touch makes it
// panic in the place that recovers panics of user code. A panic in a goroutine of the
// runtime would end the process.
func Touch(err error) error {
	if err == nil {
		return nil
	}
	_ = err.Error()
	_, _ = errors.AsType[*untouched](err) // calls Unwrap and As in the whole tree
	_ = errors.Is(err, errUntouched)      // and Is
	return err
}

// untouched is a type that no error has.
type untouched struct{}

func (*untouched) Error() string { return "" }

var errUntouched = error(&untouched{})
