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

// Attachment is a connection to a plugin that another process has started, such as a
// debugger. A lost connection is never dialled again. The methods are safe for concurrent
// use.
type Attachment struct {
	socket net.Conn
	client *grpc.ClientConn
	// life is a context that ends with the connection. Its cause is the reason for the end.
	life context.Context
	end  context.CancelCauseFunc
	// dials counts the calls of the method dial by gRPC.
	dials atomic.Int64
}

// The causes of the end of a connection.
var (
	errHungUp  = errors.New("the plugin ended, or closed it")
	errDropped = errors.New("this host closed it")
)

// Attach connects to the socket at path and waits until a gRPC server answers. The other
// end must run as this process's user, or as root. ctx covers only the call. An error is
// an *Error with the kind of the cause.
func Attach(ctx context.Context, path string) (*Attachment, error) {
	if err := CheckSocket(path); err != nil {
		return nil, err
	}
	socket, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, explainDial(ctx, path, err)
	}
	if _, err := wire.CheckPeer(socket); err != nil {
		_ = socket.Close() // an error has no effect: nothing was sent
		return nil, attachError(ReasonPeer, path, "%w; run the plugin as the user of this process", err)
	}
	widenSocket(socket)
	a := &Attachment{socket: socket}
	a.life, a.end = context.WithCancelCause(context.Background())
	// The peer was checked above, so the connection needs no credentials. The target is
	// used only as the ":authority" of calls, which cannot be a path.
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

// dial gives gRPC the socket in the first call. gRPC calls dial again if the plugin accepts
// no more calls (GOAWAY) but still answers earlier calls. This second call blocks until the
// connection has ended, so new calls wait instead of failing.
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

// watchedConn ends the Attachment when gRPC closes the socket. gRPC closes the socket when
// the connection fails, or after the last call if the plugin accepts no more calls.
type watchedConn struct {
	net.Conn
	a *Attachment
}

// Close closes the socket.
func (c watchedConn) Close() error {
	c.a.end(errHungUp)
	return c.Conn.Close()
}

// awaitAnswer blocks until the other end has answered in HTTP/2 or hung up, or ctx ends.
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

// Conn returns the connection. Stop closes it.
func (a *Attachment) Conn() grpc.ClientConnInterface { return a.client }

// PID returns 0, because this host did not start the other process.
func (a *Attachment) PID() int { return 0 }

// Done returns a channel that is closed when the connection is lost or closed.
func (a *Attachment) Done() <-chan struct{} { return a.life.Done() }

// Exit returns the cause of the end of the connection. It is empty before Done.
func (a *Attachment) Exit() string {
	if err := context.Cause(a.life); err != nil {
		return err.Error()
	}
	return ""
}

// Leaving reports whether the plugin has announced that it accepts no more calls, and a
// call was tried after that. The connection ends after the last call in progress.
func (a *Attachment) Leaving() bool { return a.dials.Load() > 1 }

// Kill closes the connection at once, and calls in progress fail. The plugin's process
// continues. The argument, a reason, is not used.
func (a *Attachment) Kill(string) { a.hangUp(errDropped) }

// Dump does nothing, because this host did not start the other process.
func (a *Attachment) Dump(context.Context) {}

// Report returns the zero Report, because this host did not start the other process.
func (a *Attachment) Report() Report { return Report{} }

// Suppressed returns 0, because this host does not read the output of the other process.
func (a *Attachment) Suppressed() uint64 { return 0 }

// Unprinted returns 0, because this host does not print the output of the other process.
func (a *Attachment) Unprinted() uint64 { return 0 }

// Stop closes the connection and frees its resources. It does not wait for the other end,
// and does not use ctx. It may be called again.
func (a *Attachment) Stop(context.Context) error {
	a.close()
	return nil
}

// close closes the socket, and then gRPC's client. The client alone would first write to the
// socket, and block if the plugin is frozen.
func (a *Attachment) close() {
	a.hangUp(errDropped)
	_ = a.client.Close() // a second Close does no harm
}

// hangUp closes the socket. why becomes the cause of the end of the connection, unless it has
// ended already.
func (a *Attachment) hangUp(why error) {
	a.end(why)
	_ = a.socket.Close() // fails only if the socket is closed already
}

// maxSocketPath is the length of the longest path of a socket, in bytes, without the zero byte at
// its end.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// CheckSocket returns an *Error if the file system shows that path cannot be a plugin's
// socket. It does not connect.
func CheckSocket(path string) error {
	if len(path) > maxSocketPath {
		return attachError(ReasonNotSocket, path, "the path of the socket has %d bytes, want at most %d; choose a shorter path", len(path), maxSocketPath)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return attachError(ReasonNotFound, path, "there is no such socket; start the plugin there (--listen), or check the path")
	case errors.Is(err, fs.ErrPermission):
		return attachError(ReasonPermission, path, "this process (user %d) may not look into the socket's folder; run the plugin as the same user", os.Geteuid())
	case err != nil:
		return attachError(ReasonOther, path, "check the socket: %w", err)
	case info.Mode().IsRegular():
		return attachError(ReasonNotSocket, path, "this is a file and not a socket; to have an executable started, write its path without unix://")
	case info.Mode().Type() != fs.ModeSocket:
		return attachError(ReasonNotSocket, path, "this is not a socket (%v); name the socket of a plugin", info.Mode().Type())
	}
	return nil
}

// explainDial returns the *Error for an error of connect.
func explainDial(ctx context.Context, path string, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return attachError(ReasonNoListener, path, "no process listens at this socket: the plugin that made it has ended; start it again")
	case errors.Is(err, syscall.EAGAIN):
		return attachError(ReasonNoListener, path, "its queue of connections is full: the plugin is frozen, or accepts none")
	case errors.Is(err, fs.ErrPermission):
		return attachError(ReasonPermission, path, "this process (user %d) may not connect to the socket; run the plugin as the same user", os.Geteuid())
	case errors.Is(err, syscall.EPROTOTYPE):
		return attachError(ReasonNotSocket, path, "this is not a stream socket; name the socket of a plugin")
	case errors.Is(err, fs.ErrNotExist): // CheckSocket has found the socket a moment before
		return attachError(ReasonNotFound, path, "the socket no longer exists; the plugin has ended")
	case ctx.Err() != nil:
		return explainSilence(ctx, path)
	}
	return attachError(ReasonOther, path, "%w", err)
}

// explainSilence returns the *Error for a socket that has accepted the connection but does
// not answer.
func explainSilence(ctx context.Context, path string) error {
	switch {
	case ctx.Err() == nil:
		return attachError(ReasonNotPlugin, path, "it accepted the connection and closed it, or did not answer in gRPC; is it an OTLP receiver?")
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return attachError(ReasonTimeout, path, "it accepted the connection and does not answer within the start timeout; is it frozen, or not a gRPC server?")
	}
	return attachError(ReasonStopped, path, "no answer yet: %w", context.Cause(ctx))
}

// attachError returns the *Error of a failed attachment to the socket at path.
func attachError(reason Reason, path, format string, args ...any) error {
	return &Error{Reason: reason, Path: path, Err: fmt.Errorf(format, args...), attach: true}
}
