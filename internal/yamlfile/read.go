package yamlfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// MaxBytes is the size in bytes of the largest service file, and of the largest configuration of a
// plugin.
const MaxBytes = 1 << 20

// Read returns the content of the regular file at path. It returns an error if the file is missing,
// unreadable, not regular, or larger than limit bytes. It does not block on a named pipe. The
// error does not have the path. It has advice if possible, and wraps the error of the system.
func Read(path string, limit int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &adviceError{"there is no such file; create it, or correct its path", err}
	case errors.Is(err, fs.ErrPermission):
		return nil, &adviceError{"this process may not read it; check the owner and mode of the file and of its folders", err}
	case err != nil:
		return nil, err
	}
	defer func() { _ = f.Close() }() // an error has no effect: the file was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("this is no regular file (%v); name a regular file", info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > limit {
		return nil, fmt.Errorf("it has %d bytes, want %d at most", max(info.Size(), int64(len(data))), limit)
	}
	return data, nil
}

// adviceError is an error of the system with a text that has advice. Its cause stays available.
type adviceError struct {
	text  string
	cause error
}

func (e *adviceError) Error() string { return e.text }
func (e *adviceError) Unwrap() error { return e.cause }
