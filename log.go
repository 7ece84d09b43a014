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

	"github.com/servetrace/servetrace/internal/logqueue"
	"github.com/servetrace/servetrace/internal/stdio"
	"github.com/servetrace/servetrace/tracing"
)

// newLog returns a logger that writes to w in the format and from the level of c.
func (c Config) newLog(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel}
	var handler slog.Handler = slog.NewTextHandler(w, opts)
	if c.LogFormat == LogJSON {
		handler = slog.NewJSONHandler(w, opts)
	}
	return slog.New(tracing.NewLogHandler(handler))
}

// startLog starts the log of a service if the program brings no logger. The log writes to
// standard error through a queue. It also becomes the default logger of package slog, unless
// the program has set a default. end restores the previous default and writes the lines that
// are left in the queue.
func (c Config) startLog() (own *slog.Logger, queue *logqueue.Queue, end func()) {
	to := io.Discard
	if stderr := stdio.Stderr(); stderr != nil {
		to = stderr
	}
	queue = logqueue.New(to, c.dropNotice)
	own = c.newLog(queue)
	restore := setDefaultLog(own, queue)
	return own, queue, func() {
		restore()
		queue.Close()
	}
}

// dropNotice returns the log line with the number of dropped lines. The level of the line
// is at least WARN, and high enough for the log to write it.
func (c Config) dropNotice(dropped uint64) []byte {
	var line bytes.Buffer
	c.newLog(&line).Log(context.Background(), max(c.LogLevel, slog.LevelWarn),
		"log lines dropped: the log is read more slowly than it is written", "lines", dropped)
	return line.Bytes()
}

// initialHandler is the handler of package slog's default logger, unless the program sets
// another default.
var initialHandler = slog.Default().Handler()

// setDefaultLog makes own, which writes to queue, the default of the packages slog and log,
// until restore is called. If the program has already set a default, setDefaultLog does
// nothing.
func setDefaultLog(own *slog.Logger, queue *logqueue.Queue) (restore func()) {
	before := slog.Default()
	if before.Handler() != initialHandler {
		return func() {}
	}
	// slog.SetDefault also redirects package log, and does not restore it.
	writer, flags := log.Writer(), log.Flags() //nolint:forbidigo // restored below
	slog.SetDefault(slog.New(flushHandler{own.Handler(), queue}))
	log.SetOutput(fatalWriter{log.Writer(), queue}) //nolint:forbidigo // as above
	return func() {
		slog.SetDefault(before)
		log.SetOutput(writer) //nolint:forbidigo // as above
		log.SetFlags(flags)   //nolint:forbidigo // as above
	}
}

// fatalTimeout is the longest time that log.Fatal waits until its line is written.
const fatalTimeout = time.Second

// flushHandler handles the log lines of user code. After a line at level ERROR or above, it
// waits a short time until the queue has written the line, because the program may call
// os.Exit next.
type flushHandler struct {
	slog.Handler
	queue *logqueue.Queue
}

// Handle implements slog.Handler.
func (h flushHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelError {
		h.queue.WaitWrittenSeldom()
	}
	return err
}

// WithAttrs implements slog.Handler.
func (h flushHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return flushHandler{h.Handler.WithAttrs(attrs), h.queue}
}

// WithGroup implements slog.Handler.
func (h flushHandler) WithGroup(name string) slog.Handler {
	return flushHandler{h.Handler.WithGroup(name), h.queue}
}

// fatalWriter is the output of package log. It makes log.Fatal wait until the queue has
// written its line, because log.Fatal ends the process right after the line.
type fatalWriter struct {
	io.Writer
	queue *logqueue.Queue
}

// Write passes the line to the queue. If log.Fatal is the caller, Write waits until the queue
// has written the line.
func (w fatalWriter) Write(line []byte) (int, error) {
	n, err := w.Writer.Write(line)
	if calledByFatal() {
		w.queue.WaitWritten(fatalTimeout)
	}
	return n, err
}

// calledByFatal reports whether its caller was called by log.Fatal, Fatalf or Fatalln.
func calledByFatal() bool {
	var callers [8]uintptr // large enough, because only functions of package log are between this function and log.Fatal
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
