package plugintest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
)

// output counts the lines that a plugin prints on descriptors 1 and 2, and keeps the last
// few. It is safe for concurrent use.
type output struct {
	first chan string // receives the first line of standard output; has capacity 1

	mu         sync.Mutex
	lines      int
	handshakes int // number of lines of standard output that have the form of a handshake
	last       []string
}

const (
	tailLines = 6   // number of lines in output.last
	tailBytes = 400 // length in bytes to which each of these lines is cut
)

func newOutput() *output { return &output{first: make(chan string, 1)} }

// readStdout and readStderr read a descriptor of the plugin to its end, so that no write
// of the plugin blocks.
func (o *output) readStdout(r io.Reader) { o.read(r, true) }
func (o *output) readStderr(r io.Reader) { o.read(r, false) }

func (o *output) read(r io.Reader, stdout bool) {
	lines := bufio.NewReaderSize(r, 64<<10)
	for first := stdout; ; {
		line, err := lines.ReadSlice('\n') // a line that is longer than the buffer counts as several lines
		if len(line) > 0 {
			text := strings.ToValidUTF8(strings.TrimRight(string(line), "\r\n"), "\uFFFD")
			if first {
				o.first <- text // does not block, because only one text is ever sent to this channel
				first = false
			}
			o.add(text, stdout)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return // the end of the file, or an error because the suite has closed the pipe
		}
	}
}

func (o *output) add(text string, stdout bool) {
	_, isHandshake := parseHandshake(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines++
	if stdout && isHandshake {
		o.handshakes++
	}
	if len(text) > tailBytes {
		text = strings.ToValidUTF8(text[:tailBytes], "") + "…"
	}
	if o.last = append(o.last, text); len(o.last) > tailLines {
		o.last = o.last[1:]
	}
}

// counts returns the number of all lines, and the number of handshakes on standard output.
func (o *output) counts() (lines, handshakes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lines, o.handshakes
}

func (o *output) tail() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.last)
}

// buffer is a bytes.Buffer that is safe for concurrent use.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns all bytes written.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
