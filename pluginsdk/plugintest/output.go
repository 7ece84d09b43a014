package plugintest

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"sync"
)

// output holds the end of what a plugin printed on descriptors 1 and 2. It is safe
// for concurrent use.
type output struct {
	once  sync.Once
	first chan string // capacity 1: the first line of standard output

	mu         sync.Mutex
	lines      int
	handshakes int // lines of standard output in the form of a handshake
	last       []string
}

const (
	tailLines = 6   // lines kept
	tailBytes = 400 // of each
)

func (o *output) firstLine() chan string {
	o.once.Do(func() { o.first = make(chan string, 1) })
	return o.first
}

// read reads r to its end, so that a plugin never blocks on what it prints.
func (o *output) read(r io.Reader, stream string) {
	lines := bufio.NewReaderSize(r, 64<<10)
	seen := 0
	for {
		line, err := lines.ReadSlice('\n') // a longer one counts as several
		if len(line) > 0 {
			text := strings.ToValidUTF8(strings.TrimRight(string(line), "\r\n"), "\uFFFD")
			if seen++; seen == 1 && stream == "stdout" {
				o.firstLine() <- text // capacity 1, and this is the one reader
			}
			o.add(text, stream)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return // end of file, or our end was closed
		}
	}
}

func (o *output) add(text, stream string) {
	_, faults := parseHandshake(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines++
	if stream == "stdout" && len(faults) == 0 {
		o.handshakes++
	}
	if len(text) > tailBytes {
		text = strings.ToValidUTF8(text[:tailBytes], "") + "…"
	}
	if o.last = append(o.last, text); len(o.last) > tailLines {
		o.last = o.last[1:]
	}
}

func (o *output) counts() (lines, handshakes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lines, o.handshakes
}

func (o *output) tail() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.last...)
}
