package pluginsdk

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
)

// newLogger returns a logger that writes a line of JSON for each record, with the field
// names of hclog. A servetrace host and go-plugin's client parse these lines.
func newLogger(w io.Writer) *slog.Logger {
	return slog.New(&logHandler{Handler: slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: hclogNames})})
}

// hclogTime is the time format of hclog, the only one that go-plugin's client can parse.
const hclogTime = "2006-01-02T15:04:05.000000Z07:00"

// hclogNames renames the fields for time, level and message from slog's names to hclog's.
// logHandler ensures that no other top-level field has one of these names.
func hclogNames(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		return slog.String("@timestamp", a.Value.Time().Format(hclogTime))
	case slog.LevelKey:
		level, _ := a.Value.Any().(slog.Level)
		return slog.String("@level", levelName(level))
	case slog.MessageKey:
		return slog.String("@message", a.Value.String())
	}
	return a
}

func levelName(level slog.Level) string {
	switch {
	case level < slog.LevelDebug:
		return "trace"
	case level < slog.LevelInfo:
		return "debug"
	case level < slog.LevelWarn:
		return "info"
	case level < slog.LevelError:
		return "warn"
	}
	return "error"
}

// logHandler renames attributes of the plugin's author that have the key of a field that
// each line has. Otherwise go-plugin's client could panic, because it expects "@message"
// to be a string.
type logHandler struct {
	slog.Handler
	grouped bool
}

var _ slog.Handler = (*logHandler)(nil)

// Handle writes the record, with safe keys for its attributes.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.grouped {
		return h.Handler.Handle(ctx, r)
	}
	safe := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		safe.AddAttrs(safeKey(a))
		return true
	})
	return h.Handler.Handle(ctx, safe)
}

// WithAttrs returns a handler that adds attrs, with safe keys.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	safe := attrs
	if !h.grouped {
		safe = make([]slog.Attr, len(attrs))
		for i, a := range attrs {
			safe[i] = safeKey(a)
		}
	}
	return &logHandler{h.Handler.WithAttrs(safe), h.grouped}
}

// WithGroup returns a handler that puts later attributes into a group. There, every key
// is safe, because only top-level keys can clash.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{h.Handler.WithGroup(safeKey(slog.Group(name)).Key), true}
}

// safeKey puts an underscore before the key of an attribute, if each line has a field
// with this key. slog writes the members of a group without a name at the top level, so
// safeKey renames them, too.
func safeKey(a slog.Attr) slog.Attr {
	if a.Key == "" && a.Value.Kind() == slog.KindGroup {
		members := a.Value.Group()
		safe := make([]slog.Attr, len(members))
		for i, member := range members {
			safe[i] = safeKey(member)
		}
		return slog.Attr{Value: slog.GroupValue(safe...)}
	}
	switch {
	case strings.HasPrefix(a.Key, "@"), a.Key == slog.TimeKey, a.Key == slog.LevelKey, a.Key == slog.MessageKey:
		a.Key = "_" + a.Key
	}
	return a
}

// sharedWriters returns writers for Env.Stdout and Env.Stderr that are safe for
// concurrent use. It applies the defaults for nil that Env documents.
func sharedWriters(stdout, stderr io.Writer) (io.Writer, io.Writer) {
	if stderr == nil {
		stderr = io.Discard
	}
	stderr = &sharedWriter{w: stderr}
	if stdout == nil {
		return stderr, stderr
	}
	return &sharedWriter{w: stdout}, stderr
}

// sharedWriter calls Write of w for one caller at a time. If w is a file, its descriptor
// is available, so that a plugin can detect a terminal.
type sharedWriter struct {
	w  io.Writer
	mu sync.Mutex // held during each Write of w
}

var (
	_ io.Writer    = (*sharedWriter)(nil)
	_ syscall.Conn = (*sharedWriter)(nil)
)

// Write passes b to w in a single Write, so that the output of two callers does not mix.
func (s *sharedWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// SyscallConn gives access to the descriptor of w, for inspection and not for writes. It
// returns errors.ErrUnsupported if w has no descriptor.
func (s *sharedWriter) SyscallConn() (syscall.RawConn, error) {
	if file, ok := s.w.(syscall.Conn); ok {
		return file.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
