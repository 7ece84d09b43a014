package servicefile

import "fmt"

// FaultError is one thing wrong with a service file.
type FaultError struct {
	// File is the file's name as it was given; Line and Column begin at 1.
	File         string
	Line, Column int
	// Text says what is wrong, beginning with the path of the key.
	Text string
}

// Error is "FILE:LINE:COLUMN: TEXT", which editors take one to.
func (f *FaultError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Text)
}
