package pluginsdk

import (
	"errors"
	"fmt"
	"strings"
)

// stage is a processor, with the name under which the host counts the spans that it
// drops.
type stage struct {
	name      string
	processor Processor
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
