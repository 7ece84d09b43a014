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

// The SDK's processors report the errors of their exporters to otel.Handle,
// which has one handler for the process. Ours is put there once, when the first
// replayer is made. It gives an error to every replayer that plays a batch just
// then: which of them it belongs to can not be known.

// listener is one replayer's ear.
type listener struct {
	log *slog.Logger

	// Guarded by handler.mu.
	opened bool
	errs   []error
}

// mostHeard bounds what one piece can make a listener keep: the first errors,
// and in the last place one that calls for sending again, if any does.
const mostHeard = 16

var handler errorHandler

// errorHandler is the process's otel.ErrorHandler.
type errorHandler struct {
	install sync.Once
	// before is the handler that was there, if the author had set one: it goes
	// on to get every error.
	before otel.ErrorHandler

	mu        sync.Mutex
	listeners []*listener
}

// listen makes a listener, closed. The caller must leave in the end.
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

// isDefault tells whether h is OpenTelemetry's own, which would hand every
// error back to the handler that is set.
func isDefault(h otel.ErrorHandler) bool {
	t := reflect.TypeOf(h)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.HasPrefix(t.PkgPath(), "go.opentelemetry.io/otel/internal/")
}

// Handle gives err to the listeners that are open. Where there are none, spans
// of an earlier batch may be concerned, or none at all: it is logged.
func (h *errorHandler) Handle(err error) {
	if err == nil {
		return
	}
	if h.before != nil {
		h.before.Handle(err)
	}
	_, _, part := partial(err)
	again := !part && !pluginsdk.Final(err)
	told := fmt.Errorf("reported to otel.Handle: %w", err)
	h.mu.Lock()
	heard := false
	for _, l := range h.listeners {
		if !l.opened {
			continue
		}
		heard = true
		if len(l.errs) < mostHeard {
			l.errs = append(l.errs, told)
		} else if again {
			l.errs[mostHeard-1] = told
		}
	}
	log := slog.Default()
	if len(h.listeners) > 0 {
		log = h.listeners[0].log
	}
	h.mu.Unlock()
	if !heard {
		log.Warn("reported to otel.Handle while no batch was under way", "error", err)
	}
}

// open begins to keep what is reported.
func (l *listener) open() {
	handler.mu.Lock()
	defer handler.mu.Unlock()
	l.opened = true
}

// take gives what was reported since the last time.
func (l *listener) take() []error {
	handler.mu.Lock()
	defer handler.mu.Unlock()
	errs := l.errs
	l.errs = nil
	return errs
}

// close stops that, and forgets what was not taken.
func (l *listener) close() {
	handler.mu.Lock()
	defer handler.mu.Unlock()
	l.opened, l.errs = false, nil
}

// leave closes for good.
func (l *listener) leave() {
	l.close()
	handler.mu.Lock()
	defer handler.mu.Unlock()
	handler.listeners = slices.DeleteFunc(handler.listeners, func(one *listener) bool { return one == l })
}
