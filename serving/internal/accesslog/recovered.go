package accesslog

import (
	"context"
	"log/slog"
	"runtime/debug"

	"github.com/servetrace/servetrace/tracing"
)

// Recovered logs a panic with the value v, and returns it as an error. Call it in the
// deferred function that recovered from the panic. It is for panics of user code such as a
// log handler or a span processor, which would otherwise end the process.
func (l Log) Recovered(ctx context.Context, v any) error {
	p := &tracing.PanicError{Value: v, Stack: debug.Stack()}
	slog.New(Unbreakable{l.Handler()}).LogAttrs(ctx, slog.LevelError, "panic around a handler",
		slog.Any("panic", p.Value), slog.String("stack", string(p.Stack)))
	return p
}

// Unbreakable wraps a user's log handler, and drops the panics of that handler. It is for
// goroutines on which a panic would end the process.
type Unbreakable struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (u Unbreakable) Enabled(ctx context.Context, level slog.Level) (is bool) {
	defer func() { _ = recover() }() // the panic is dropped, because the log itself has failed
	return u.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (u Unbreakable) Handle(ctx context.Context, r slog.Record) (err error) {
	defer func() { _ = recover() }() // the panic is dropped, because the log itself has failed
	return u.Handler.Handle(ctx, r)
}
