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

// Bounds on what is kept of what a plugin prints.
const (
	// maxLine is how much of a line is logged, bytes. The rest is passed over.
	maxLine = 8 << 10
	// maxLastLine is how much of the last line stands in an error, bytes.
	maxLastLine = 200
	// keptOutput is how much of the end of the output is kept, bytes.
	keptOutput = 64 << 10
	// readBuffer is read at once, bytes.
	readBuffer = 64 << 10
	// pipeBytes is the size of a pipe from the first flood on, if the kernel allows.
	// Not before: a user may have only so much in all pipes (pipe-user-pages-soft).
	pipeBytes = 1 << 20
	// floodPause follows each pipe read while more is printed than is logged.
	floodPause = 10 * time.Millisecond
	// noticeEvery is how often, at most, it is said that lines were not logged.
	noticeEvery = 5 * time.Second
)

// output is what becomes of what a plugin prints: lines go to the log, as many
// as are allowed, JSON lines in hclog's form with their level and fields; the
// end of all is kept, and the beginning of a stack.
//
//  1. A stream, one for each descriptor, reads and cuts into lines. What it
//     read is taken in under the mutex, a chunk at a time; lines for the log
//     are copied out, and logged by the stream's goroutine without it.
//  2. When more is printed than is allowed, lines are counted and no more. A
//     timer says how many, and end what is left.
//  3. end is called once, after the streams have come to their ends. What a
//     writer takes in later is kept and counted, and not logged.
type output struct {
	log     *slog.Logger
	secrets *redactor

	mu      sync.Mutex
	allowed allowance
	tail    ring
	stack   stack
	last    []byte // the last line that was not empty, or the cause of a stack
	passed  uint64 // lines that were not logged
	// Lines, and bytes of them and of long lines, since it was last said.
	unsaidLines, unsaidBytes uint64
	notice                   *time.Timer    // nil: none is due
	noticing                 sync.WaitGroup // for a notice that is due
	ended                    bool
	writers                  []*stream
}

func newOutput(log *slog.Logger, secrets []string) *output {
	o := &output{log: log, secrets: newRedactor(secrets)}
	o.tail.size = keptOutput + o.secrets.margin()
	return o
}

// stream is one descriptor's way into an output. Its fields are guarded by the
// output's mutex.
type stream struct {
	o    *output
	name string
	// offer, which may be nil, is shown each line until it takes one: that is
	// not logged.
	offer func(line []byte) bool
	line  []byte // the beginning of a line that has no end yet
	size  int    // how long that line is already; more than is in line
}

// read reads r to its end, or until it is closed. It pauses while more is printed
// than is logged, so that a plugin that prints without end takes a small part of a
// core of its host.
func (o *output) read(r *os.File, name string, offer func([]byte) bool) {
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

// writer gives a writer that takes in what is written to it, as read does.
func (o *output) writer(name string) io.Writer {
	s := &stream{o: o, name: name}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writers = append(o.writers, s)
	return s
}

// Write takes p in. It never fails.
func (s *stream) Write(p []byte) (int, error) {
	s.take(p)
	return len(p), nil
}

// take takes in what was printed. It tells whether there is too much of it.
func (s *stream) take(chunk []byte) (tooMuch bool) {
	s.o.mu.Lock()
	lines, tooMuch := s.splitLocked(chunk, time.Now())
	s.o.mu.Unlock()
	s.o.logLines(lines)
	return tooMuch
}

// finish takes in the line that has no end.
func (s *stream) finish() {
	var lines []entry
	s.o.mu.Lock()
	if s.size > 0 && s.size <= s.o.mostOfLine() {
		s.lineLocked(s.line, time.Now(), &lines)
	}
	s.line, s.size = nil, 0
	s.o.mu.Unlock()
	s.o.logLines(lines)
}

// splitLocked cuts a chunk into lines. While there is too much, a line costs no
// more than finding its end, a look at its first byte and a copy of it as the
// last.
func (s *stream) splitLocked(chunk []byte, now time.Time) (lines []entry, tooMuch bool) {
	o := s.o
	o.tail.write(chunk)
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
			s.line = append(s.line, part[:min(len(part), max(0, o.mostOfLine()-len(s.line)))]...)
			line = s.line
		}
		told := s.size > o.mostOfLine()
		s.size += len(part)
		switch {
		case told:
			o.passLocked(0, len(part))
		case whole || s.size > o.mostOfLine():
			s.lineLocked(line, now, &lines)
		}
		if whole {
			s.line, s.size = s.line[:0], 0
		}
	}
	return lines, o.allowed.shut || s.size > o.mostOfLine()
}

var newline = []byte{'\n'}

// skipLocked passes over lines of a chunk that are not to be logged, up to one
// that has to be looked into, or has no end, and gives the rest.
func (s *stream) skipLocked(chunk []byte, now time.Time) []byte {
	o := s.o
	if o.stack.of == s && len(o.stack.head) < o.mostOfStack() {
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
		o.last = append(o.last[:0], last[:min(len(last), o.mostOfLine())]...)
	}
	return chunk
}

// mostOfLine is how much of a line must be known to log it.
func (o *output) mostOfLine() int { return maxLine + o.secrets.margin() }

// mostOfStack is the same of a stack.
func (o *output) mostOfStack() int { return keptStack + o.secrets.margin() }

// lineLocked takes in a line of s.size bytes, or its beginning where it is
// longer than is logged, and adds it to those for the log if it is allowed.
func (s *stream) lineLocked(line []byte, now time.Time, lines *[]entry) {
	o := s.o
	cut := s.size > maxLine
	if !cut {
		line = bytes.TrimRight(line, "\r")
	}
	line = line[:min(len(line), o.mostOfLine())]
	told := line
	if cut && (o.stack.of == s || stackFirst[line[0]]) { // its end may be half of a secret
		told = o.secrets.window(line, 0, maxLine)
	}
	cause := o.stack.line(s, told, now, o.mostOfStack())
	if len(line) == 0 {
		o.allowed.take(0) // they cost, and too many of them are a flood
		return
	}
	if s.offer != nil && !cut && s.offer(line) {
		s.offer = nil // it wants no more
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

// entry is a line on its way to the log.
type entry struct {
	stream string
	raw    []byte // at most maxLine and the margin
	cut    bool   // the line was longer than is logged
}

// logLines logs lines, and charges what they have grown by.
func (o *output) logLines(lines []entry) {
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

// passLocked counts what is not logged, and sees to it that this is said.
func (o *output) passLocked(lines, size int) {
	o.passed += uint64(lines)
	o.unsaidLines += uint64(lines)
	o.unsaidBytes += uint64(size)
	if o.notice == nil && !o.ended {
		o.noticing.Add(1)
		o.notice = time.AfterFunc(noticeEvery, o.sayPassed)
	}
}

// sayPassed says what was not logged since it was last said.
func (o *output) sayPassed() {
	defer o.noticing.Done()
	o.mu.Lock()
	lines, size := o.unsaidLines, o.unsaidBytes
	o.unsaidLines, o.unsaidBytes, o.notice = 0, 0, nil
	o.mu.Unlock()
	o.log.Warn("plugin printed more lines than are logged", "suppressed", lines, "suppressed_bytes", size)
}

// end takes in what writers have of a line, says what was not logged, and logs
// nothing after that.
func (o *output) end() {
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
		o.sayPassed()
	}
	o.noticing.Wait()
}

// suppressed counts the lines that were not logged.
func (o *output) suppressed() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.passed
}

// lastLine is the last line that said something, or the cause of a stack,
// shortened; of a record it is the message.
func (o *output) lastLine() string {
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

// threadsLacking are what programs print that can start no thread: Go, then C.
var threadsLacking = []string{"newosproc", "pthread_create failed", "Resource temporarily unavailable"}

// lackedThreads reports whether the output says that a thread could not be started.
func (o *output) lackedThreads() bool {
	text := string(o.kept())
	return slices.ContainsFunc(threadsLacking, func(words string) bool { return strings.Contains(text, words) })
}

// kept is the end of the output as printed, at most keptOutput bytes.
func (o *output) kept() []byte {
	o.mu.Lock()
	all := o.tail.bytes()
	o.mu.Unlock()
	end := o.secrets.window(all, max(0, len(all)-keptOutput), len(all))
	return end[max(0, len(end)-keptOutput):]
}

// keptStack is the beginning of the last stack, at most keptStack bytes, and
// when it began.
func (o *output) keptStack() (string, time.Time) {
	o.mu.Lock()
	head, begun := bytes.Clone(o.stack.head), o.stack.begun
	o.mu.Unlock()
	head = o.secrets.window(head, 0, min(len(head), keptStack))
	shown := printable.Lines(string(head))
	return strings.ToValidUTF8(shown[:min(len(shown), keptStack)], ""), begun
}
