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

// process is one plugin process as go-plugin's Runner: go-plugin reads the
// handshake line from it, waits for it and may kill it.
type process struct {
	cmd    Command
	child  *Child
	out    *output
	socket socket
	// The fields up to handshakeEnv are written by open before Start.
	folder       *Folder
	program      *program
	handshakeEnv []string
	// handshake gives go-plugin the handshake line and nothing else.
	handshake *lineReader
	// printed is written before the start. Nil: nothing is copied.
	printed *printout
}

var _ runner.Runner = (*process)(nil)

func newProcess(cmd Command) *process {
	child := NewChild()
	return &process{
		cmd: cmd, child: child,
		out:       newOutput(cmd.Log, cmd.Secrets),
		program:   newProgram(cmd),
		handshake: newLineReader(child.done),
	}
}

// Start starts the command.
func (p *process) Start(ctx context.Context) error {
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
		Path: p.program.path, Arg0: p.cmd.Path,
		Environ: append(append([]string{}, p.cmd.Environ...), p.handshakeEnv...),
		Shared:  shared, Mark: p.folder.Path,
		ReadStdout: func(r *os.File) { p.out.read(r, "stdout", p.handshake.offer) },
		ReadStderr: func(r *os.File) { p.out.read(r, "stderr", nil) },
		Executable: p.program.copyInstead,
		Busy: func() {
			p.cmd.Log.Info("plugin's executable is open for writing: its start is tried again for a while", "path", p.cmd.Path, "for", startRetry)
		},
		Exited:  p.socket.hangUp,
		Killed:  p.logKilled,
		Drained: p.drained,
		Ended:   p.out.end,
		Forked:  forked,
	})
}

// drained waits until the lines for the host's standard output are written.
func (p *process) drained() {
	if p.printed != nil {
		p.printed.end()
	}
}

func (p *process) logKilled(descendants int, err error) {
	if descendants > 0 || err != nil {
		p.cmd.Log.Info("processes that the plugin had started were still there after its end and were killed", "processes", descendants, "error", err)
	}
}

// Wait blocks until the process has ended.
func (p *process) Wait(context.Context) error { <-p.child.done; return nil }

// Kill kills the group and blocks until the process has ended.
func (p *process) Kill(context.Context) error {
	p.child.Kill("go-plugin has done with it")
	<-p.child.done
	return nil
}

// Stdout returns the handshake line.
func (p *process) Stdout() io.ReadCloser { return p.handshake }

// Stderr returns nothing: output.go reads the real one.
func (p *process) Stderr() io.ReadCloser { return discard{p.child.done} }

// Name returns the executable's path.
func (p *process) Name() string { return p.cmd.Path }

// ID returns the process's id, empty before the start.
func (p *process) ID() string {
	if id := p.child.PID(); id != 0 {
		return strconv.Itoa(id)
	}
	return ""
}

// Diagnose has nothing to add: explain does it.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost keeps the address for the dialer and changes nothing: host and
// plugin see the same files.
func (p *process) PluginToHost(network, addr string) (string, string, error) {
	p.socket.network, p.socket.address = network, addr
	return network, addr, nil
}

// HostToPlugin changes nothing: host and plugin see the same files.
func (p *process) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// dial connects to the socket, or ends the process if another user has it: gRPC would
// dial for ever.
func (p *process) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := p.socket.dial(ctx)
	if p.socket.refusal() != nil {
		p.child.Kill("its socket belongs to another user")
	}
	return conn, err
}

// socket dials the address of a handshake.
type socket struct {
	// network and address are written before the first dial.
	network, address string

	mu      sync.Mutex
	conn    net.Conn // the last one dialled
	refused error    // why the process that has the socket is not used
	ended   bool     // the plugin has ended; another process may have the socket
}

// dial connects to the socket. go-plugin waits for this connection with its lock
// held, which keeps it from hearing of the end of the process: hangUp ends the wait.
func (s *socket) dial(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, s.network, s.address)
	if err != nil {
		return nil, err
	}
	refused := wire.CheckPeer(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused == nil && s.ended {
		err = errors.New("the process has ended")
	} else {
		s.refused, err = refused, refused
	}
	if err != nil {
		_ = conn.Close() // nothing was sent
		return nil, err
	}
	s.conn = conn
	widenSocket(conn)
	return conn, nil
}

// refusal returns why the process that has the socket is not used, or nil.
func (s *socket) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// hangUp closes the connection, which a process that has left the group may keep
// open.
func (s *socket) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.conn != nil {
		_ = s.conn.Close() // closed already: as wanted
	}
}

// discard gives go-plugin no standard error until the process has ended.
type discard struct{ done <-chan struct{} }

func (d discard) Read([]byte) (int, error) { <-d.done; return 0, io.EOF }
func (discard) Close() error               { return nil }
