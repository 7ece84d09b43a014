package serving

import (
	"context"
	"log/slog"
	"runtime/debug"

	"github.com/servetrace/servetrace/tracing"
)

// survived is for what has panicked on a goroutine of ours and is not the user's
// handler: his log, say, or one of his span processors. It must not end the
// process. It is logged where that is possible, and an error from then on.
func survived(ctx context.Context, log *slog.Logger, v any) error {
	p := &tracing.PanicError{Value: v, Stack: debug.Stack()}
	slog.New(unbreakable{log.Handler()}).LogAttrs(ctx, slog.LevelError, "panic around a handler",
		slog.Any("panic", p.Value), slog.String("stack", string(p.Stack)))
	return p
}

// unbreakable is a user's log where nobody would recover from its panics.
type unbreakable struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (u unbreakable) Enabled(ctx context.Context, level slog.Level) (is bool) {
	defer func() { _ = recover() }() // there is nobody to tell
	return u.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (u unbreakable) Handle(ctx context.Context, r slog.Record) (err error) {
	defer func() { _ = recover() }() // as above
	return u.Handler.Handle(ctx, r)
}
