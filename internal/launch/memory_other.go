//go:build unix && !linux

package launch

import (
	"errors"
	"os"
)

// newMemory returns an error: only Linux has memory that can be sealed and executed. A
// pinned plugin runs from a file of its private folder, which other processes of this user
// can change.
func newMemory(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// seal is never called, because newMemory returns no memory.
func seal(*os.File) error { return errors.ErrUnsupported }
