// Package reread keeps values that are read from files, such as certificates and tokens, and reads
// them again when a file has changed.
//
// The life of a [Value]: New reads it. Get looks for a change of the files, at most once in a
// second, and returns the value. There is no goroutine. A file counts as changed if its size or
// its modification time differs. Links are followed, because a mounted Secret of Kubernetes
// consists of links.
//
// The package does not know the format of the files. It has only this file.
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
	stamp   string    // result of stat when the value was read
	checked time.Time // time of the last check for changes
}

// New reads the value, and returns an error if it cannot be read.
func New[T any](name string, log *slog.Logger, read func() (T, error), paths ...string) (*Value[T], error) {
	v := &Value[T]{name: name, paths: paths, read: read, log: log, checked: time.Now()}
	v.stamp = v.stat()
	var err error
	v.value, err = read()
	return v, err
}

// stat returns a text with the sizes and the modification times of the files.
func (v *Value[T]) stat() string {
	var stamp strings.Builder
	for _, path := range v.paths {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintln(&stamp, info.Size(), info.ModTime().UnixNano())
		}
	}
	return stamp.String()
}

// Get returns the value. If the files have changed, it reads them first. It looks for changes at
// most once per checkInterval.
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
