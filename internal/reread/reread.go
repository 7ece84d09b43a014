// Package reread has values that are read from files, such as certificates and tokens.
// They are read again when a file has changed.
//
// The life of a [Value]: New reads it, and each Get looks for a change, at most once in a
// second. It has no goroutine. A file has changed if its size or its modification time
// differs. Links, as in a mounted Secret, are followed.
//
// The package knows no format. It has a single file, reread.go.
package reread

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// checkInterval is the shortest time between two checks of a file for changes.
const checkInterval = time.Second

// Value is a value that is read from files. It is read again when a file has changed.
// If that fails, the previous value stays. Safe for concurrent use.
type Value[T any] struct {
	name  string // name of the value, for the log
	paths []string
	read  func() (T, error)
	log   *slog.Logger

	mu      sync.Mutex
	value   T
	stamp   string
	checked time.Time
}

// New reads the value, and returns an error if it cannot be read.
func New[T any](name string, log *slog.Logger, read func() (T, error), paths ...string) (*Value[T], error) {
	v := &Value[T]{name: name, paths: paths, read: read, log: log, checked: time.Now()}
	v.stamp = v.stat()
	var err error
	v.value, err = read()
	return v, err
}

// stat returns a text that changes with the files.
func (v *Value[T]) stat() string {
	var stamp strings.Builder
	for _, path := range v.paths {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintln(&stamp, info.Size(), info.ModTime().UnixNano())
		}
	}
	return stamp.String()
}

// Get returns the value. It looks for changes of the files at most once per
// checkInterval.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.checked) < checkInterval {
		return v.value
	}
	v.checked = time.Now()
	stamp := v.stat()
	if stamp == v.stamp {
		return v.value
	}
	v.stamp = stamp
	value, err := v.read()
	if err != nil {
		v.log.Error("changed files cannot be used; the previous "+v.name+" stays", "error", err)
		return v.value
	}
	v.log.Info("changed files are in use", "for", v.name)
	v.value = value
	return value
}
