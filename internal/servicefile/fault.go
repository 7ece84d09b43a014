package servicefile

import (
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"
)

// FaultError is one error in a service file.
type FaultError struct {
	// File is the name of the file as the caller wrote it. Line and Column are counted from
	// 1.
	File         string
	Line, Column int
	// Text describes the error. It begins with the path of the key.
	Text string
}

// Error returns "FILE:LINE:COLUMN: TEXT", the form that editors understand.
func (f *FaultError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Text)
}

// faults collects the errors in a service file.
type faults struct {
	file string
	list []*FaultError
}

func (f *faults) add(at *yaml.Node, format string, args ...any) {
	f.list = append(f.list, f.at(at, fmt.Sprintf(format, args...)))
}

// at returns an error at a node, without adding it.
func (f *faults) at(at *yaml.Node, text string) *FaultError {
	// A node that is not in the file, for example of an omitted value, has no line.
	return &FaultError{File: f.file, Line: max(1, at.Line), Column: max(1, at.Column), Text: text}
}

// err joins the errors in the order of the file. It returns nil if there are none.
func (f *faults) err() error {
	slices.SortStableFunc(f.list, func(a, b *FaultError) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	errs := make([]error, len(f.list))
	for i, fault := range f.list {
		errs[i] = fault
	}
	return errors.Join(errs...)
}
