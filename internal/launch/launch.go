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
//  2. From then on Conn is a gRPC connection to the plugin's socket. Everything that
//     the plugin writes to descriptors 1 and 2 is read and logged.
//  3. Done is closed when the process has ended, by itself or not. By then its group
//     and its descendants outside the group have been killed (children.go). Exit and
//     Report say how it ended.
//  4. Stop ends it: GRPCController.Shutdown and end of file on standard input first,
//     SIGKILL to the group when ctx ends. It frees the connection and the folder.
//     Every started Process must be stopped.
//
// A Child is the process alone, without handshake and log, for the conformance suite.
//
// An Attachment has the same methods as a Process, and its life is one connection:
// Attach makes it, Done is closed when it is lost, Kill and Stop close it and touch
// nothing else.
//
// Sweep removes the folders and processes of hosts that were killed (sweep.go).
//
// Open launch.go first, then runner.go and child.go; attach.go is the other way in.
// proc_*.go, memory_*.go and usage_*.go differ between systems. output.go reads the
// descriptors, cuts lines and logs them, with handshake.go, ratelimit.go, record.go
// for lines in hclog's form, stack.go and ring.go; redact.go and printable.go clean
// all that is shown, redactor.go what comes by RPC. errors.go says why a start
// failed, report.go how a process ended, identity.go whether its file has changed.
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/servetrace/servetrace/internal/stdio"
	"github.com/servetrace/servetrace/internal/wire"
)

// Command is what to start.
type Command struct {
	// Name is the plugin's name, for errors and logs.
	Name string
	// Path is the executable, looked up nowhere else. It is the plugin's
	// argument 0 also where a copy is executed.
	Path string
	// Digest is the SHA-256 of the executable's bytes, 32 of them; nil or empty
	// for no pin. With a pin, a copy of exactly the bytes that were hashed is
	// executed. What a plugin expects beside its executable it does not find
	// there, unless it looks beside argument 0; and the pin says nothing about
	// what else it loads: libraries, the interpreter of a script, its modules.
	Digest []byte
	// AllowWritable takes an executable that others than root and this user can
	// change.
	AllowWritable bool
	// Environ is the plugin's whole environment, "KEY=value", besides the
	// variables of the handshake. Nothing is inherited.
	Environ []string
	// Stdout is handed down as an extra descriptor, where a plugin finds the
	// host's standard output. Nil: see Output.
	Stdout *os.File
	// Output, if Stdout is nil, gets what the plugin prints as the host's standard
	// output, copied from a pipe, line by line. While it takes nothing the plugin
	// waits, and nothing else does. Nil: the plugin finds no standard output.
	Output *stdio.File
	// SocketDirs are folders to try for the private folder of the socket,
	// before the temporary folder.
	SocketDirs []string
	// Log takes what the plugin prints. It must not be nil.
	Log *slog.Logger
	// Secrets are texts that must not be shown, of six bytes or more each;
	// shorter ones are passed over. "<redacted>" stands in their place in log
	// lines, errors and the report. The slice is not kept.
	Secrets []string
}

// Process is a running plugin. Its methods are safe for concurrent use.
type Process struct {
	run    *process
	client *goplugin.Client
	conn   *grpc.ClientConn
}

// pluginName is the one entry of go-plugin's plugin set. Only Dispense sees it.
const pluginName = "traces"

// Start starts cmd and waits until it has said where it listens. ctx covers
// the start alone: when it ends before, the process is killed and its group
// with it. Start returns within a moment of ctx's end even if the kernel can
// not end the process, or does not come back from a dead disk. An error is an
// *Error and says which of the usual causes it was.
func Start(ctx context.Context, cmd Command) (*Process, error) { return await(ctx, newProcess(cmd)) }

// await waits for open, which may take as long as the kernel does.
func await(ctx context.Context, run *process) (*Process, error) {
	type outcome struct {
		p   *Process
		err error
	}
	opened, late := make(chan outcome), make(chan struct{})
	go func() { // ends with the start, or if nobody waits any more with the process
		p, err := open(ctx, run)
		select {
		case opened <- outcome{p, err}:
		case <-late:
			if p != nil {
				run.child.Kill("nobody waits for it any more")
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

// open is Start without a bound on its end.
func open(ctx context.Context, run *process) (*Process, error) {
	cmd := run.cmd
	if err := look(cmd.Path, Trust{Digest: cmd.Digest, AllowWritable: cmd.AllowWritable}); err != nil {
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
		err = context.Cause(ctx) // killed between the handshake and here
	}
	if err == nil {
		err = run.socket.refusal() // which go-plugin takes for a plugin that has no output to tell
	}
	if err != nil {
		run.child.giveUp()
		p.release()
		return nil, run.explain(ctx, err)
	}
	return p, nil
}

// clientConfig is go-plugin's part: the handshake's variables, the version, and
// a connection with our codec and windows. Everything else is the runner's.
func clientConfig(run *process) *goplugin.ClientConfig {
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
		Logger:           hclog.NewNullLogger(), // our errors and output.go say it better
		StartTimeout:     time.Hour,             // ctx decides, by killing the process
		SyncStdout:       run.out.writer("stdout"),
		SyncStderr:       run.out.writer("stderr"),
		GRPCDialOptions:  append(dialOptions(run.dial, wire.PeerCredentials()), redactErrors(run.out.secrets)),
	}
}

// dialOptions are those of every connection to a plugin.
func dialOptions(dial func(context.Context, string) (net.Conn, error), creds credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}), grpc.MaxCallRecvMsgSize(maxReplyBytes)),
		grpc.WithInitialWindowSize(wire.WindowBytes),
		grpc.WithInitialConnWindowSize(wire.WindowBytes),
		grpc.WithWriteBufferSize(wire.WriteBufferBytes),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		// The start timeout decides, and the deadline of a call.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: noLimit}),
		grpc.WithIdleTimeout(0), // the socket may be gone when it wakes
		grpc.WithDisableRetry(), // the host retries, and gRPC would hold the bytes
		grpc.WithDisableServiceConfig(),
	}
}

// socketBytes is what the kernel is asked to take for a plugin before it has
// read: a batch and more, so that a batch is written without waiting and the
// plugin wakes up less often for it. The kernel takes twice of what it is asked
// for, its own overhead included, and of net.core.wmem_max at most: usually
// twice of 208 KiB, where a socket has 208 KiB unasked.
const socketBytes = 1 << 20

// giveRoom gives a socket that room.
func giveRoom(conn net.Conn) {
	if socket, ok := conn.(*net.UnixConn); ok {
		_ = socket.SetWriteBuffer(socketBytes) // it works as well without, but for more CPU
	}
}

// noLimit is longer than any connection takes to stand.
const noLimit = 365 * 24 * time.Hour

// maxReplyBytes is the longest answer that is taken from a plugin. Answers are
// counts and remarks, which have room here. Decoded, one takes up to a hundred
// times as much memory (a remark without a word is two bytes), and a plugin may
// answer as many calls at once as it wants, so that megabytes would be gigabytes.
const maxReplyBytes = 256 << 10

// maxHeaderBytes is the same for headers and trailers, which carry counts of
// filtered spans and the text of an error.
const maxHeaderBytes = 1 << 20

// connect starts the process and gives go-plugin's connection to it.
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

// connPlugin dispenses the connection itself: the services on it are the
// host's business.
type connPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (connPlugin) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("launch serves nothing")
}

func (connPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// Conn is the connection to the plugin. It belongs to the Process: Stop closes
// it.
func (p *Process) Conn() grpc.ClientConnInterface { return p.conn }

// PID is the id of the process and of its group.
func (p *Process) PID() int { return p.run.child.PID() }

// Done is closed when the process has ended, its group has been killed and its
// last words have been logged.
func (p *Process) Done() <-chan struct{} { return p.run.child.done }

// Exit says how the process ended ("exit status 2", "signal: killed") with its
// last line of output where it ended badly. It is empty before Done.
func (p *Process) Exit() string { return p.run.exit() }

// Leaving is false: a process that wants no more calls closes its socket, and
// those that come fail.
func (p *Process) Leaving() bool { return false }

// Kill kills the process and its group at once and does not wait. why is kept
// for the report, in words that go on from "killed:"; of several the first.
func (p *Process) Kill(why string) { p.run.child.Kill(why) }

// Dump has a process that does not answer print the stacks of its goroutines,
// and end, as SIGQUIT does with a Go program, in whatever language it is; a
// stopped one is woken for it. It blocks until the process has ended or ctx has:
// kill it then.
func (p *Process) Dump(ctx context.Context) {
	p.run.child.dump()
	select {
	case <-p.run.child.done:
	case <-ctx.Done():
	}
}

// Stop asks the process to end, waits until it did, and frees what belonged to
// it. When ctx ends first the group is killed. Stop returns within a moment of
// ctx's end even if the kernel cannot end the process; the error then says
// so. Stopping again is allowed.
func (p *Process) Stop(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { p.run.child.Kill("it did not end when asked to") })()
	p.askToEnd(ctx)
	freed := make(chan struct{})
	go func() { // ends when the process has: it waits for nothing else
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
	select {
	case <-p.run.child.reaped: // it has gone; what it left goes in a moment
		return nil
	default:
		return fmt.Errorf("stop plugin %q: process %d does not end after SIGKILL", p.run.cmd.Name, p.PID())
	}
}

// killGrace is how long the kernel may take to end a killed process, and how
// long what it left may take to go.
const killGrace = time.Second

// controllerTimeout bounds the request to end: a plugin that does not answer
// it learns the same from the end of its standard input.
const controllerTimeout = 200 * time.Millisecond

// askToEnd tells a plugin in both ways that its host is done with it: a stock
// go-plugin server knows only the first, a plugin in another language often
// only the second.
func (p *Process) askToEnd(ctx context.Context) {
	select {
	case <-p.run.child.done:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, controllerTimeout)
	defer cancel()
	// The answer does not matter: a plugin may end before it is sent.
	_ = p.conn.Invoke(ctx, "/plugin.GRPCController/Shutdown", &emptypb.Empty{}, &emptypb.Empty{})
	p.run.child.CloseStdin()
}

// release frees what go-plugin holds, and the folder. The process must have
// ended, or go-plugin would wait for it without a deadline.
func (p *Process) release() {
	<-p.run.child.done
	p.client.Kill()
	if p.conn != nil {
		_ = p.conn.Close() // a second Close is harmless
	}
	p.run.program.release() // if it was not even started
	p.run.folder.Remove()
}
