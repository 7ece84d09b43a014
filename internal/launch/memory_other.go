//go:build unix && !linux

package launch

import (
	"errors"
	"os"
)

// newMemory returns an error, because only Linux has memory that can be sealed and executed.
// So a pinned plugin runs from a file in its private folder. Other processes of this user
// can change this file.
func newMemory(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// seal is never called, because newMemory returns no memory.
func seal(*os.File) error { return errors.ErrUnsupported }
