package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// printed is a piece of what the plugin prints: a span as JSON, or the drawing
// of a trace.
type printed interface {
	// requestID is the request that it belongs to.
	requestID() string
	// spans is how many spans it shows.
	spans() int
	// String names it in errors.
	String() string
}

// service is a running hello with its plugin.
type service[P printed] struct {
	url    string // where it serves
	log    *transcript
	cmd    *exec.Cmd
	pieces <-chan P   // as printed; closed when service and plugin have ended
	ended  chan error // of the process, once
	// seen are pieces that were read and belong to no request asked for yet.
	seen []P
}

// startService starts hello and returns when it takes requests. read takes what
// is printed to pieces, and closes pieces when that ends.
func startService[P printed](
	ctx context.Context, hello, plugin string, env []string, read func(r io.Reader, pieces chan<- P) error,
) (*service[P], error) {
	if !strings.Contains(plugin, "/") {
		plugin = "./" + plugin // else it would be a name to look up
	}
	cmd := exec.CommandContext(ctx, hello, "--http", "127.0.0.1:0")
	cmd.Env = append(withoutSettings(cmd.Environ()), "SERVE_TRACING_EXPORTER_PLUGIN="+plugin)
	cmd.Env = append(cmd.Env, env...)
	// If the demo's time is over, hello is told to stop before it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	// The plugin prints to hello's standard output, so that the pipe ends only
	// when both have.
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	log := newTranscript()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pieces := make(chan P)
	s := &service[P]{log: log, cmd: cmd, pieces: pieces, ended: make(chan error, 1)}
	go func() { // ends with the process: stop waits for it
		readErr := read(stdout, pieces)
		if readErr != nil {
			_, _ = io.Copy(io.Discard, stdout) // so that nobody blocks on printing
		}
		close(pieces)
		s.ended <- errors.Join(readErr, cmd.Wait())
	}()
	select {
	case s.url = <-log.url:
		return s, nil
	case one, open := <-pieces:
		if open {
			return nil, errors.Join(fmt.Errorf("hello printed %v before any request", one), s.stop())
		}
		return nil, fmt.Errorf("start hello: %w\n%s", errors.Join(<-s.ended, errors.New("it ended before it served")), log)
	case <-ctx.Done():
		return nil, errors.Join(errors.New("hello does not serve"), s.stop())
	}
}

// withoutSettings leaves out what would make the demo another one.
func withoutSettings(environ []string) []string {
	return slices.DeleteFunc(environ, func(pair string) bool {
		return strings.HasPrefix(pair, "SERVE_") || strings.HasPrefix(pair, "OTEL_") || strings.HasPrefix(pair, "RAY_")
	})
}

// spanPatience is how long the spans of a request may take; they leave the
// service at once when all have ended, and after 20 s if they are not as many as
// expected.
const spanPatience = 30 * time.Second

// errMissing is what await gives when spans do not come; then no others will.
var errMissing = errors.New("spans are missing")

// await gives what was printed of the request id once it shows n spans, in the
// order in which it was printed.
func (s *service[P]) await(ctx context.Context, id string, n int) ([]P, error) {
	ctx, cancel := context.WithTimeout(ctx, spanPatience)
	defer cancel()
	var mine, others []P
	count := 0
	sort := func(one P) {
		if one.requestID() == id {
			mine = append(mine, one)
			count += one.spans()
		} else {
			others = append(others, one)
		}
	}
	defer func() { s.seen = others }()
	for _, one := range s.seen {
		sort(one)
	}
	for count < n {
		select {
		case one, open := <-s.pieces:
			if !open {
				return mine, fmt.Errorf("%w: the service ended with %d of %d printed", errMissing, count, n)
			}
			sort(one)
		case <-ctx.Done():
			return mine, fmt.Errorf("%w: %d of %d were printed", errMissing, count, n)
		}
	}
	return mine, nil
}

// patience is how long the service may take to stop; its own bounds are 20 s
// for requests in flight, of which there is none, and 20 s for the plugin.
const patience = 45 * time.Second

// stop ends the service by SIGTERM. The error says how it ended otherwise than
// with status 0, whether the plugin is still there, and what was printed that
// nobody asked for.
func (s *service[P]) stop() error {
	var errs []error
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		errs = append(errs, fmt.Errorf("stop the service: %w", err))
	}
	late := time.After(patience)
	for open := true; open; { // until service and plugin have closed the pipe
		select {
		case one, more := <-s.pieces:
			if open = more; more {
				s.seen = append(s.seen, one)
			}
		case <-late:
			_ = s.cmd.Process.Kill() // it may have ended, and left the plugin
			return errors.Join(append(errs, errors.New("the service or its plugin does not end"))...)
		}
	}
	if err := <-s.ended; err != nil {
		errs = append(errs, fmt.Errorf("the service ended: %w", err))
	}
	for _, one := range s.seen {
		errs = append(errs, fmt.Errorf("%v of request %q was not expected", one, one.requestID()))
	}
	return errors.Join(errs...)
}

// transcript keeps the service's log and finds the address in it.
type transcript struct {
	url chan string // gets it once

	mu   sync.Mutex
	text bytes.Buffer
	told bool
}

func newTranscript() *transcript { return &transcript{url: make(chan string, 1)} }

// announcement is in the line with which a service says what runs.
var announcement = regexp.MustCompile(`\burl=(http://\S+)`)

// Write implements io.Writer.
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if t.told {
		return len(p), nil
	}
	for lines := bufio.NewScanner(bytes.NewReader(t.text.Bytes())); lines.Scan(); {
		if found := announcement.FindSubmatch(lines.Bytes()); found != nil {
			t.told = true
			t.url <- string(found[1])
			break
		}
	}
	return len(p), nil
}

// String is the log so far.
func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
