package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/servetrace/servetrace/internal/wire"
)

// Attachment is a connection to a plugin that somebody else has started: a
// debugger, another supervisor. It is one connection, which is never dialled
// again. Its methods are safe for concurrent use.
type Attachment struct {
	socket net.Conn
	client *grpc.ClientConn
	// life ends with the connection; its cause says how.
	life context.Context
	end  context.CancelCauseFunc
	// dials counts how often gRPC has asked for the socket.
	dials atomic.Int64
}

// How a connection ends.
var (
	errHungUp  = errors.New("the plugin ended, or closed it")
	errDropped = errors.New("this host closed it")
)

// Attach connects to the socket at path and waits until a gRPC server answers
// there. The other end must run as this process's user, or as root. ctx covers
// this alone. An error is an *Error and says which of the usual causes it was.
func Attach(ctx context.Context, path string) (*Attachment, error) {
	if err := CheckSocket(path); err != nil {
		return nil, err
	}
	socket, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, explainDial(ctx, path, err)
	}
	if err := wire.CheckPeer(socket); err != nil {
		_ = socket.Close() // nothing was sent
		return nil, attachError(ReasonPeer, path, "%w; run the plugin as the user of this process", err)
	}
	giveRoom(socket)
	a := &Attachment{socket: socket}
	a.life, a.end = context.WithCancelCause(context.Background())
	// The peer is known: gRPC has nothing to add to that. The name in the
	// target is only ever the ":authority", where a path is none.
	a.client, err = grpc.NewClient("passthrough:///localhost", dialOptions(a.dial, insecure.NewCredentials())...)
	if err != nil {
		a.hangUp(errDropped)
		return nil, attachError(ReasonOther, path, "%w", err)
	}
	if err := a.awaitAnswer(ctx); err != nil {
		a.close()
		return nil, explainSilence(ctx, path)
	}
	return a, nil
}

// dial gives gRPC the socket, once. It dials again when the other end wants no
// more calls (GOAWAY) and answers those it has: those that come meanwhile then
// wait for the end of the connection, instead of failing.
func (a *Attachment) dial(ctx context.Context, _ string) (net.Conn, error) {
	if a.dials.Add(1) == 1 {
		return watchedConn{a.socket, a}, nil
	}
	select {
	case <-a.life.Done():
		return nil, context.Cause(a.life)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// watchedConn tells an Attachment when gRPC is done with its socket: at the
// latest at its end, and not before the last call that it carries has ended.
type watchedConn struct {
	net.Conn
	a *Attachment
}

// Close closes the socket.
func (c watchedConn) Close() error {
	c.a.end(errHungUp)
	return c.Conn.Close()
}

// awaitAnswer blocks until the other end has spoken HTTP/2, or hung up, or ctx
// has ended.
func (a *Attachment) awaitAnswer(ctx context.Context) error {
	wait, cancel := context.WithCancel(a.life)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	a.client.Connect()
	for {
		switch state := a.client.GetState(); {
		case state == connectivity.Ready:
			return nil
		case state == connectivity.TransientFailure:
			return errHungUp
		case !a.client.WaitForStateChange(wait, state):
			return context.Cause(wait)
		}
	}
}

// Conn is the connection. It belongs to the Attachment: Stop closes it.
func (a *Attachment) Conn() grpc.ClientConnInterface { return a.client }

// PID is 0: the process is none of this one's.
func (a *Attachment) PID() int { return 0 }

// Done is closed when the connection is lost or closed.
func (a *Attachment) Done() <-chan struct{} { return a.life.Done() }

// Exit says how the connection ended. It is empty before Done.
func (a *Attachment) Exit() string {
	if err := context.Cause(a.life); err != nil {
		return err.Error()
	}
	return ""
}

// Leaving tells whether the other end wants no more calls, and one was tried
// nevertheless. The connection ends with the last of those it has.
func (a *Attachment) Leaving() bool { return a.dials.Load() > 1 }

// Kill closes the connection at once, and calls in flight fail. The process at
// the other end lives on; why is not told to anybody.
func (a *Attachment) Kill(string) { a.hangUp(errDropped) }

// Dump does nothing: the process is none of this one's.
func (a *Attachment) Dump(context.Context) {}

// Stop closes the connection and frees what belonged to it. It does not wait
// for the other end, whatever ctx says. Stopping again is allowed.
func (a *Attachment) Stop(context.Context) error {
	a.close()
	return nil
}

// close closes the socket before gRPC does, which would first write to it, and
// wait for that: the other end may be frozen.
func (a *Attachment) close() {
	a.hangUp(errDropped)
	_ = a.client.Close() // a second Close is harmless
}

func (a *Attachment) hangUp(why error) {
	a.end(why)
	_ = a.socket.Close() // closed already: as wanted
}

// mostSocketPath is what the kernel takes, less the zero at the end.
const mostSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// CheckSocket says in plain words what connect would say in numbers: whether
// path can be a plugin's socket. What it cannot see it leaves to connect. The
// error is an *Error; Attach gives the same.
func CheckSocket(path string) error {
	if len(path) > mostSocketPath {
		return attachError(ReasonNotSocket, path, "the path has %d bytes, that of a socket has at most %d; choose a shorter one", len(path), mostSocketPath)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return attachError(ReasonNotFound, path, "there is no such socket; start the plugin there (--listen), or check the path")
	case errors.Is(err, fs.ErrPermission):
		return attachError(ReasonPermission, path, "this process (user %d) may not look into the socket's folder; run the plugin as the same user", os.Geteuid())
	case err != nil:
		return attachError(ReasonOther, path, "look at the socket: %w", err)
	case info.Mode().IsRegular():
		return attachError(ReasonNotSocket, path, "this is a file, no socket; to have an executable started, write its path without unix://")
	case info.Mode().Type() != fs.ModeSocket:
		return attachError(ReasonNotSocket, path, "this is no socket (%v); name the socket of a plugin", info.Mode().Type())
	}
	return nil
}

// explainDial turns what connect said into an *Error.
func explainDial(ctx context.Context, path string, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return attachError(ReasonNobody, path, "nobody listens at this socket: the plugin that made it has ended; start it again")
	case errors.Is(err, syscall.EAGAIN):
		return attachError(ReasonNobody, path, "its queue of connections is full: the plugin is frozen, or takes none")
	case errors.Is(err, fs.ErrPermission):
		return attachError(ReasonPermission, path, "this process (user %d) may not connect to the socket; run the plugin as the same user", os.Geteuid())
	case errors.Is(err, syscall.EPROTOTYPE):
		return attachError(ReasonNotSocket, path, "this is no stream socket; name the socket of a plugin")
	case errors.Is(err, fs.ErrNotExist): // it was there a moment ago
		return attachError(ReasonNotFound, path, "the socket has gone; the plugin has ended")
	case ctx.Err() != nil:
		return explainSilence(ctx, path)
	}
	return attachError(ReasonOther, path, "%w", err)
}

// explainSilence says why there was no answer at a socket that took the
// connection.
func explainSilence(ctx context.Context, path string) error {
	switch {
	case ctx.Err() == nil:
		return attachError(ReasonNotPlugin, path, "it took the connection and ended it, or answered in something else than gRPC; is it an OTLP receiver?")
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return attachError(ReasonTimeout, path, "it took the connection and does not answer within the start timeout; is it frozen, or no gRPC server?")
	}
	return attachError(ReasonStopped, path, "no answer yet: %w", context.Cause(ctx))
}

func attachError(reason Reason, path, format string, args ...any) error {
	return &Error{Reason: reason, Path: path, Err: fmt.Errorf(format, args...), attach: true}
}
