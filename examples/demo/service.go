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

// printed is a part of the plugin's output: a span as JSON, or the drawing of a trace.
type printed interface {
	// requestID returns the id of the request that it belongs to.
	requestID() string
	// spans returns the number of spans in it.
	spans() int
	// String describes it in errors.
	String() string
}

// service is a running hello with its plugin.
type service[P printed] struct {
	url    string // base URL
	log    *transcript
	cmd    *exec.Cmd
	pieces <-chan P   // closed when service and plugin have ended
	ended  chan error // receives the result of the process
	// seen holds pieces of requests that await was not called for yet.
	seen []P
}

// startService starts hello and returns when it accepts requests. read splits the
// output into pieces, and pieces is closed when the output ends.
func startService[P printed](
	ctx context.Context, hello, plugin string, env []string, read func(r io.Reader, pieces chan<- P) error,
) (*service[P], error) {
	if !strings.Contains(plugin, "/") {
		plugin = "./" + plugin // a bare name would be looked up
	}
	cmd := exec.CommandContext(ctx, hello, "--http", "127.0.0.1:0")
	cmd.Env = append(withoutSettings(cmd.Environ()), "SERVE_TRACING_EXPORTER_PLUGIN="+plugin)
	cmd.Env = append(cmd.Env, env...)
	// After the demo's timeout, hello gets SIGTERM before it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	// The plugin prints to hello's standard output, so the pipe ends when both have ended.
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
	go func() { // ends with the process; stop waits for it
		readErr := read(stdout, pieces)
		if readErr != nil {
			_, _ = io.Copy(io.Discard, stdout) // so that printing does not block
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
		return nil, fmt.Errorf("start hello: %w\n%s", errors.Join(<-s.ended, errors.New("it ended before it accepted requests")), log)
	case <-ctx.Done():
		return nil, errors.Join(errors.New("hello does not serve"), s.stop())
	}
}

// withoutSettings removes variables that would change the demo.
func withoutSettings(environ []string) []string {
	return slices.DeleteFunc(environ, func(pair string) bool {
		return strings.HasPrefix(pair, "SERVE_") || strings.HasPrefix(pair, "OTEL_") || strings.HasPrefix(pair, "RAY_")
	})
}

// spanTimeout bounds the wait for a request's spans. They leave the service at once
// when all have ended. If spans are missing, the batch is sealed after 20 s.
const spanTimeout = 30 * time.Second

// errMissing is the error of await if spans are missing. Further calls would fail, too.
var errMissing = errors.New("spans are missing")

// await waits until n spans of the request id were printed, and returns them in the
// order of printing.
func (s *service[P]) await(ctx context.Context, id string, n int) ([]P, error) {
	ctx, cancel := context.WithTimeout(ctx, spanTimeout)
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

// stopTimeout bounds the stop of the service. The service itself may take 20 s for
// requests in progress, of which there are none, and 20 s for the plugin.
const stopTimeout = 45 * time.Second

// stop ends the service by SIGTERM. It returns an error if the exit status is not 0,
// the plugin is still running, or there was unexpected output.
func (s *service[P]) stop() error {
	var errs []error
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		errs = append(errs, fmt.Errorf("stop the service: %w", err))
	}
	late := time.After(stopTimeout)
	for open := true; open; { // until service and plugin have closed the pipe
		select {
		case one, more := <-s.pieces:
			if open = more; more {
				s.seen = append(s.seen, one)
			}
		case <-late:
			_ = s.cmd.Process.Kill() // fails if the service has ended and the plugin has not
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

// transcript records the service's log and finds the address in it.
type transcript struct {
	url chan string // receives the URL once

	mu   sync.Mutex
	text bytes.Buffer
	sent bool // url was sent
}

func newTranscript() *transcript { return &transcript{url: make(chan string, 1)} }

// announcement matches the URL in the service's start line.
var announcement = regexp.MustCompile(`\burl=(http://\S+)`)

// Write implements io.Writer.
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if t.sent {
		return len(p), nil
	}
	for lines := bufio.NewScanner(bytes.NewReader(t.text.Bytes())); lines.Scan(); {
		if found := announcement.FindSubmatch(lines.Bytes()); found != nil {
			t.sent = true
			t.url <- string(found[1])
			break
		}
	}
	return len(p), nil
}

// String returns the log so far.
func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
