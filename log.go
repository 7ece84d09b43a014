package servetrace

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/servetrace/servetrace/internal/stdio"
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

// ownLog makes the log of a service that is given none, on standard error by a
// queue, and lends it to user code. end gives it back and writes what waits.
func (c Config) ownLog() (own *slog.Logger, queue *logQueue, end func()) {
	to := io.Discard
	if stderr := stdio.Stderr(); stderr != nil {
		to = stderr
	}
	queue = newLogQueue(to, c.dropNotice)
	own = c.newLog(queue)
	giveBack := lendLog(own, queue)
	return own, queue, func() {
		giveBack()
		queue.close()
	}
}

// dropNotice is the line that tells how many lines of the log were dropped. It is
// logged at every level at which there are lines to drop.
func (c Config) dropNotice(dropped uint64) []byte {
	var line bytes.Buffer
	c.newLog(&line).Log(context.Background(), max(c.LogLevel, slog.LevelWarn),
		"log lines dropped: the log is read more slowly than it is written", "lines", dropped)
	return line.Bytes()
}

// gosLog is what package slog has before a program sets something else.
var gosLog = slog.Default().Handler()

// lendLog makes own the log that user code finds in package slog, and in package
// log, until giveBack. A program that has set one keeps it. queue has what own
// writes.
func lendLog(own *slog.Logger, queue *logQueue) (giveBack func()) {
	before := slog.Default()
	if before.Handler() != gosLog {
		return func() {}
	}
	// slog takes package log along, but only there, not back.
	writer, flags := log.Writer(), log.Flags() //nolint:forbidigo // they are handed back
	slog.SetDefault(slog.New(lastWords{own.Handler(), queue}))
	log.SetOutput(fatalWriter{log.Writer(), queue}) //nolint:forbidigo // as above
	return func() {
		slog.SetDefault(before)
		log.SetOutput(writer) //nolint:forbidigo // as above
		log.SetFlags(flags)   //nolint:forbidigo // as above
	}
}

// How long user code waits for lines that may be its last.
const (
	lastWordsTimeout = 100 * time.Millisecond
	lastWordsRest    = time.Minute
	fatalTimeout     = time.Second
)

// lastWords is the handler that user code logs by. A program that calls os.Exit
// ends the queue too, and often has logged an error just before. So user code waits
// until its errors are written: for 100 ms, and then for a minute not again.
type lastWords struct {
	slog.Handler
	queue *logQueue
}

// Handle implements slog.Handler.
func (h lastWords) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelError {
		h.queue.settleSeldom()
	}
	return err
}

// WithAttrs implements slog.Handler.
func (h lastWords) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lastWords{h.Handler.WithAttrs(attrs), h.queue}
}

// WithGroup implements slog.Handler.
func (h lastWords) WithGroup(name string) slog.Handler {
	return lastWords{h.Handler.WithGroup(name), h.queue}
}

// fatalWriter is the output of package log. log.Fatal ends the process right after
// the line, which must be written by then.
type fatalWriter struct {
	io.Writer
	queue *logQueue
}

// Write writes the line, and waits for it if log.Fatal writes it.
func (w fatalWriter) Write(line []byte) (int, error) {
	n, err := w.Writer.Write(line)
	if calledByFatal() {
		w.queue.settle(fatalTimeout)
	}
	return n, err
}

// calledByFatal reports whether one of log.Fatal, log.Fatalf and log.Fatalln has
// called the caller.
func calledByFatal() bool {
	var callers [8]uintptr // between it and Fatal are the functions of package log alone
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		frame, more := frames.Next()
		if strings.HasPrefix(frame.Function, "log.Fatal") {
			return true
		}
		if !more {
			return false
		}
	}
}
