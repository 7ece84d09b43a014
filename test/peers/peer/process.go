package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

const (
	// patience is how long a peer may take to start, and how long a wait goes on
	// without anything new. A machine may be busy with many tests at once.
	patience = time.Minute
	// stopPatience is how long a peer may take to end when asked to.
	stopPatience = 20 * time.Second
	// pollEvery is how often a file or a port is looked at.
	pollEvery = 20 * time.Millisecond
	// startTries bounds how often other ports are tried.
	startTries = 10
	// shownLog is how much of a log is shown, in bytes, its end first.
	shownLog = 32 << 10
)

// process is one run of a peer.
type process struct {
	name string
	cmd  *exec.Cmd
	// done is closed when the process has ended; err says how, after that.
	done chan struct{}
	err  error
}

// launch starts a program whose output is appended to the file log. The
// process does not outlive ours: on Linux the kernel sees to it, and elsewhere
// the peers that watch their standard input do.
func launch(name, path string, args, env []string, log string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(baseEnvironment(), env...)
	cmd.Dir = filepath.Dir(log)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = deathPact()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, output.Close())
	}
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel keeps the death pact when the thread that started the
		// process ends: this one stays until the process has.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	err = <-started
	if closed := output.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	return p, nil
}

// baseEnvironment returns the part of the test's environment that peers get.
func baseEnvironment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TZ", "LANG"} {
		if value, set := os.LookupEnv(name); set { //nolint:forbidigo // a process is put together
			env = append(env, name+"="+value)
		}
	}
	return env
}

// ended reports whether the process has ended. Safe for concurrent use.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop asks the process to end and waits for it, and kills one that does not.
// An error says that it had to, or that the process had ended badly before.
func (p *process) stop() error {
	if p.ended() {
		return fmt.Errorf("%s had ended by itself: %w", p.name, p.endError())
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopPatience):
	}
	if err := p.kill(); err != nil {
		return err
	}
	return fmt.Errorf("%s did not end within %v of SIGTERM and was killed", p.name, stopPatience)
}

// kill ends the process without a word and waits for it.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// endError says how the process ended.
func (p *process) endError() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// ready waits until url answers 200, and fails where the process ends first.
func (p *process) ready(url string) error {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last error
	for {
		if last = probe(ctx, client, url); last == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at start: %w", p.name, p.endError())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %v: %w", p.name, patience, last)
		case <-tick.C:
		}
	}
}

func probe(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return errors.Join(err, response.Body.Close())
}

// logText returns the output of the process, or the end of a long output.
func logText(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	if cut := len(text) - shownLog; cut > 0 {
		return fmt.Sprintf("… %d bytes …\n%s", cut, text[cut:])
	}
	return string(text)
}

// portTaken reports whether the log, from an offset on, has an error that other ports
// may avoid.
func portTaken(file string, offset int64) bool {
	text, err := os.ReadFile(file)
	return err == nil && int64(len(text)) >= offset && bytes.Contains(text[offset:], []byte("address already in use"))
}

// program gives the path of a built peer's file, and skips or fails the test
// where the peer is not there.
func program(tb testing.TB, name string, elements ...string) string {
	tb.Helper()
	dir := builtDir(tb, name)
	return filepath.Join(append([]string{dir}, elements...)...)
}
