package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// unfold returns a stage for a processor, or a stage for each part of a Chain. place is
// the position of the processor in the Spec, counted from 1: "2", or "2.1" inside a
// Chain.
func unfold(processor Processor, place string) ([]stage, error) {
	chain, ok := processor.(Chain)
	if !ok {
		return []stage{{nameOf(processor, place), processor}}, nil
	}
	var stages []stage
	var faults []error
	for i, part := range chain {
		at := fmt.Sprintf("%s.%d", place, i+1)
		if part == nil {
			faults = append(faults, fmt.Errorf("part %s of a chain is nil", at))
			continue
		}
		parts, err := unfold(part, at)
		stages = append(stages, parts...)
		faults = append(faults, err)
	}
	return stages, errors.Join(faults...)
}

// nameOf returns the name under which the host counts the spans that a processor drops.
func nameOf(processor Processor, place string) string {
	if named, ok := processor.(Named); ok && named.Name() != "" {
		return named.Name()
	}
	return "processor-" + place
}

// nameApart makes the names of the stages unique: it renames the second stage with the
// same name to "NAME-2", the third to "NAME-3". It returns an error for a name that a
// host could not read.
func nameApart(stages []stage) error {
	var faults []error
	seen := map[string]bool{}
	for i := range stages {
		name := stages[i].name
		if strings.ContainsFunc(name, notInName) {
			faults = append(faults, fmt.Errorf("the processor name %q has a character that the delivery accounting cannot have: use letters, digits, dots, dashes and underscores", name))
		}
		for n := 2; seen[stages[i].name]; n++ {
			stages[i].name = fmt.Sprintf("%s-%d", name, n)
		}
		seen[stages[i].name] = true
	}
	return errors.Join(faults...)
}

// notInName reports whether the name of a processor must not contain this character,
// because the character has a meaning in a gRPC trailer or in a log line.
func notInName(r rune) bool { return r <= ' ' || r == ',' || r == '=' || r >= 0x7f }
