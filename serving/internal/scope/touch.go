package scope

import "errors"

// Touch calls the methods of an error that user code returned, as whoever reports
// it will, and gives it back. One that panics, as a nil pointer in an error often
// does, so panics where panics of user code are recovered, and not in a goroutine
// of the runtime, where it would end the process.
func Touch(err error) error {
	if err == nil {
		return nil
	}
	_ = err.Error()
	_, _ = errors.AsType[*untouched](err) // calls Unwrap and As of the whole tree
	_ = errors.Is(err, errUntouched)      // and Is
	return err
}

// untouched is a type that no error has.
type untouched struct{}

func (*untouched) Error() string { return "" }

var errUntouched = error(&untouched{})
