package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Chain is processors as one, in order: what a constructor returns that makes
// several, of a list in the operator's configuration, say. Where the pipeline is
// built it is unfolded, chains in chains too, so that each part is a
// [Processor] of its own: it keeps its name in the span account, and its [Stopper] is
// called. A part without a name is called by its place, "processor-2.1" for the
// first part of a Chain that is second in the Spec. An empty Chain costs
// nothing.
//
// The methods are for a Chain that is not unfolded, inside a processor of the
// author's or in a test.
type Chain []Processor

var (
	_ Processor = Chain(nil)
	_ Stopper   = Chain(nil)
)

// Process runs the parts in order, until one gives an error or no span is left.
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

// Shutdown shuts the parts down that are a [Stopper], the last first.
func (c Chain) Shutdown(ctx context.Context) error {
	var faults []error
	for i := len(c) - 1; i >= 0; i-- {
		if stopper, ok := c[i].(Stopper); ok {
			faults = append(faults, stopper.Shutdown(ctx))
		}
	}
	return errors.Join(faults...)
}

// unfold gives the stages that a processor is: itself, or the parts of a Chain.
// place is where it stands, from 1: "2", "2.1".
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

// nameOf is a processor's name in the span account.
func nameOf(processor Processor, place string) string {
	if named, ok := processor.(Named); ok && named.Name() != "" {
		return named.Name()
	}
	return "processor-" + place
}

// nameApart gives the second of a name the name "NAME-2", and so on, so that the
// span account tells them apart. A name that a host could not read is an error.
func nameApart(stages []stage) error {
	var faults []error
	seen := map[string]bool{}
	for i := range stages {
		name := stages[i].name
		if strings.ContainsFunc(name, notInName) {
			faults = append(faults, fmt.Errorf("the processor name %q has a character that the span account cannot have: use letters, digits, dots, dashes and underscores", name))
		}
		for n := 2; seen[stages[i].name]; n++ {
			stages[i].name = fmt.Sprintf("%s-%d", name, n)
		}
		seen[stages[i].name] = true
	}
	return errors.Join(faults...)
}

// notInName tells which characters a name in the span account cannot have: those that
// a trailer, or a line of the log, gives a meaning.
func notInName(r rune) bool { return r <= ' ' || r == ',' || r == '=' || r >= 0x7f }
