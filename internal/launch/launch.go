// Package launch turns a command into a connected plugin process, or a socket into a
// connection to a plugin that another process has started. It is the only user of
// go-plugin's client side. It starts, connects and ends one process, or one
// connection; the host decides whether and when to start another.
//
// The life of a Process:
//
//  1. Start checks which users can change the executable (trust.go), makes a private
//     folder for the socket (folder.go), and with a pin a copy of the pinned bytes
//     (pin.go). It starts the command in a process group of its own with pipes on
//     descriptors 0, 1 and 2 (child.go), and waits for the handshake line. Lines
//     before the handshake are logged.
//  2. From then on Conn is a gRPC connection to the plugin's socket. All output on
//     descriptors 1 and 2 is read and logged.
//  3. Done is closed when the process has ended for any reason. By then its group and
//     its descendants outside the group have been killed (children.go). Exit and
//     Report describe the end.
//  4. Stop ends the process: first by GRPCController.Shutdown and the end of standard
//     input, and by SIGKILL to the group when ctx ends. It frees the connection and the
//     folder. Every started Process must be stopped.
//
// A Child is the process alone, without handshake and log, for the conformance suite.
//
// An Attachment has the same methods as a Process, but stands for one connection. Attach
// makes the connection, Done is closed when it is lost, and Kill and Stop only close it.
//
// Sweep removes the folders and processes of hosts that were killed (sweep.go).
//
// Open launch.go first, then runner.go and child.go, or attach.go. dial.go has the options
// of every connection. pluginlog.go reads descriptors 1 and 2, cuts the text into lines and
// logs them. It finds the handshake with handshake.go, log lines in hclog's form with
// record.go, and the stack of a crash with stack.go. printout.go copies lines to standard
// output. redact.go removes secrets. errors.go explains a failed start, and executable.go a
// file that cannot run on this machine. report.go describes the end of a process.
// identity.go detects a changed file.
//
// Four files are for Linux, and system_other.go has their functions for other systems.
// proc_linux.go waits for the end of a Child, background_linux.go sets its scheduling, and
// usage_linux.go reads its memory and its out-of-memory kills. memory_linux.go makes the
// copy of a pinned executable in memory.
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/servetrace/servetrace/internal/stdio"
	"github.com/servetrace/servetrace/internal/wire"
)

// Command describes the plugin process to start.
type Command struct {
	// Name is the plugin's name, for errors and logs.
	Name string
	// Path is the path of the executable. It is the plugin's argument 0, even if a copy is
	// executed.
	Path string
	// Args are the arguments after argument 0.
	Args []string
	// Trust holds the conditions that the executable must meet. If Trust.Digest is set, Start
	// executes a copy of the hashed bytes, which lies in another folder. So a plugin must
	// look for its own files in the folder of argument 0.
	Trust
	// Environ is the plugin's environment, as "KEY=value". Start adds the variables of
	// go-plugin's handshake. The plugin inherits no variable of this process.
	Environ []string
	// Stdout is passed to the plugin as an extra descriptor, for output that belongs on the
	// host's standard output. If nil, Output is used.
	Stdout *os.File
	// Output is used if Stdout is nil. The plugin's extra descriptor is then a pipe, and its
	// lines are copied to Output. While Output blocks, the plugin waits, and the host does
	// not. If Stdout and Output are nil, the plugin gets no extra descriptor.
	Output *stdio.File
	// SocketDirs are the folders in which Start first tries to make the private folder of the
	// socket. If that fails in all of them, Start uses the temporary folder.
	SocketDirs []string
	// Log gets the plugin's output. It must not be nil.
	Log *slog.Logger
	// Secrets are texts that must not be shown, of six bytes or more each; shorter texts
	// are ignored. In log lines, errors and the report, "<redacted>" replaces them. The
	// caller may change the slice after Start.
	Secrets []string
}

// Process is a running plugin. Its methods are safe for concurrent use.
type Process struct {
	run    *processRunner
	client *goplugin.Client
	conn   *grpc.ClientConn
}

// pluginName is the name of the plugin in go-plugin's client. The name has no meaning,
// because the client knows only this plugin.
const pluginName = "traces"

// Start starts cmd and waits until it is connected. ctx covers only the start: if ctx
// ends first, the process and its group are killed. Start returns soon after the end of
// ctx, even if the kernel cannot end the process or waits for a disk that does not
// answer. An error is an *Error with the kind of the cause.
func Start(ctx context.Context, cmd Command) (*Process, error) { return await(ctx, newRunner(cmd)) }

// await returns the result of open. If open still blocks in the kernel killGrace after the
// end of ctx, await returns an error and leaves the goroutine of open behind.
func await(ctx context.Context, run *processRunner) (*Process, error) {
	type outcome struct {
		p   *Process
		err error
	}
	opened, late := make(chan outcome), make(chan struct{})
	go func() { // ends when open returns, and after a late start with the process
		p, err := open(ctx, run)
		select {
		case opened <- outcome{p, err}:
		case <-late:
			if p != nil {
				run.child.Kill("its start took too long")
				p.release()
			}
		}
	}()
	select {
	case o := <-opened:
		return o.p, o.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(killGrace)
	defer timer.Stop()
	select {
	case o := <-opened:
		return o.p, o.err
	case <-timer.C:
		close(late)
		return nil, run.explainLate(ctx)
	}
}

// open starts the process and connects to it, as Start does. If the kernel blocks, open may
// return long after the end of ctx.
func open(ctx context.Context, run *processRunner) (*Process, error) {
	cmd := run.cmd
	if err := checkFile(cmd.Path, cmd.Trust); err != nil {
		return nil, err
	}
	var err error
	if run.folder, err = NewFolder(cmd.SocketDirs); err != nil {
		return nil, &Error{Reason: ReasonEnvironment, Path: cmd.Path, Err: err}
	}
	if err := run.program.prepare(run.folder); err != nil {
		run.folder.Remove()
		return nil, err
	}
	p := &Process{run: run, client: goplugin.NewClient(clientConfig(run))}
	stopKill := context.AfterFunc(ctx, func() { run.child.Kill("it was not ready in time, or its start was called off") })
	p.conn, err = p.connect()
	if !stopKill() && err == nil {
		err = context.Cause(ctx) // ctx ended after the handshake, and the process was killed
	}
	if err == nil {
		err = run.socket.refusal() // another user's socket; go-plugin does not return this error
	}
	if err != nil {
		run.child.giveUp()
		p.release()
		return nil, run.explain(ctx, err)
	}
	return p, nil
}

// clientConfig returns the configuration of go-plugin's client. The client handles the
// handshake and makes the connection. It starts and ends the process through run.
func clientConfig(run *processRunner) *goplugin.ClientConfig {
	return &goplugin.ClientConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion:  wire.ProtocolVersion,
			MagicCookieKey:   wire.CookieKey,
			MagicCookieValue: wire.CookieValue,
		},
		VersionedPlugins: map[int]goplugin.PluginSet{
			wire.ProtocolVersion: {pluginName: connPlugin{}},
		},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, _ string) (runner.Runner, error) {
			run.handshakeEnv = spec.Env
			return run, nil
		},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		SkipHostEnv:      true,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: run.folder.Path},
		Logger:           hclog.NewNullLogger(), // this package logs the same events with more facts
		StartTimeout:     time.Hour,             // never reached, because the end of ctx kills the process
		SyncStdout:       run.out.writer("stdout"),
		SyncStderr:       run.out.writer("stderr"),
		GRPCDialOptions:  append(dialOptions(run.dial, wire.PeerCredentials()), run.out.secrets.redactErrors()),
	}
}

// connect starts the process and returns go-plugin's connection to it.
func (p *Process) connect() (*grpc.ClientConn, error) {
	client, err := p.client.Client()
	if err != nil {
		return nil, err
	}
	conn, err := client.Dispense(pluginName)
	if err != nil {
		return nil, err
	}
	return conn.(*grpc.ClientConn), nil
}

// connPlugin is a plugin for go-plugin's client whose Dispense returns the gRPC connection
// itself. The caller of Start makes the clients of the services on this connection.
type connPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (connPlugin) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("launch serves nothing")
}

func (connPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// Conn returns the connection to the plugin. Stop closes it.
func (p *Process) Conn() grpc.ClientConnInterface { return p.conn }

// PID returns the id of the process and of its group.
func (p *Process) PID() int { return p.run.child.PID() }

// Done returns a channel that is closed when the process has ended, its group has been
// killed and its output has been logged.
func (p *Process) Done() <-chan struct{} { return p.run.child.done }

// Exit returns a description of the end of the process ("exit status 2", "signal: killed").
// After a failure it includes the last line of the output. It is empty before Done.
func (p *Process) Exit() string { return p.run.exit() }

// Leaving returns false. A process that accepts no more calls closes its socket, so its
// calls fail, and the state that Attachment.Leaving reports does not occur.
func (p *Process) Leaving() bool { return false }

// Kill kills the process and its group at once. It does not wait. The Report
// contains the reason (why) of the first call.
func (p *Process) Kill(why string) { p.run.child.Kill(why) }

// Dump sends SIGQUIT to a process that does not answer. It also sends SIGCONT, because
// the process may be stopped. A Go program then prints the stacks of its goroutines and
// ends. Dump blocks until the process has ended, or ctx ends. If ctx ends first, the
// caller must kill the process.
func (p *Process) Dump(ctx context.Context) {
	p.run.child.dump()
	select {
	case <-p.run.child.done:
	case <-ctx.Done():
	}
}

// Stop asks the process to end, waits for its end, and frees its resources. If ctx ends
// first, the group is killed. Stop returns soon after the end of ctx, with an error if the
// kernel cannot end the process. It may be called again.
func (p *Process) Stop(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { p.run.child.Kill("it did not end when asked to") })()
	p.askToEnd(ctx)
	freed := make(chan struct{})
	go func() { // ends with the process
		defer close(freed)
		<-p.run.child.done
		p.release()
	}()
	select {
	case <-freed:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-freed:
		return nil
	case <-time.After(killGrace):
	}
	if closed(p.run.child.reaped) { // its children or its output may remain
		return nil
	}
	return fmt.Errorf("stop plugin %q: process %d does not end after SIGKILL", p.run.cmd.Name, p.PID())
}

// closed reports whether a channel on which nothing is sent is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// killGrace bounds the time that the kernel takes to end a killed process, and the time
// until its output has been read.
const killGrace = time.Second

// controllerTimeout bounds the call of GRPCController.Shutdown, which asks the plugin to
// end. After the call, askToEnd closes the plugin's standard input.
const controllerTimeout = 200 * time.Millisecond

// askToEnd asks a plugin to end in two ways. A server of go-plugin reacts only to the
// call. A plugin in another language often reacts only to the end of standard input.
func (p *Process) askToEnd(ctx context.Context) {
	if closed(p.run.child.done) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, controllerTimeout)
	defer cancel()
	// The answer does not matter, because a plugin may end before it sends the answer.
	_ = p.conn.Invoke(ctx, "/plugin.GRPCController/Shutdown", &emptypb.Empty{}, &emptypb.Empty{})
	p.run.child.CloseStdin()
}

// release frees go-plugin's client and the folder. It blocks until the process has ended,
// without a deadline, as Kill of go-plugin does.
func (p *Process) release() {
	<-p.run.child.done
	p.client.Kill()
	if p.conn != nil {
		_ = p.conn.Close() // a second Close is harmless
	}
	p.run.program.release() // does nothing after a start, which has released the copy already
	p.run.folder.Remove()
}
