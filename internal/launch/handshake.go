package launch

import (
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/servetrace/servetrace/internal/printable"
)

// handshake is the first line of a plugin, as go-plugin defines it:
// CORE|APP|NETWORK|ADDRESS|PROTOCOL and further fields, which are not needed.
type handshake struct {
	core, app int
	protocol  string
}

// parseHandshake parses a line. It reports false if the line is no handshake. It also
// reports false if the line has unprintable characters, because errors quote the fields.
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
	h = handshake{core: core, app: app, protocol: "netrpc"} // go-plugin's default for a missing field
	if len(fields) > 4 {
		h.protocol = fields[4]
	}
	return h, true
}

// handshakeReader passes only the handshake line to go-plugin, which expects it as the first
// line. Its Read returns io.EOF when the process has ended.
type handshakeReader struct {
	done <-chan struct{}
	line chan []byte // receives the handshake line once; its capacity is 1

	mu   sync.Mutex
	seen *handshake

	rest []byte // the part of the line that Read has not returned yet; used only by Read
}

func newHandshakeReader(done <-chan struct{}) *handshakeReader {
	return &handshakeReader{done: done, line: make(chan []byte, 1)}
}

// offer reports whether a line of standard output is the handshake. It keeps the handshake
// for Read. The line must not be empty. After the first handshake, offer returns false.
func (r *handshakeReader) offer(line []byte) bool {
	if c := line[0]; (c < '0' || c > '9') && c != ' ' && c != '\t' || r.said() != nil {
		return false // most lines end here
	}
	text := strings.TrimSpace(string(line))
	h, ok := parseHandshake(text)
	if !ok {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = &h // no other call of offer is in progress, because one goroutine reads the output
	r.line <- []byte(text + "\n")
	return true
}

// said returns the handshake, or nil if offer has not got it yet.
func (r *handshakeReader) said() *handshake {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// Read returns the handshake line. It blocks until the plugin has printed the line. Further
// calls block until the process has ended.
func (r *handshakeReader) Read(p []byte) (int, error) {
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

func (r *handshakeReader) Close() error { return nil }
