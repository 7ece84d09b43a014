package pluginsdk

import (
	"context"
	"errors"
)

// Chain is a list of processors that run in order, as a single [Processor]. A constructor
// can return it to construct several processors, for example from a list in the
// operator's configuration. The SDK replaces a Chain, also a nested Chain, by its parts.
// So the host counts the dropped spans of each part under its own name, and the SDK shuts
// down each part that is a [Stopper]. A part without a name is named after its place:
// "processor-2.1" is the first part of a Chain that is second in the Spec. An empty Chain
// costs nothing.
//
// The SDK does not call the methods of a Chain. They are for a test, and for a processor
// that contains a Chain.
type Chain []Processor

var (
	_ Processor = Chain(nil)
	_ Stopper   = Chain(nil)
)

// Process runs the parts in order, until a part returns an error or no span is left.
func (c Chain) Process(ctx context.Context, b *Batch) error {
	for i, part := range c {
		if i > 0 && b.Len() == 0 {
			break
		}
		if err := part.Process(ctx, b); err != nil {
			return err
		}
		if err := b.malformed(); err != nil {
			return err
		}
	}
	return nil
}

// Shutdown shuts down each part that is a [Stopper], in reverse order. It joins their
// errors.
func (c Chain) Shutdown(ctx context.Context) error {
	var faults []error
	for i := len(c) - 1; i >= 0; i-- {
		if stopper, ok := c[i].(Stopper); ok {
			faults = append(faults, stopper.Shutdown(ctx))
		}
	}
	return errors.Join(faults...)
}
