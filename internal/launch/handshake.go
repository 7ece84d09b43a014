package launch

import (
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/servetrace/servetrace/internal/printable"
)

// handshake is the first line of a plugin, as go-plugin defines it:
// CORE|APP|NETWORK|ADDRESS|PROTOCOL and fields that do not matter here.
type handshake struct {
	core, app int
	protocol  string
}

// parseHandshake reads a line; ok is false for anything that is not a
// handshake, which is then noise: also for a line that cannot be shown, for
// its fields stand in errors.
func parseHandshake(line string) (h handshake, ok bool) {
	fields := strings.Split(line, "|")
	if len(fields) < 4 || (fields[2] != "unix" && fields[2] != "tcp") || printable.Text(line) != line {
		return handshake{}, false
	}
	core, err := strconv.Atoi(fields[0])
	if err != nil {
		return handshake{}, false
	}
	app, err := strconv.Atoi(fields[1])
	if err != nil {
		return handshake{}, false
	}
	h = handshake{core: core, app: app, protocol: "netrpc"} // go-plugin's default
	if len(fields) > 4 {
		h.protocol = fields[4]
	}
	return h, true
}

// lineReader hands the handshake line to go-plugin, which takes the first line
// it reads for it, and nothing else; at the end of the process it is at its
// end.
type lineReader struct {
	done <-chan struct{}
	line chan []byte // capacity 1: the handshake, once

	mu   sync.Mutex
	seen *handshake

	rest []byte // touched by Read alone
}

func newLineReader(done <-chan struct{}) *lineReader {
	return &lineReader{done: done, line: make(chan []byte, 1)}
}

// offer takes a line of standard output, which is not empty, and tells whether
// it was the handshake; later ones are noise like any other line.
func (r *lineReader) offer(line []byte) bool {
	if c := line[0]; (c < '0' || c > '9') && c != ' ' && c != '\t' || r.said() != nil {
		return false // most lines: at no cost
	}
	text := strings.TrimSpace(string(line))
	h, ok := parseHandshake(text)
	if !ok {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = &h // standard output has one reader: nobody came before
	r.line <- []byte(text + "\n")
	return true
}

// said gives the handshake, nil as long as there was none.
func (r *lineReader) said() *handshake {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// Read blocks until there was a handshake, then until the process has ended.
func (r *lineReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		select {
		case r.rest = <-r.line:
		case <-r.done:
			return 0, io.EOF
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *lineReader) Close() error { return nil }
