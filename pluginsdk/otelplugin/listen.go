package otelplugin

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel"

	"github.com/servetrace/servetrace/pluginsdk"
)

// The SDK's processors report the errors of their exporters to otel.Handle, which has a
// single handler per process. The first replayer installs the handler of this package. It
// passes an error to every replayer that currently replays a batch, because the error does
// not name its batch.

// listener collects the errors that are reported while a replayer replays a batch.
type listener struct {
	log *slog.Logger

	// The fields below are guarded by handler.mu.
	opened bool
	errs   []error
}

// maxErrors bounds the number of errors that a listener keeps for a chunk. It keeps the
// first errors. The last place is for the last retryable error, if there is one.
const maxErrors = 16

var handler errorHandler

// errorHandler is the process's otel.ErrorHandler.
type errorHandler struct {
	install sync.Once
	// before is the handler that the author had set, if any. It still gets every error.
	before otel.ErrorHandler

	mu        sync.Mutex
	listeners []*listener
}

// listen returns a closed listener. The caller must call leave at the end.
func listen(log *slog.Logger) *listener {
	handler.install.Do(func() {
		if h := otel.GetErrorHandler(); !isDefault(h) {
			handler.before = h
		}
		otel.SetErrorHandler(&handler)
	})
	handler.mu.Lock()
	defer handler.mu.Unlock()
	l := &listener{log: log}
	handler.listeners = append(handler.listeners, l)
	return l
}

// isDefault reports whether h is OpenTelemetry's default, which would pass every error
// back to the current handler.
func isDefault(h otel.ErrorHandler) bool {
	t := reflect.TypeOf(h)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.HasPrefix(t.PkgPath(), "go.opentelemetry.io/otel/internal/")
}

// Handle passes err to the open listeners. If none is open, it logs err, which may concern
// spans of an earlier batch.
func (h *errorHandler) Handle(err error) {
	if err == nil {
		return
	}
	if h.before != nil {
		h.before.Handle(err)
	}
	_, _, part := partial(err)
	retryable := !part && !pluginsdk.Final(err)
	reported := fmt.Errorf("reported to otel.Handle: %w", err)
	h.mu.Lock()
	received := false
	for _, l := range h.listeners {
		if !l.opened {
			continue
		}
		received = true
		if len(l.errs) < maxErrors {
			l.errs = append(l.errs, reported)
		} else if retryable {
			l.errs[maxErrors-1] = reported
		}
	}
	log := slog.Default()
	if len(h.listeners) > 0 {
		log = h.listeners[0].log
	}
	h.mu.Unlock()
	if !received {
		log.Warn("error reported to otel.Handle while no batch was processed", "error", err)
	}
}

// open starts collecting errors.
func (l *listener) open() {
	handler.mu.Lock()
	defer handler.mu.Unlock()
	l.opened = true
}

// take returns the errors since the last call and removes them.
func (l *listener) take() []error {
	handler.mu.Lock()
	defer handler.mu.Unlock()
	errs := l.errs
	l.errs = nil
	return errs
}

// close stops collecting errors, and drops the errors that were not taken.
func (l *listener) close() {
	handler.mu.Lock()
	defer handler.mu.Unlock()
	l.opened, l.errs = false, nil
}

// leave closes and unregisters the listener.
func (l *listener) leave() {
	l.close()
	handler.mu.Lock()
	defer handler.mu.Unlock()
	handler.listeners = slices.DeleteFunc(handler.listeners, func(one *listener) bool { return one == l })
}
