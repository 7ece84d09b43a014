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

// readFile returns the content of a file, at most limit bytes; "-" is stdin, unless stdin
// is nil. The file may be a pipe. what names the flag or the argument in errors.
//
// readFile returns when ctx ends. A terminal or a pipe may never end, and neither its
// opening nor a read can be canceled: then a goroutine remains until the process exits,
// which is soon.
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
	if int64(len(data)) > limit {
		return nil, usagef("%s %s: it has more than %d bytes", what, name, limit)
	}
	return data, nil
}

// readAll reads one byte more than limit, if there are so many.
func readAll(name string, stdin io.Reader, limit int64) ([]byte, error) {
	if name == "-" && stdin != nil {
		return io.ReadAll(io.LimitReader(stdin, limit+1))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("%s is a folder; name its files, such as %s", name, filepath.Join(name, "*"))
	}
	return data, err
}
