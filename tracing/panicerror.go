package tracing

import (
	"context"
	"errors"
	"fmt"
)

// PanicError is the panic of a handler as an error. Spans record its stack.
type PanicError struct {
	// Value is the value of the panic.
	Value any
	// Stack is the stack of the goroutine, as debug.Stack prints it.
	Stack []byte
}

// Error returns "panic: " and the value.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error, otherwise nil. It also returns nil for an error
// with methods that panic, such as a nil pointer.
func (e *PanicError) Unwrap() (err error) {
	inner, is := e.Value.(error)
	if !is {
		return nil
	}
	defer func() {
		if recover() != nil {
			err = nil
		}
	}()
	_ = inner.Error()
	_ = errors.Is(inner, context.Canceled) // calls Unwrap of all errors in the tree
	return inner
}
