package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"
)

// patience bounds every wait, also on a busy machine.
const patience = time.Minute

// Settings of hello, small enough to have effects within the run.
const (
	queueBytes = 16 << 20
	maxAge     = 30 * time.Second
)

func settings() []string {
	return []string{
		fmt.Sprintf("SERVE_TRACING_QUEUE_BYTES=%d", queueBytes),
		"SERVE_TRACING_MAX_AGE=" + maxAge.String(),
		"SERVE_TRACING_EXPORT_TIMEOUT=2s",
		"SERVE_TRACING_START_TIMEOUT=5s",
		"SERVE_TRACING_STOP_TIMEOUT=10s",
		"SERVE_ADMIN_PORT=0",
	}
}

// service is the running hello.
type service struct {
	cmd *exec.Cmd
	// url is the base URL for requests, admin the URL of the status page.
	url, admin string
	ended      chan struct{} // closed when it has ended and its log was read
	err        error         // result of the process; read after ended

	mu  sync.Mutex
	log bytes.Buffer
}

// startService starts hello and waits until it accepts requests.
func startService(path string, environ []string) (*service, error) {
	s := &service{cmd: exec.Command(path, "--http", "127.0.0.1:0"), ended: make(chan struct{})}
	s.cmd.Env = environ
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	serves := make(chan [2]string, 1)
	go func() { // ends with hello
		defer close(s.ended)
		s.follow(log, serves)
		s.err = s.cmd.Wait()
	}()
	select {
	case urls := <-serves:
		s.url, s.admin = urls[0], urls[1]
		return s, nil
	case <-s.ended:
		return nil, fmt.Errorf("hello does not start: %w\n%s", s.err, s.text())
	case <-time.After(patience):
		return nil, errors.Join(fmt.Errorf("hello does not serve within %v\n%s", patience, s.text()), s.cmd.Process.Kill())
	}
}

var servesAt = regexp.MustCompile(`msg=serving url=(http://\S+) .*\badmin=(http://\S+)`)

// maxLog bounds the recorded log.
const maxLog = 64 << 20

// follow reads the log to its end, and sends hello's URLs to serves.
func (s *service) follow(log io.Reader, serves chan<- [2]string) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if match := servesAt.FindSubmatch(lines.Bytes()); match != nil {
			serves <- [2]string{string(match[1]), string(match[2])}
		}
		s.mu.Lock()
		if s.log.Len() < maxLog {
			s.log.Write(lines.Bytes())
			s.log.WriteByte('\n')
		}
		s.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, log) // after a line that is too long; judge then reports a missing line
}

func (s *service) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func (s *service) pid() int { return s.cmd.Process.Pid }

func (s *service) signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// terminate ends hello by SIGTERM.
func (s *service) terminate() error {
	if err := s.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("hello has ended before: %w", err)
	}
	select {
	case <-s.ended:
		if s.err != nil {
			return fmt.Errorf("hello ended: %w", s.err)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("hello does not end within %v after SIGTERM", patience)
	}
}
