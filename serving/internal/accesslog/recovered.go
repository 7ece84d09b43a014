package accesslog

import (
	"context"
	"log/slog"
	"runtime/debug"

	"github.com/servetrace/servetrace/tracing"
)

// Recovered logs a panic with the value v, if possible, and returns it as an error. The
// caller has recovered the panic from user code such as a log handler or a span processor,
// on a goroutine of the runtime. Such a panic must not end the process.
func (l Log) Recovered(ctx context.Context, v any) error {
	p := &tracing.PanicError{Value: v, Stack: debug.Stack()}
	slog.New(Unbreakable{l.Handler()}).LogAttrs(ctx, slog.LevelError, "panic around a handler",
		slog.Any("panic", p.Value), slog.String("stack", string(p.Stack)))
	return p
}

// Unbreakable is a user's log handler. It recovers from panics of the handler and drops
// them. It is for goroutines that do not recover from such panics.
type Unbreakable struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (u Unbreakable) Enabled(ctx context.Context, level slog.Level) (is bool) {
	defer func() { _ = recover() }() // there is no log to report it to
	return u.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (u Unbreakable) Handle(ctx context.Context, r slog.Record) (err error) {
	defer func() { _ = recover() }() // there is no log to report it to
	return u.Handler.Handle(ctx, r)
}
