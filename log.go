package servetrace

import (
	"io"
	"log"
	"log/slog"

	"github.com/servetrace/servetrace/tracing"
)

// newLog makes the log of a service that is given none, on w.
func (c Config) newLog(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel}
	var handler slog.Handler = slog.NewTextHandler(w, opts)
	if c.LogFormat == LogJSON {
		handler = slog.NewJSONHandler(w, opts)
	}
	return slog.New(tracing.NewLogHandler(handler))
}

// gosLog is what package slog has before a program sets something else.
var gosLog = slog.Default().Handler()

// lendLog makes own the log that user code finds in package slog, and in package
// log, until giveBack. A program that has set one keeps it.
func lendLog(own *slog.Logger) (giveBack func()) {
	before := slog.Default()
	if before.Handler() != gosLog {
		return func() {}
	}
	// slog takes package log along, but only there, not back.
	writer, flags := log.Writer(), log.Flags() //nolint:forbidigo // they are handed back
	slog.SetDefault(own)
	return func() {
		slog.SetDefault(before)
		log.SetOutput(writer) //nolint:forbidigo // as above
		log.SetFlags(flags)   //nolint:forbidigo // as above
	}
}
