//go:build unix && !linux

package launch

import (
	"errors"
	"os"
)

// newMemory makes none: memory that can be sealed and executed is Linux's. A
// pinned plugin runs from a file of its private folder, which other processes
// of this user can change.
func newMemory(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// seal is not reached without memory.
func seal(*os.File) error { return errors.ErrUnsupported }
