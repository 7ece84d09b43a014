package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// Spawn describes the process to start. It contains nothing about the handshake.
type Spawn struct {
	// Path is the path of the executable, Arg0 its argument 0, and Args the arguments
	// after it.
	Path, Arg0 string
	Args       []string
	// Environ is the whole environment, "KEY=value".
	Environ []string
	// Shared is passed to the process as descriptor 3, named by the variable
	// wire.EnvStdoutFD. It may be nil.
	Shared *os.File
	// Mark is a folder that stands in the process's variable wire.EnvSocketDir. Its
	// descendants inherit the variable, and are found by it after the end of the process.
	Mark string
	// Attributes, if not nil, changes how the process is started, after Child has
	// set its own attributes.
	Attributes func(*syscall.SysProcAttr)
	// ReadStdout and ReadStderr read descriptors 1 and 2 to their ends, each on its
	// own goroutine. Child closes the files.
	ReadStdout, ReadStderr func(*os.File)
	// Executable, if not nil, is called after a start has failed with err. It returns the
	// path of another executable to start instead, or false.
	Executable func(err error) (path string, ok bool)
	// Busy, if not nil, is called once if the executable is open for writing.
	Busy func()
	// Each function from here on may be nil. They are called in the order of these fields,
	// except that Killed may be called late. Forked is called after the start, or after the
	// final failure of the start, when the executable is no longer needed.
	Forked func()
	// Exited is called when the process has been reaped. Killed gets the number of killed
	// descendants outside the group.
	Exited func()
	Killed func(descendants int, err error)
	// Drain blocks until the output on descriptor 3 (Shared) is handled. Meanwhile,
	// descriptors 1 and 2 are still read. It is also called after a failed start.
	Drain func()
	// Ended is called last, before Done is closed.
	Ended func()
}

// Child is a process in a group of its own.
//
//  1. Start starts it. A goroutine waits for its end on a thread of its own: the kernel
//     sends Pdeathsig when the thread that forked ends (golang.org/issue/27505), so the
//     thread must live as long as the process.
//  2. When it ends, its group is killed before it is reaped, then its descendants
//     that have left the group.
//  3. Done is closed when its output has been read to the end, or a descendant has held the
//     pipes open for killGrace after the end of the process.
//
// The methods are safe for concurrent use.
type Child struct {
	spawn Spawn
	// awaitEnd is the function reap, except in tests.
	awaitEnd func(*exec.Cmd)
	// reaped is closed when the process has ended, or was not started. done is the channel
	// that Done returns. life may be read only after reaped is closed.
	reaped, done chan struct{}
	life         lifetime
	// id is written once, at the start. The mutex does not guard it, because the mutex may
	// be held for long if the kernel does not start the process.
	id atomic.Int64

	mu      sync.Mutex
	process *os.Process // nil before Start and after the process was reaped
	stdin   *os.File
	// launched is set when Start was called, so that done will be closed. killed is set by
	// Kill, and prevents a later start.
	launched, killed bool
	killedFor        string // reason of the first kill
	dumped           bool   // dump has sent SIGQUIT to the process
}

// lifetime holds the facts about a process that has ended.
type lifetime struct {
	state         *os.ProcessState // nil if the process was not started
	started, over time.Time
	oom           oomKills
}

// NewChild returns a Child that has not been started.
func NewChild() *Child {
	c := &Child{reaped: make(chan struct{}), done: make(chan struct{})}
	c.awaitEnd = c.reap
	return c
}

// A start is tried again for startRetry while another process has the executable
// open for writing (ETXTBSY): an unfinished copy, or a descriptor that a child of
// this process holds for a moment (golang.org/issue/22315).
const (
	startRetry      = 2 * time.Second
	startRetryPause = 20 * time.Millisecond
)

// Start starts the process. It must be called only once. If it returns an error, the
// channel of Done is closed.
func (c *Child) Start(ctx context.Context, spawn Spawn) error {
	c.mu.Lock()
	c.launched, c.spawn = true, spawn
	c.mu.Unlock()
	pipes, err := openPipes()
	if err != nil {
		close(c.reaped)
		close(c.done)
		return err
	}
	started := make(chan error, 1)
	go c.live(ctx, pipes, started)
	return <-started
}

// live starts the process, waits for its end, kills its group and its descendants,
// and closes done. It ends with the process.
func (c *Child) live(ctx context.Context, pipes *pipes, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	cmd, err := c.fork(ctx, pipes)
	closeAll(pipes.stdinChild, pipes.stdoutChild, pipes.stderrChild)
	closeOwn := func() { closeAll(pipes.stdin, pipes.stdout, pipes.stderr) }
	defer closeOwn()
	if c.spawn.Forked != nil {
		c.spawn.Forked()
	}
	if err != nil {
		close(c.reaped)
		c.drain()
		started <- err
		return
	}
	var reading sync.WaitGroup
	reading.Go(func() { c.spawn.ReadStdout(pipes.stdout) })
	reading.Go(func() { c.spawn.ReadStderr(pipes.stderr) })
	c.life.started = time.Now()
	kills := newOOMCounter(cmd.Process.Pid)
	started <- nil

	c.awaitEnd(cmd)
	c.life.over, c.life.oom = time.Now(), kills.since()
	close(c.reaped)
	if c.spawn.Exited != nil {
		c.spawn.Exited()
	}
	killDescendants(c.spawn.Mark, c.PID(), c.spawn.Killed)
	reading.Go(c.drain)
	// A descendant that has left the process group may keep the pipes open for ever.
	limit := time.AfterFunc(killGrace, closeOwn)
	reading.Wait()
	limit.Stop()
	if c.spawn.Ended != nil {
		c.spawn.Ended()
	}
}

func (c *Child) drain() {
	if c.spawn.Drain != nil {
		c.spawn.Drain()
	}
}

// fork starts the process. It tries again while another process has the executable open for
// writing. It holds the mutex during the start, so that Kill runs either before the start,
// and prevents it, or after the start, and kills the process.
func (c *Child) fork(ctx context.Context, pipes *pipes) (*exec.Cmd, error) {
	deadline := time.Now().Add(startRetry)
	for busy := false; ; {
		cmd := c.command(pipes)
		c.mu.Lock()
		if c.killed {
			c.mu.Unlock()
			return nil, errors.New("stopped before it was started")
		}
		err := inBackground(cmd.Start)
		if err == nil {
			c.process, c.stdin = cmd.Process, pipes.stdin
			c.id.Store(int64(cmd.Process.Pid))
		}
		c.mu.Unlock()
		if err != nil && c.spawn.Executable != nil {
			if path, ok := c.spawn.Executable(err); ok {
				c.spawn.Path = path
				continue
			}
		}
		if !errors.Is(err, syscall.ETXTBSY) || time.Now().After(deadline) || ctx.Err() != nil {
			return cmd, err
		}
		if !busy && c.spawn.Busy != nil {
			c.spawn.Busy()
		}
		busy = true
		time.Sleep(startRetryPause)
	}
}

func (c *Child) command(pipes *pipes) *exec.Cmd {
	cmd := &exec.Cmd{Path: c.spawn.Path, Args: append([]string{c.spawn.Arg0}, c.spawn.Args...)} // no look-up in PATH
	cmd.Env = append([]string{}, c.spawn.Environ...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes.stdinChild, pipes.stdoutChild, pipes.stderrChild
	if c.spawn.Shared != nil {
		const firstExtra = 3 // os/exec gives ExtraFiles the numbers from 3 on
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", wire.EnvStdoutFD, firstExtra))
		cmd.ExtraFiles = []*os.File{c.spawn.Shared}
	}
	cmd.SysProcAttr = DeathPact()
	if c.spawn.Attributes != nil {
		c.spawn.Attributes(cmd.SysProcAttr)
	}
	return cmd
}

// Kill kills the process and its group at once. A process that was not started yet will
// not be started. Kill does not wait. The report shows the reason of the first call.
func (c *Child) Kill(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	if c.killedFor == "" && (c.process != nil || c.dumped) {
		c.killedFor = why
	}
	if c.process != nil {
		killGroup(c.process.Pid)
	}
}

// killGroup sends SIGKILL to a process group, which may have ended.
func killGroup(pgid int) { _ = syscall.Kill(-pgid, syscall.SIGKILL) }

// Signal sends a signal to the process, if it runs.
func (c *Child) Signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil { // it is not reaped, so no other process has its id
		_ = syscall.Kill(c.process.Pid, sig)
	}
}

// dump sends SIGQUIT. It also sends SIGCONT, because the process may be stopped.
func (c *Child) dump() {
	c.mu.Lock()
	c.dumped = c.dumped || c.process != nil
	c.mu.Unlock()
	c.Signal(syscall.SIGQUIT)
	c.Signal(syscall.SIGCONT)
}

// giveUp kills the process. If Start was never called, it closes the channels that wait for
// the end of the process.
func (c *Child) giveUp() {
	c.Kill("its start was given up")
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.launched {
		c.launched = true
		close(c.reaped)
		close(c.done)
	}
}

// CloseStdin closes the process's standard input.
func (c *Child) CloseStdin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stdin != nil {
		_ = c.stdin.Close() // fails only if it is closed already
	}
}

// PID returns the id of the process and of its group. Zero before the start.
func (c *Child) PID() int { return int(c.id.Load()) }

// Done returns a channel that is closed when the process has ended, its group and
// descendants have been killed and its output has been read.
func (c *Child) Done() <-chan struct{} { return c.done }

// State returns the state in which the process ended, or nil if the process was not
// started. It must not be called before the channel of Done is closed.
func (c *Child) State() *os.ProcessState { return c.life.state }

// killReason returns the reason of the first call of Kill, or "". It also returns whether
// dump has sent SIGQUIT to the process.
func (c *Child) killReason() (killedFor string, dumped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killedFor, c.dumped
}

// pipes are both ends of the pipes on the three standard descriptors.
type pipes struct {
	stdin, stdout, stderr                *os.File
	stdinChild, stdoutChild, stderrChild *os.File
}

func openPipes() (*pipes, error) {
	p := &pipes{}
	var errs [3]error
	p.stdinChild, p.stdin, errs[0] = os.Pipe()
	p.stdout, p.stdoutChild, errs[1] = os.Pipe()
	p.stderr, p.stderrChild, errs[2] = os.Pipe()
	if err := errors.Join(errs[:]...); err != nil {
		closeAll(p.stdinChild, p.stdoutChild, p.stderrChild, p.stdin, p.stdout, p.stderr)
		return nil, fmt.Errorf("open pipes: %w", err)
	}
	return p, nil
}

// closeAll closes the files that are not nil. Errors do not matter, because the pipes are
// no longer used.
func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
