package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"

	"github.com/servetrace/servetrace/internal/wire"
)

// process is one started command. It is go-plugin's Runner: go-plugin reads
// the handshake line from it, waits for it and may kill it, but pipes, group,
// death pact and output are here.
type process struct {
	cmd Command
	out *output
	// folder is written by open before Start.
	folder *folder
	// program is what is executed, see there.
	program program
	// Tests put others in place of these two: memory that the kernel does not
	// run, and a process that it can not end.
	newMemory func(name string) (*os.File, error)
	awaitEnd  func(*exec.Cmd)
	// handshakeEnv is written by clientConfig's RunnerFunc before Start.
	handshakeEnv []string
	// handshake gives go-plugin the handshake line and nothing else.
	handshake *lineReader
	// network and address are written by PluginToHost before the first dial.
	network, address string
	// reaped is closed when the process has ended, done when all is over. What
	// follows is written by live before reaped and may be read after it.
	reaped, done chan struct{}
	// printed is nil if nothing is copied. It is written before the start.
	printed       *printout
	state         *os.ProcessState
	started, over time.Time
	oom           oomKills
	// id is written once, at the start, and may be read at any time: it is not
	// under the mutex, which is held for long where the kernel starts no process.
	id atomic.Int64

	mu    sync.Mutex
	child *os.Process // nil before Start and after the process was reaped
	stdin *os.File
	conn  net.Conn // the last one dialled
	// launched: done will be closed. killed: nothing may be started any more.
	launched, killed bool
	killedFor        string // why, of the first kill of a child
	dumped           bool   // it was sent SIGQUIT
	// refused is why the process that has the socket is not talked to.
	refused error
	// ended: nobody answers any more, even where somebody else has the socket.
	ended bool
}

var _ runner.Runner = (*process)(nil)

func newProcess(cmd Command) *process {
	done := make(chan struct{})
	p := &process{
		cmd:       cmd,
		out:       newOutput(cmd.Log, cmd.Secrets),
		newMemory: newMemory,
		handshake: newLineReader(done),
		reaped:    make(chan struct{}),
		done:      done,
	}
	p.awaitEnd = p.reap
	return p
}

// startRetry is how long a start is tried again while somebody still writes
// the executable (ETXTBSY): a copy that is not finished, or a descriptor that a
// child of this process holds for a moment (golang.org/issue/22315).
const (
	startRetry      = 2 * time.Second
	startRetryPause = 20 * time.Millisecond
)

// Start starts the command. All of its life is followed by one goroutine on a
// thread of its own: the kernel sends Pdeathsig when the *thread* that forked
// ends (golang.org/issue/27505), so that thread must live as long as the child.
func (p *process) Start(ctx context.Context) error {
	p.mu.Lock()
	p.launched = true
	p.mu.Unlock()
	pipes, err := openPipes(p.cmd.Stdout == nil && p.cmd.Output != nil)
	if err != nil {
		close(p.reaped)
		close(p.done)
		return err
	}
	started := make(chan error, 1)
	go p.live(ctx, pipes, started)
	return <-started
}

// live starts the command, waits for its end, kills what is left of its group
// and closes done. It ends with the process.
func (p *process) live(ctx context.Context, pipes *pipes, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	cmd, err := p.fork(ctx, pipes)
	pipes.closeChildEnds()
	p.letGoOfProgram()
	if err != nil {
		pipes.closeOwnEnds()
		close(p.reaped)
		started <- err
		return
	}
	var reading sync.WaitGroup
	stdout, stderr := newSource(pipes.stdout), newSource(pipes.stderr)
	if pipes.printed != nil {
		p.printed = startPrintout(pipes.printed, p.cmd.Output, p.cmd.Log)
	}
	hangUp := func() { pipes.closeOwnEnds(); stdout.Close(); stderr.Close() }
	reading.Go(func() { p.out.read(stdout, "stdout", p.handshake.offer) })
	reading.Go(func() { p.out.read(stderr, "stderr", nil) })
	p.started = time.Now()
	kills := newOOMCounter(cmd.Process.Pid)
	started <- nil

	p.awaitEnd(cmd)
	p.over, p.oom = time.Now(), kills.since()
	close(p.reaped)
	p.hangUp()
	p.endKin()
	if p.printed != nil {
		reading.Go(p.printed.end)
	}
	// A grandchild that left the group may hold the pipes open for ever.
	limit := time.AfterFunc(killGrace, hangUp)
	reading.Wait()
	limit.Stop()
	hangUp()
	p.out.end()
}

// fork starts the command, again while its file is busy. The mutex is held
// over the fork, so that a kill comes either before it or after it.
func (p *process) fork(ctx context.Context, pipes *pipes) (*exec.Cmd, error) {
	deadline := time.Now().Add(startRetry)
	for busy := false; ; {
		cmd := p.command(pipes)
		p.mu.Lock()
		if p.killed {
			p.mu.Unlock()
			return nil, errors.New("stopped before it was started")
		}
		err := inBackground(cmd.Start)
		if err == nil {
			p.child, p.stdin = cmd.Process, pipes.stdin
			p.id.Store(int64(cmd.Process.Pid))
		}
		p.mu.Unlock()
		switch {
		case err != nil && p.copyInstead(err):
			continue
		case !errors.Is(err, syscall.ETXTBSY) || time.Now().After(deadline) || ctx.Err() != nil:
			return cmd, err
		case !busy:
			busy = true
			p.cmd.Log.Info("plugin's executable is open for writing: its start is tried again for a while", "path", p.cmd.Path, "for", startRetry)
		}
		time.Sleep(startRetryPause)
	}
}

func (p *process) command(pipes *pipes) *exec.Cmd {
	cmd := &exec.Cmd{Path: p.program.path, Args: []string{p.cmd.Path}} // looked up nowhere
	cmd.Env = append(append([]string{}, p.cmd.Environ...), p.handshakeEnv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes.stdinChild, pipes.stdoutChild, pipes.stderrChild
	if stdout := cmp.Or(p.cmd.Stdout, pipes.printedChild); stdout != nil {
		const firstExtra = 3 // as os/exec numbers ExtraFiles
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", wire.EnvStdoutFD, firstExtra))
		cmd.ExtraFiles = []*os.File{stdout}
	}
	cmd.SysProcAttr = deathPact()
	return cmd
}

// kill kills the whole group, and keeps a process that was not started yet
// from being started. why goes into the report.
func (p *process) kill(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	if p.killedFor == "" && (p.child != nil || p.dumped) {
		p.killedFor = why
	}
	if p.child != nil {
		killGroup(p.child.Pid)
	}
}

// killGroup sends SIGKILL to a process group. A group that is gone already is
// what was wanted.
func killGroup(pgid int) { _ = syscall.Kill(-pgid, syscall.SIGKILL) }

// dump has the process print what it does and end. One that is stopped takes
// the signal when it goes on. A Go program takes it on any thread, and stops the
// others to print their stacks.
func (p *process) dump() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil {
		return
	}
	p.dumped = true
	// The process is there: nobody has reaped it.
	_ = syscall.Kill(p.child.Pid, syscall.SIGQUIT)
	_ = syscall.Kill(p.child.Pid, syscall.SIGCONT)
}

// giveUp kills the process, or marks it as ended if go-plugin never came to
// start it.
func (p *process) giveUp() {
	p.kill("its start was given up")
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.launched {
		p.launched = true
		close(p.reaped)
		close(p.done)
	}
}

func (p *process) closeStdin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stdin != nil {
		_ = p.stdin.Close() // closed already: as wanted
	}
}

// dial connects to where the handshake said. go-plugin waits for this
// connection with its lock held, which keeps it from hearing of the end of the
// process: hangUp tells it.
func (p *process) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, p.network, p.address)
	if err != nil {
		return nil, err
	}
	refused := wire.CheckPeer(conn)
	if refused != nil {
		p.kill("its socket belongs to another user") // gRPC would dial for ever
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if refused != nil {
		p.refused = refused
		_ = conn.Close() // nothing was sent
		return nil, refused
	}
	if p.ended {
		_ = conn.Close() // nothing was sent
		return nil, errors.New("the process has ended")
	}
	p.conn = conn
	giveRoom(conn)
	return conn, nil
}

// refusal is why the process that has the socket is not talked to; nil if it is.
func (p *process) refusal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// hangUp closes the connection, which a process that has left the group may
// keep open.
func (p *process) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.conn != nil {
		_ = p.conn.Close() // closed already: as wanted
	}
}

func (p *process) pid() int { return int(p.id.Load()) }

func (p *process) exit() string {
	select {
	case <-p.done:
	default:
		return ""
	}
	if p.state == nil {
		return "not started"
	}
	exit := p.report().Exit
	if last := p.out.lastLine(); last != "" && !p.state.Success() {
		return exit + "; its last line: " + last
	}
	return exit
}

// What follows is what go-plugin asks of a Runner.

// Wait waits for the end of the process.
func (p *process) Wait(context.Context) error { <-p.done; return nil }

// Kill kills the group and waits for its end.
func (p *process) Kill(context.Context) error {
	p.kill("go-plugin has done with it")
	<-p.done
	return nil
}

// Stdout gives the handshake line.
func (p *process) Stdout() io.ReadCloser { return p.handshake }

// Stderr gives nothing: the output is read here.
func (p *process) Stderr() io.ReadCloser { return discard{p.done} }

// Name is the executable's path.
func (p *process) Name() string { return p.cmd.Path }

// ID is the process's id, empty before the start.
func (p *process) ID() string {
	if id := p.pid(); id != 0 {
		return strconv.Itoa(id)
	}
	return ""
}

// Diagnose has nothing to add: explain does it.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost keeps the address for dial and changes nothing: host and plugin
// see the same files.
func (p *process) PluginToHost(network, addr string) (string, string, error) {
	p.network, p.address = network, addr
	return network, addr, nil
}

// HostToPlugin changes nothing: host and plugin see the same files.
func (p *process) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// pipes are the three standard descriptors, and the pipe that stands for the host's
// standard output if that is to be copied: the host's ends and the child's.
type pipes struct {
	stdin, stdout, stderr, printed                     *os.File
	stdinChild, stdoutChild, stderrChild, printedChild *os.File
}

func openPipes(printed bool) (*pipes, error) {
	p := &pipes{}
	var errs [4]error
	p.stdinChild, p.stdin, errs[0] = os.Pipe()
	p.stdout, p.stdoutChild, errs[1] = os.Pipe()
	p.stderr, p.stderrChild, errs[2] = os.Pipe()
	if printed {
		p.printed, p.printedChild, errs[3] = os.Pipe()
	}
	if err := errors.Join(errs[:]...); err != nil {
		p.closeChildEnds()
		p.closeOwnEnds()
		return nil, fmt.Errorf("open pipes: %w", err)
	}
	return p, nil
}

func (p *pipes) closeChildEnds() {
	closeAll(p.stdinChild, p.stdoutChild, p.stderrChild, p.printedChild)
}
func (p *pipes) closeOwnEnds() { closeAll(p.stdin, p.stdout, p.stderr, p.printed) }

// closeAll closes what is open; a pipe's end has nothing to lose on closing.
func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
