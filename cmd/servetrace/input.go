package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// errTooLarge is the error of readBounded if the content has more bytes than the limit.
var errTooLarge = errors.New("it has more")

// readBounded returns the content of r, or an error if it has more than limit bytes.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("%w than %d bytes", errTooLarge, limit)
	}
	return data, err
}

// readFile returns the content of a file, or an error if it has more than limit bytes. The
// name "-" means stdin, unless stdin is nil. The file may be a pipe. what is the name of
// the flag or the argument, for errors.
//
// readFile also returns when ctx ends. A read of a terminal or a pipe may block for ever and
// cannot be canceled. Its goroutine then remains until the process exits, which is soon.
func readFile(ctx context.Context, what, name string, stdin io.Reader, limit int64) ([]byte, error) {
	var data []byte
	done := make(chan error, 1)
	go func() {
		var err error
		data, err = readAll(name, stdin, limit)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return nil, usagef("%s: %w", what, err)
		}
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s %s: %w", what, name, context.Cause(ctx))
	}
	return data, nil
}

// readAll does the work of readFile, but cannot be canceled.
func readAll(name string, stdin io.Reader, limit int64) ([]byte, error) {
	from := stdin
	if name != "-" || stdin == nil {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // read only
		from = f
	}
	data, err := readBounded(from, limit)
	switch {
	case errors.Is(err, syscall.EISDIR):
		return nil, fmt.Errorf("%s is a folder; name its files, such as %s", name, filepath.Join(name, "*"))
	case errors.Is(err, errTooLarge):
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, err
}
