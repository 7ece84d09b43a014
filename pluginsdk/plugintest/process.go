package plugintest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/servetrace/servetrace/internal/proctree"
	"github.com/servetrace/servetrace/internal/wire"
)

// how is what a host may do differently when it starts a plugin. The zero value
// is how ours does it.
type how struct {
	// cookie, versions: another value of the handshake's variable; "-" leaves
	// the variable out.
	cookie, versions string
	// pathOnly leaves out all base variables but PATH.
	pathOnly bool
	// unshared hands no standard output down.
	unshared bool
	// offline gives the process no network.
	offline bool
}

// child is a plugin in a process of its own. It belongs to the trial that
// started it, which calls stop.
type child struct {
	folder string // its socket folder
	base   string // the folder around that
	out    output
	ended  chan struct{} // closed when the process was reaped and its output read
	state  *os.ProcessState

	mu    sync.Mutex
	cmd   *exec.Cmd // nil once it was reaped
	stdin *os.File  // nil once it was closed
}

var _ plugin = (*child)(nil)

// baseEnviron is what a plugin starts with, beside the handshake's variables.
func baseEnviron(pathOnly bool) []string {
	var environ []string
	for _, entry := range os.Environ() { //nolint:forbidigo // what a host hands on comes from the process's own environment
		name, _, _ := strings.Cut(entry, "=")
		if wire.BaseVariable(name) && (!pathOnly || name == "PATH") {
			environ = append(environ, entry)
		}
	}
	return environ
}

// handshakeEnviron is what a host adds for the handshake.
func (h how) handshakeEnviron(socketDir string) []string {
	environ := []string{
		wire.EnvSocketDir + "=" + socketDir,
		"PLUGIN_MIN_PORT=10000", "PLUGIN_MAX_PORT=25000", // go-plugin's client always sends them
	}
	for _, v := range []struct{ name, value, usual string }{
		{wire.CookieKey, h.cookie, wire.CookieValue},
		{wire.EnvProtocolVersions, h.versions, fmt.Sprint(wire.ProtocolVersion)},
	} {
		switch v.value {
		case "-":
		case "":
			environ = append(environ, v.name+"="+v.usual)
		default:
			environ = append(environ, v.name+"="+v.value)
		}
	}
	return environ
}

// startChild starts the target's executable.
func startChild(target Target, h how) (*child, error) {
	path, err := target.executable()
	if err != nil {
		return nil, err
	}
	base, folder, err := socketFolder()
	if err != nil {
		return nil, err
	}
	c := &child{base: base, folder: folder, ended: make(chan struct{})}
	started := make(chan error, 1)
	go c.live(path, target.env, h, started)
	if err := <-started; err != nil {
		_ = os.RemoveAll(base)
		return nil, err
	}
	return c, nil
}

// live starts the process, follows it to its end and reads what it prints. It
// is a goroutine on a thread of its own, because the kernel sends Pdeathsig when
// the thread that forked ends.
func (c *child) live(path string, env []string, h how, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pipes, err := openPipes()
	if err != nil {
		started <- err
		return
	}
	cmd, err := c.fork(path, env, h, pipes)
	closeAll(pipes.stdinChild, pipes.stdoutChild, pipes.stderrChild)
	if err != nil {
		closeAll(pipes.stdin, pipes.stdout, pipes.stderr)
		started <- fmt.Errorf("start %s: %w", path, err)
		return
	}
	defer close(c.ended)
	var reading sync.WaitGroup
	reading.Go(func() { c.out.read(pipes.stdout, "stdout") })
	reading.Go(func() { c.out.read(pipes.stderr, "stderr") })
	started <- nil

	awaitEnd(cmd)
	c.reap()
	c.endKin()
	// A grandchild that left the group may hold the pipes open for ever.
	limit := time.AfterFunc(time.Second, func() { closeAll(pipes.stdout, pipes.stderr) })
	reading.Wait()
	limit.Stop()
	closeAll(pipes.stdout, pipes.stderr)
	c.closeStdin()
}

// fork starts the command; again while somebody still writes its file, or a
// child of this process holds it for a moment (golang.org/issue/22315).
func (c *child) fork(path string, env []string, h how, pipes *pipes) (*exec.Cmd, error) {
	deadline := time.Now().Add(2 * time.Second)
	for {
		cmd, err := c.command(path, env, h, pipes)
		if err != nil {
			return nil, err
		}
		err = cmd.Start()
		closeAll(cmd.ExtraFiles...)
		if err == nil {
			c.mu.Lock()
			c.cmd, c.stdin = cmd, pipes.stdin
			c.mu.Unlock()
			return cmd, nil
		}
		if !errors.Is(err, syscall.ETXTBSY) || time.Now().After(deadline) {
			return nil, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *child) command(path string, env []string, h how, pipes *pipes) (*exec.Cmd, error) {
	cmd := exec.Command(path)
	cmd.Env = append(baseEnviron(h.pathOnly), env...)
	cmd.Env = append(cmd.Env, h.handshakeEnviron(c.folder)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes.stdinChild, pipes.stdoutChild, pipes.stderrChild
	cmd.SysProcAttr = attributes(h.offline)
	if h.unshared {
		return cmd, nil
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	const firstExtra = 3 // as os/exec numbers ExtraFiles
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", wire.EnvStdoutFD, firstExtra))
	cmd.ExtraFiles = []*os.File{null}
	return cmd, nil
}

// reap kills what is left of the process group, and frees its id.
func (c *child) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	pid := c.cmd.Process.Pid
	_ = syscall.Kill(-pid, syscall.SIGKILL) // gone already: as wanted
	_ = c.cmd.Wait()                        // the state says more than the error
	c.state, c.cmd = c.cmd.ProcessState, nil
}

// kinTimeout is how long what a plugin has started may take to end by SIGKILL.
const kinTimeout = 500 * time.Millisecond

// endKin kills what the process has started and what has left its group since.
// What can not be killed is no fault of the plugin, and is left.
func (c *child) endKin() {
	ctx, cancel := context.WithTimeout(context.Background(), kinTimeout)
	defer cancel()
	_, _ = proctree.Kill(ctx, proctree.Mark{
		Variable: wire.EnvSocketDir, Is: func(value string) bool { return value == c.folder },
	})
}

// signal sends a signal to the process; one that has ended gets none.
func (c *child) signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil {
		_ = c.cmd.Process.Signal(sig)
	}
}

func (c *child) terminate() { c.signal(syscall.SIGTERM) }

func (c *child) closeStdin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stdin != nil {
		_ = c.stdin.Close() // a pipe's end has nothing to lose
		c.stdin = nil
	}
}

func (c *child) done() <-chan struct{} { return c.ended }

// exit says how the process ended; nil after status 0. Not before done.
func (c *child) exit() error {
	if c.state.Success() {
		return nil
	}
	return fmt.Errorf("it ended with %v", c.state)
}

func (c *child) printed() *output { return &c.out }

func (c *child) socketDir() string { return c.folder }

// pid is zero once the process has ended.
func (c *child) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return 0
	}
	return c.cmd.Process.Pid
}

func (c *child) firstLine(ctx context.Context) (string, error) {
	select {
	case line := <-c.out.firstLine():
		return line, nil
	case <-c.ended:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	select {
	case line := <-c.out.firstLine():
		return line, nil
	default:
		return "", io.EOF
	}
}

// stop kills the process and its group, waits for its end and removes its
// folder.
func (c *child) stop() {
	c.mu.Lock()
	if c.cmd != nil {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	}
	c.mu.Unlock()
	<-c.ended
	_ = os.RemoveAll(c.base)
}

// maxSocketBase leaves room in the 104 bytes of a socket's path for
// "/plugintest-RANDOM/s/" and what a plugin calls its socket.
const maxSocketBase = 40

// socketFolder makes a private folder with a path short enough for a socket,
// and a folder around it.
func socketFolder() (base, folder string, err error) {
	var errs []error
	for _, root := range []string{os.TempDir(), "/tmp", "/dev/shm"} {
		if len(root) > maxSocketBase {
			continue
		}
		base, err := os.MkdirTemp(root, "plugintest-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		folder := filepath.Join(base, "s")
		return base, folder, os.Mkdir(folder, 0o700)
	}
	return "", "", fmt.Errorf("no folder for a socket: set TMPDIR to a writable folder of at most %d characters: %w",
		maxSocketBase, errors.Join(errs...))
}

// output is what a plugin printed on descriptors 1 and 2. Safe for concurrent
// use.
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

// pipes are the three standard descriptors, both ends.
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
		closeAll(p.stdinChild, p.stdin, p.stdout, p.stdoutChild, p.stderr, p.stderrChild)
		return nil, fmt.Errorf("open pipes: %w", err)
	}
	return p, nil
}

// closeAll closes what is open; a pipe's end has nothing to lose on closing.
func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
