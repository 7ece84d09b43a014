package launch

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"

	"github.com/hashicorp/go-plugin/runner"

	"github.com/servetrace/servetrace/internal/wire"
)

// processRunner is go-plugin's Runner for one plugin process. go-plugin starts it, reads
// the handshake line from it, waits for its end and may kill it.
type processRunner struct {
	cmd     Command
	child   *Child
	out     *pluginLog
	socket  socket
	program *program
	// folder is the private folder, and handshakeEnv has the variables that go-plugin adds
	// to the environment. Both are set before Start.
	folder       *Folder
	handshakeEnv []string
	// handshake passes only the handshake line to go-plugin.
	handshake *handshakeReader
	// printed copies the lines of the extra descriptor to Command.Output. Start sets it.
	// It is nil if no lines are copied.
	printed *printout
}

var _ runner.Runner = (*processRunner)(nil)

func newRunner(cmd Command) *processRunner {
	child := NewChild()
	return &processRunner{
		cmd: cmd, child: child,
		out:       newPluginLog(cmd.Log, cmd.Secrets),
		program:   newProgram(cmd),
		handshake: newHandshakeReader(child.done),
	}
}

// Start starts the command.
func (p *processRunner) Start(ctx context.Context) error {
	shared, forked := p.cmd.Stdout, p.program.release
	if shared == nil && p.cmd.Output != nil {
		printed, printedChild, err := os.Pipe()
		if err != nil {
			p.child.giveUp()
			return err
		}
		p.printed, shared = startPrintout(printed, p.cmd.Output, p.cmd.Log), printedChild
		forked = func() { closeAll(printedChild); p.program.release() }
	}
	return p.child.Start(ctx, Spawn{
		Path: p.program.path, Arg0: p.cmd.Path, Args: p.cmd.Args,
		Environ: append(append([]string{}, p.cmd.Environ...), p.handshakeEnv...),
		Shared:  shared, Mark: p.folder.Path,
		ReadStdout: func(r *os.File) { p.out.read(r, "stdout", p.handshake.offer) },
		ReadStderr: func(r *os.File) { p.out.read(r, "stderr", nil) },
		Executable: p.program.copyInstead,
		Busy: func() {
			p.cmd.Log.Info("plugin's executable is open for writing: its start is tried again for a while", "path", p.cmd.Path, "for", startRetry)
		},
		Forked: forked,
		Exited: p.socket.hangUp,
		Killed: p.logKilled,
		Drain:  p.endPrintout,
		Ended:  p.out.end,
	})
}

// endPrintout waits until the lines for the host's standard output are written.
func (p *processRunner) endPrintout() {
	if p.printed != nil {
		p.printed.end()
	}
}

func (p *processRunner) logKilled(descendants int, err error) {
	if descendants > 0 || err != nil {
		p.cmd.Log.Info("processes that the plugin had started were still there after its end and were killed", "processes", descendants, "error", err)
	}
}

// Wait blocks until the process has ended.
func (p *processRunner) Wait(context.Context) error { <-p.child.done; return nil }

// Kill kills the group and blocks until the process has ended.
func (p *processRunner) Kill(context.Context) error {
	p.child.Kill("go-plugin has done with it")
	<-p.child.done
	return nil
}

// Stdout returns the handshake line.
func (p *processRunner) Stdout() io.ReadCloser { return p.handshake }

// Stderr returns a reader without data, because Child reads the real standard error.
func (p *processRunner) Stderr() io.ReadCloser { return discard{p.child.done} }

// Name returns the executable's path.
func (p *processRunner) Name() string { return p.cmd.Path }

// ID returns the process's id, empty before the start.
func (p *processRunner) ID() string {
	if id := p.child.PID(); id != 0 {
		return strconv.Itoa(id)
	}
	return ""
}

// Diagnose returns an empty text, because the method explain describes a failed start.
func (p *processRunner) Diagnose(context.Context) string { return "" }

// PluginToHost keeps the address of the handshake for the method dial. It returns the same
// address, because host and plugin see the same files.
func (p *processRunner) PluginToHost(network, addr string) (string, string, error) {
	p.socket.network, p.socket.address = network, addr
	return network, addr, nil
}

// HostToPlugin returns the same address, because host and plugin see the same files.
func (p *processRunner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// dial connects to the socket. If the socket belongs to another user, dial kills the
// process, because gRPC would dial again and again.
func (p *processRunner) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := p.socket.dial(ctx)
	if p.socket.refusal() != nil {
		p.child.Kill("its socket belongs to another user")
	}
	return conn, err
}

// socket is the socket that the plugin named in its handshake, with the host's connection
// to it.
type socket struct {
	// network and address are written before the first dial.
	network, address string

	mu      sync.Mutex
	conn    net.Conn // the last connection
	refused error    // the reason to refuse the process at the socket
	ended   bool     // the plugin has ended, and the socket may now belong to another process
}

// dial connects to the socket. go-plugin holds its lock until the connection is ready, and
// does not notice the end of the process in this time. So hangUp must close the connection.
func (s *socket) dial(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, s.network, s.address)
	if err != nil {
		return nil, err
	}
	_, refused := wire.CheckPeer(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused == nil && s.ended {
		err = errors.New("the process has ended")
	} else {
		s.refused, err = refused, refused
	}
	if err != nil {
		_ = conn.Close() // an error has no effect: nothing was sent
		return nil, err
	}
	s.conn = conn
	widenSocket(conn)
	return conn, nil
}

// refusal returns the reason to refuse the process at the socket, or nil.
func (s *socket) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// hangUp closes the connection when the plugin's process has ended. Otherwise a process
// that has left the plugin's process group may keep the connection open.
func (s *socket) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.conn != nil {
		_ = s.conn.Close() // fails only if it is closed already
	}
}

// discard is the standard error that go-plugin gets. It has no data, and its Read blocks
// until the process has ended.
type discard struct{ done <-chan struct{} }

func (d discard) Read([]byte) (int, error) { <-d.done; return 0, io.EOF }
func (discard) Close() error               { return nil }
