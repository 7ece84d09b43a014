package launch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds on what a plugin can make of the host's log. What is above them is
// read all the same, so that a plugin never blocks on its output, and counted.
const (
	// maxLine is how much of a line is logged, bytes. The rest is passed over.
	maxLine = 8 << 10
	// readBuffer is read at once.
	readBuffer = 64 << 10
	// linesPerSecond are logged at most, of a plugin's lines.
	linesPerSecond = 100
)

// output reads what a plugin prints and logs it: JSON lines in hclog's form
// with their level and fields, others as they are.
type output struct {
	log *slog.Logger

	mu         sync.Mutex
	second     time.Time // start of the running second
	logged     int       // lines logged in it
	suppressed int       // lines not logged since the last one that was
	last       []byte    // last line that was not empty, or a panic's first
	panicking  bool      // a Go panic has begun: all that follows belongs to it
	passed     uint64    // lines not logged, in all
	printed    ring
}

func newOutput(log *slog.Logger) *output {
	return &output{log: log, printed: ring{size: keptOutput}}
}

// keptOutput is how much of the end of a plugin's output is kept, bytes.
const keptOutput = 64 << 10

// tail is the last of what was printed, as printed.
func (o *output) tail() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept, _ := o.printed.bytes()
	return kept
}

// suppressedLines counts the lines that were not logged.
func (o *output) suppressedLines() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.passed
}

// read reads r to its end, a line at a time, and logs each line that offer
// (which may be nil) does not take.
func (o *output) read(r io.Reader, stream string, offer func([]byte) bool) {
	lines := bufio.NewReaderSize(r, readBuffer)
	for rest := false; ; { // rest: what comes belongs to a line that was too long
		line, err := lines.ReadSlice('\n')
		o.keep(line)
		if text := bytes.TrimRight(line, "\r\n"); !rest && len(text) > 0 && (offer == nil || !offer(text)) {
			o.line(stream, text)
		}
		rest = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !rest {
			return // end of file, or our end was closed
		}
	}
}

func (o *output) keep(printed []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.printed.write(printed)
}

// writer gives a writer that logs lines; a line that is not ended is logged
// all the same.
func (o *output) writer(stream string) io.Writer { return &lineWriter{o: o, stream: stream} }

type lineWriter struct {
	o      *output
	stream string
}

// Write logs the lines of p.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.o.keep(p)
	for line := range bytes.Lines(p) {
		if text := bytes.TrimRight(line, "\r\n"); len(text) > 0 {
			w.o.line(w.stream, text)
		}
	}
	return len(p), nil
}

// line logs one line, unless there were too many in this second: such a line is
// not even looked into.
func (o *output) line(stream string, line []byte) {
	line = line[:min(len(line), maxLine)]
	suppressed, panicking, ok := o.admit(stream, line)
	if suppressed > 0 {
		o.log.Warn("plugin printed more lines than are logged", "suppressed", suppressed)
	}
	if ok {
		level, msg, attrs := parse(stream, strings.ToValidUTF8(string(line), "\uFFFD"), panicking)
		o.log.LogAttrs(context.Background(), level, msg, attrs...)
	}
}

// The beginnings of a Go program's last words.
var (
	panicWord = []byte("panic: ")
	fatalWord = []byte("fatal error: ")
)

// admit counts a line and tells whether it is to be logged, whether it belongs
// to a Go panic, and how many before it were not logged, when that is to be
// said.
func (o *output) admit(stream string, line []byte) (suppressed int, panicking, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.panicking {
		o.last = append(o.last[:0], line...)
		o.panicking = stream == "stderr" && (bytes.HasPrefix(line, panicWord) || bytes.HasPrefix(line, fatalWord))
	}
	if now := time.Now(); now.Sub(o.second) >= time.Second {
		o.second, o.logged = now, 0
	}
	if o.logged >= linesPerSecond {
		o.suppressed++
		o.passed++
		return 0, o.panicking, false
	}
	o.logged++
	suppressed, o.suppressed = o.suppressed, 0
	return suppressed, o.panicking, true
}

// flush says how many lines at the end were not logged.
func (o *output) flush() {
	o.mu.Lock()
	suppressed := o.suppressed
	o.suppressed = 0
	o.mu.Unlock()
	if suppressed > 0 {
		o.log.Warn("plugin printed more lines than are logged", "suppressed", suppressed)
	}
}

// lastLine is the last line that said something, shortened; of a JSON line it
// is the message.
func (o *output) lastLine() string {
	o.mu.Lock()
	last := strings.ToValidUTF8(string(o.last), "\uFFFD")
	o.mu.Unlock()
	if record, ok := parseRecord(last); ok {
		last = record.message
		for _, attr := range record.attrs {
			if attr.Key == "error" {
				last += ": " + attr.Value.String()
			}
		}
	}
	const most = 200
	if len(last) > most {
		last = strings.ToValidUTF8(last[:most], "") + "…"
	}
	return last
}

// parse finds level, message and fields of a line. Plain lines are information
// for people; those of a Go panic are errors, to the end.
func parse(stream, text string, panicking bool) (slog.Level, string, []slog.Attr) {
	if record, ok := parseRecord(text); ok {
		return record.level, record.message, record.attrs
	}
	level := slog.LevelInfo
	if panicking {
		level = slog.LevelError
	}
	for _, l := range levelPrefixes {
		if strings.HasPrefix(text, l.prefix) {
			level = l.level
		}
	}
	return level, text, []slog.Attr{slog.String("stream", stream)}
}

// levelPrefixes are those that hclog users print by habit.
var levelPrefixes = []struct {
	prefix string
	level  slog.Level
}{
	{"[TRACE]", slog.LevelDebug}, {"[DEBUG]", slog.LevelDebug}, {"[INFO]", slog.LevelInfo},
	{"[WARN]", slog.LevelWarn}, {"[ERROR]", slog.LevelError},
}

// record is a log line in the form of hclog's JSON, which pluginsdk writes too.
type record struct {
	level   slog.Level
	message string
	attrs   []slog.Attr
}

func parseRecord(text string) (record, bool) {
	if !strings.HasPrefix(text, "{") {
		return record{}, false
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return record{}, false
	}
	message, ok := fields["@message"].(string)
	if !ok {
		return record{}, false
	}
	r := record{message: message, level: slog.LevelInfo}
	switch name, _ := fields["@level"].(string); name {
	case "trace", "debug":
		r.level = slog.LevelDebug
	case "warn":
		r.level = slog.LevelWarn
	case "error":
		r.level = slog.LevelError
	}
	keys := make([]string, 0, len(fields))
	for key := range fields {
		if !strings.HasPrefix(key, "@") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		r.attrs = append(r.attrs, slog.String(key, fmt.Sprint(fields[key])))
	}
	return r, true
}
