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

// OpenTelemetry's span processors report the errors of their exporters to otel.Handle,
// which has a single handler per process. The first replayer installs the handler of this
// package. An error does not name its batch, so the handler passes it to every replayer
// that is replaying a batch.

// listener collects the errors that are reported while a replayer replays a batch.
type listener struct {
	log *slog.Logger

	// opened reports that a batch is being replayed. handler.mu guards this field and errs.
	opened bool
	errs   []error
}

// maxErrors is the largest number of errors that a listener keeps for a chunk. It keeps
// the first errors. If a retryable error comes later, it replaces the last of them, so
// that the chunk is sent again.
const maxErrors = 16

var handler errorHandler

// errorHandler receives all errors of the process that are reported to otel.Handle.
type errorHandler struct {
	install sync.Once
	// before is the handler that the plugin's author has set before install, or nil. It
	// still gets every error.
	before otel.ErrorHandler

	mu        sync.Mutex
	listeners []*listener
}

// listen registers a new listener, which collects errors only between open and close. The
// caller must call leave at the end.
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

// isDefault reports whether h is OpenTelemetry's default handler. It must not be called
// from our handler, because it would pass every error back to our handler.
func isDefault(h otel.ErrorHandler) bool {
	t := reflect.TypeOf(h)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.HasPrefix(t.PkgPath(), "go.opentelemetry.io/otel/internal/")
}

// Handle adds err to all open listeners. If no listener is open, it logs err, which is
// probably about spans of an earlier batch.
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

// take removes and returns the errors that were collected so far.
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

// leave closes the listener and removes it from the handler.
func (l *listener) leave() {
	l.close()
	handler.mu.Lock()
	defer handler.mu.Unlock()
	handler.listeners = slices.DeleteFunc(handler.listeners, func(one *listener) bool { return one == l })
}
