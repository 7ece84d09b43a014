package launch

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/printable"
)

// Bounds of the plugin's output that is read and kept.
const (
	// maxLine is the longest part of a line that is logged, in bytes.
	maxLine = 8 << 10
	// maxLastLine is the longest part of the last line that an error quotes, in bytes.
	maxLastLine = 200
	// keptOutput is the size of the end of the output that is kept, in bytes.
	keptOutput = 64 << 10
	// readBuffer is the size of a read, in bytes.
	readBuffer = 64 << 10
	// pipeBytes is the size of a pipe after the plugin has once printed more than is logged,
	// if the kernel allows this size. Other pipes keep their size, because the kernel limits
	// all pipes of a user together (pipe-user-pages-soft).
	pipeBytes = 1 << 20
	// floodPause follows each read while more is printed than is logged.
	floodPause = 10 * time.Millisecond
	// noticeEvery is the shortest time between two log lines about skipped lines.
	noticeEvery = 5 * time.Second
)

// pluginLog handles the text that a plugin prints. It logs lines up to a rate. Lines in
// hclog's JSON form keep their level and their fields. It keeps the end of the whole output,
// and the beginning of the last stack.
//
//  1. A stream for each descriptor reads chunks and cuts them into lines, under the mutex.
//     It copies the lines for the log, and logs them without the mutex.
//  2. Above the rate, lines are only counted. A timer logs their number, and end logs the
//     final number.
//  3. end is called once, after all streams have ended. Later output of a writer is kept
//     and counted, but not logged.
type pluginLog struct {
	log     *slog.Logger
	secrets Redactor

	mu      sync.Mutex
	allowed allowance
	tail    []byte // the end of the output, at most tailBytes()
	stack   stack
	last    []byte // the last line that is not empty; while a stack is printed, the line that describes the fault
	passed  uint64 // number of lines that were not logged
	// Counts since the last log line about skipped output: the skipped lines, and the bytes
	// of the skipped lines and of the skipped ends of long lines.
	unsaidLines, unsaidBytes uint64
	notice                   *time.Timer    // will log the skipped output; nil if none was skipped
	noticing                 sync.WaitGroup // waits for the function of the timer notice
	ended                    bool           // the method end was called
	writers                  []*stream      // the streams that the method writer has returned
}

func newPluginLog(log *slog.Logger, secrets []string) *pluginLog {
	return &pluginLog{log: log, secrets: NewRedactor(secrets)}
}

// stream is the output of one descriptor. The mutex of the pluginLog guards its fields.
type stream struct {
	o    *pluginLog
	name string
	// offer is called with each line, until it returns true: the line is the handshake, which
	// is not logged. Then offer is nil. It is nil from the start if no handshake is expected.
	offer func(line []byte) bool
	line  []byte // the beginning of the unfinished line
	size  int    // the length of the unfinished line, which may be more than line holds
}

// read reads r until its end, or until it is closed. It pauses while more is printed
// than is logged. So endless output takes only a small part of a core of the host.
func (o *pluginLog) read(r *os.File, name string, offer func([]byte) bool) {
	s := &stream{o: o, name: name, offer: offer}
	buf := make([]byte, readBuffer)
	for taken := 0; ; {
		n, err := r.Read(buf)
		tooMuch := s.take(buf[:n])
		if err != nil {
			s.finish()
			return
		}
		if taken += n; tooMuch && (n < len(buf) || taken >= pipeBytes) {
			widen(r, pipeBytes)
			time.Sleep(floodPause)
			taken = 0
		}
	}
}

// writer returns a writer. Text that is written to it is handled like a plugin's output.
func (o *pluginLog) writer(name string) io.Writer {
	s := &stream{o: o, name: name}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writers = append(o.writers, s)
	return s
}

// Write implements [io.Writer]. It never fails.
func (s *stream) Write(p []byte) (int, error) {
	s.take(p)
	return len(p), nil
}

// take handles a chunk of output. tooMuch reports that the plugin prints more than is
// logged.
func (s *stream) take(chunk []byte) (tooMuch bool) {
	s.o.mu.Lock()
	lines, tooMuch := s.splitLocked(chunk, time.Now())
	s.o.mu.Unlock()
	s.o.logLines(lines)
	return tooMuch
}

// finish handles the unfinished line at the end of the output.
func (s *stream) finish() {
	var lines []entry
	s.o.mu.Lock()
	if s.size > 0 && s.size <= s.o.maxKnown() {
		s.lineLocked(s.line, time.Now(), &lines)
	}
	s.line, s.size = nil, 0
	s.o.mu.Unlock()
	s.o.logLines(lines)
}

// splitLocked cuts a chunk into lines, and returns the lines to log. tooMuch reports that
// the plugin prints more than is logged.
func (s *stream) splitLocked(chunk []byte, now time.Time) (lines []entry, tooMuch bool) {
	o := s.o
	o.keepLocked(chunk)
	shut := o.allowed.fill(now)
	for len(chunk) > 0 {
		if shut && s.size == 0 {
			if chunk = s.skipLocked(chunk, now); len(chunk) == 0 {
				break
			}
		}
		part, rest, whole := bytes.Cut(chunk, newline)
		chunk = rest
		line := part
		if s.size > 0 || !whole {
			s.line = append(s.line, part[:min(len(part), max(0, o.maxKnown()-len(s.line)))]...)
			line = s.line
		}
		handled := s.size > o.maxKnown() // lineLocked has got the beginning of this long line
		s.size += len(part)
		switch {
		case handled:
			o.passLocked(0, len(part))
		case whole || s.size > o.maxKnown():
			s.lineLocked(line, now, &lines)
		}
		if whole {
			s.line, s.size = s.line[:0], 0
		}
	}
	return lines, o.allowed.shut || s.size > o.maxKnown()
}

var newline = []byte{'\n'}

// keepLocked appends a chunk to the kept end of the output.
func (o *pluginLog) keepLocked(chunk []byte) {
	most := o.tailBytes()
	o.tail = append(o.tail, chunk[max(0, len(chunk)-most):]...)
	o.tail = slices.Delete(o.tail, 0, max(0, len(o.tail)-most))
}

// skipLocked counts the first lines of a chunk, and does not log them, because the rate limit
// is reached. It stops before an unfinished line, and before a line that may be the handshake
// or the beginning of a stack. It returns the chunk from that line on. A skipped line costs
// little more than the search for its end.
func (s *stream) skipLocked(chunk []byte, now time.Time) []byte {
	o := s.o
	if o.stack.of == s && len(o.stack.head) < o.maxStack() {
		return chunk
	}
	var last []byte
	lines, size := 0, 0
	for {
		end := bytes.IndexByte(chunk, '\n')
		if end < 0 || end > 0 && (stackFirst[chunk[0]] || s.offer != nil) {
			break
		}
		if end > 0 {
			lines, size, last = lines+1, size+end, chunk[:end]
		}
		chunk = chunk[end+1:]
	}
	if lines > 0 {
		o.passLocked(lines, size)
	}
	if lines > 0 && !o.stack.dying(s, now) {
		o.last = append(o.last[:0], last[:min(len(last), o.maxKnown())]...)
	}
	return chunk
}

// maxKnown, maxStack and tailBytes return the number of bytes that are kept of a line, of a
// stack and of the end of the output. They are a little larger than the shown parts, so that
// a secret that is only partly in the shown part is found.
func (o *pluginLog) maxKnown() int  { return maxLine + o.secrets.margin() }
func (o *pluginLog) maxStack() int  { return maxKeptStack + o.secrets.margin() }
func (o *pluginLog) tailBytes() int { return keptOutput + o.secrets.margin() }

// lineLocked handles a line, or the beginning of a line that is too long. s.size is the
// length of the line so far. If the rate limit allows, it adds the line to lines, which are
// logged later.
func (s *stream) lineLocked(line []byte, now time.Time, lines *[]entry) {
	o := s.o
	cut := s.size > maxLine
	if !cut {
		line = bytes.TrimRight(line, "\r")
	}
	line = line[:min(len(line), o.maxKnown())]
	shown := line
	if cut && (o.stack.of == s || stackFirst[line[0]]) { // the end of the kept part may be a piece of a secret
		shown = o.secrets.window(line, 0, maxLine)
	}
	cause := o.stack.line(s, shown, now, o.maxStack())
	if len(line) == 0 {
		o.allowed.take(0) // empty lines count for the rate limit, too
		return
	}
	if s.offer != nil && !cut && s.offer(line) {
		s.offer = nil
		return
	}
	if cause || !o.stack.dying(s, now) {
		o.last = append(o.last[:0], line...)
	}
	if !o.allowed.take(min(len(line), maxLine)) {
		o.passLocked(1, s.size)
		return
	}
	if cut {
		o.passLocked(0, s.size-maxLine)
	}
	*lines = append(*lines, entry{stream: s.name, raw: bytes.Clone(line), cut: cut})
}

// entry is a line to log.
type entry struct {
	stream string
	raw    []byte // the line, not redacted yet; at most maxKnown() bytes
	cut    bool   // the line is longer than maxLine
}

// logLines logs lines. Control characters are escaped, which makes a line longer. The
// additional bytes count for the rate limit.
func (o *pluginLog) logLines(lines []entry) {
	grown := 0
	for _, e := range lines {
		text := string(o.secrets.window(e.raw, 0, min(len(e.raw), maxLine)))
		if r, ok := parseRecord(string(e.raw)); ok && !e.cut {
			r, size := r.clean(o.secrets)
			grown += size - len(e.raw)
			o.log.LogAttrs(context.Background(), r.level, r.message, r.attrs...)
			continue
		}
		message := printable.Text(text)
		grown += len(message) - len(text)
		if e.cut {
			message += "…"
		}
		o.log.LogAttrs(context.Background(), plainLevel(text), message, slog.String("stream", e.stream))
	}
	if grown > 0 {
		o.mu.Lock()
		o.allowed.bytes -= float64(grown)
		o.mu.Unlock()
	}
}

// passLocked counts output that is not logged, and starts the timer that logs these counts.
func (o *pluginLog) passLocked(lines, size int) {
	o.passed += uint64(lines)
	o.unsaidLines += uint64(lines)
	o.unsaidBytes += uint64(size)
	if o.notice == nil && !o.ended {
		o.noticing.Add(1)
		o.notice = time.AfterFunc(noticeEvery, o.logPassed)
	}
}

// logPassed logs the numbers of lines and bytes that were skipped since its last call.
func (o *pluginLog) logPassed() {
	defer o.noticing.Done()
	o.mu.Lock()
	lines, size := o.unsaidLines, o.unsaidBytes
	o.unsaidLines, o.unsaidBytes, o.notice = 0, 0, nil
	o.mu.Unlock()
	o.log.Warn("plugin printed more lines than are logged", "suppressed", lines, "suppressed_bytes", size)
}

// end handles the unfinished lines of writers, and logs the number of skipped lines. After
// that, nothing is logged.
func (o *pluginLog) end() {
	o.mu.Lock()
	writers := o.writers
	o.mu.Unlock()
	for _, w := range writers {
		w.finish()
	}
	o.mu.Lock()
	o.ended = true
	last := o.notice != nil && o.notice.Stop()
	o.mu.Unlock()
	if last {
		o.logPassed()
	}
	o.noticing.Wait()
}

// suppressed returns the number of lines that were not logged.
func (o *pluginLog) suppressed() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.passed
}

// lastLine returns the last line that is not empty, shortened. While the plugin prints a
// stack, it returns the line that describes the fault. From a line in hclog's JSON form it
// returns the message and the field "error".
func (o *pluginLog) lastLine() string {
	o.mu.Lock()
	raw := bytes.Clone(o.last)
	o.mu.Unlock()
	last := string(o.secrets.window(raw, 0, min(len(raw), maxLine)))
	if r, ok := parseRecord(string(raw)); ok {
		r, _ = r.clean(o.secrets)
		last = r.message
		for _, attr := range r.attrs {
			if attr.Key == "error" {
				last += ": " + attr.Value.String()
			}
		}
	}
	last = printable.Text(last)
	if len(last) > maxLastLine {
		last = strings.ToValidUTF8(last[:maxLastLine], "") + "…"
	}
	return last
}

// threadsLacking are messages of Go and C programs that cannot start a thread.
var threadsLacking = []string{"newosproc", "pthread_create failed", "Resource temporarily unavailable"}

// lackedThreads reports whether the output contains one of the messages threadsLacking.
func (o *pluginLog) lackedThreads() bool {
	text := string(o.kept())
	return slices.ContainsFunc(threadsLacking, func(words string) bool { return strings.Contains(text, words) })
}

// kept returns the end of the output without the secrets, at most keptOutput bytes. Control
// characters are not escaped.
func (o *pluginLog) kept() []byte {
	o.mu.Lock()
	all := bytes.Clone(o.tail)
	o.mu.Unlock()
	end := o.secrets.window(all, max(0, len(all)-keptOutput), len(all))
	return end[max(0, len(end)-keptOutput):]
}

// keptStack returns the beginning of the last stack, at most maxKeptStack bytes, and the
// time at which the stack began.
func (o *pluginLog) keptStack() (string, time.Time) {
	o.mu.Lock()
	head, begun := bytes.Clone(o.stack.head), o.stack.begun
	o.mu.Unlock()
	head = o.secrets.window(head, 0, min(len(head), maxKeptStack))
	shown := printable.Lines(string(head))
	return strings.ToValidUTF8(shown[:min(len(shown), maxKeptStack)], ""), begun
}

// Limits of the log lines of a plugin. Further output is read and counted, so that the
// plugin never blocks on it.
const (
	linesPerSecond = 100
	bytesPerSecond = 32 << 10
	burstLines     = 200 // the largest number of lines at once
	burstBytes     = 64 << 10
)

// allowance limits the log lines of a plugin by two token buckets: one for lines, one for
// bytes. If a bucket is empty, nothing is logged until both buckets are half full. So a
// plugin that prints too much has groups of consecutive lines in the log.
type allowance struct {
	lines, bytes float64   // tokens left; bytes may be negative
	filled       time.Time // time of the last call of fill
	shut         bool      // nothing is logged until both buckets are half full
}

// fill adds the tokens for the time since the last call. It reports whether nothing may be
// logged.
func (a *allowance) fill(now time.Time) (shut bool) {
	since := now.Sub(a.filled).Seconds()
	if a.filled.IsZero() {
		since = burstBytes // longer than both buckets need
	}
	a.filled = now
	a.lines = min(burstLines, a.lines+since*linesPerSecond)
	a.bytes = min(burstBytes, a.bytes+since*bytesPerSecond)
	a.shut = a.shut && (a.lines < burstLines/2 || a.bytes < burstBytes/2)
	return a.shut
}

// take takes the tokens of a line of size bytes. It reports false, and takes nothing, if a
// bucket is empty. A line may take more bytes than are left, which delays later lines.
func (a *allowance) take(size int) bool {
	a.shut = a.shut || a.lines < 1 || a.bytes <= 0
	if a.shut {
		return false
	}
	a.lines--
	a.bytes -= float64(size)
	return true
}
