package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/test/testplugin"
)

// socketPath returns a path for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(testplugin.SocketFolder(t), "s")
}

func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// answer takes connections at a new socket, each by f, until the test ends.
func answer(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	path := socketPath(t)
	listener := listen(t, path)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f(conn)
		}
	})
	return path
}

// serveGRPC is a gRPC server without any service.
func serveGRPC(t *testing.T) (path string, server *grpc.Server) {
	t.Helper()
	path = socketPath(t)
	listener := listen(t, path)
	server = grpc.NewServer()
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	t.Cleanup(serving.Wait)
	t.Cleanup(server.Stop)
	return path, server
}

func attach(t *testing.T, path string) *Attachment {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := Attach(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return a
}

// check asks for the health of an unknown service: the error is an answer all the same.
func check(t *testing.T, a *Attachment) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := healthpb.NewHealthClient(a.Conn()).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func wantExit(t *testing.T, a *Attachment, want string) {
	t.Helper()
	select {
	case <-a.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the connection does not end")
	}
	if got := a.Exit(); got != want {
		t.Errorf("Exit = %q, want %q", got, want)
	}
}

func TestAttach(t *testing.T) {
	path, server := serveGRPC(t)
	first, second := attach(t, path), attach(t, path)
	for _, a := range []*Attachment{first, second} {
		if err := check(t, a); !wire.Unimplemented(err) {
			t.Errorf("Check = %v, want it unimplemented", err)
		}
		if a.Exit() != "" || a.PID() != 0 {
			t.Errorf("Exit %q and PID %d of a connection that stands", a.Exit(), a.PID())
		}
	}
	first.Kill("test")
	wantExit(t, first, "this host closed it")
	if err := check(t, first); err == nil || wire.Unimplemented(err) {
		t.Errorf("Check on a closed connection = %v", err)
	}
	if err := check(t, second); !wire.Unimplemented(err) {
		t.Errorf("Check = %v after another connection was closed", err)
	}
	server.Stop()
	wantExit(t, second, "the plugin ended, or closed it")
	for range 2 {
		if err := second.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
}

func TestAttachReasons(t *testing.T) {
	path := func(p string) func(*testing.T) string { return func(*testing.T) string { return p } }
	for _, test := range []struct {
		name   string
		path   func(*testing.T) string
		reason Reason
		text   string
	}{
		{"missing", path("/nowhere/s"), ReasonNotFound,
			"there is no such socket; start the plugin there (--listen), or check the path"},
		{"file", func(t *testing.T) string {
			path := socketPath(t)
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}, ReasonNotSocket, "this is a file and not a socket; to have an executable started, write its path without unix://"},
		{"folder", func(t *testing.T) string { return t.TempDir() }, ReasonNotSocket,
			"this is not a socket (d---------); name the socket of a plugin"},
		{"datagrams", func(t *testing.T) string {
			path := socketPath(t)
			conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return path
		}, ReasonNotSocket, "this is not a stream socket; name the socket of a plugin"},
		{"long", path("/" + strings.Repeat("x", maxSocketPath)), ReasonNotSocket,
			fmt.Sprintf("the path of the socket has %d bytes, want at most %d; choose a shorter path", maxSocketPath+1, maxSocketPath)},
		{"left over", func(t *testing.T) string {
			path := socketPath(t)
			listener := listen(t, path)
			listener.SetUnlinkOnClose(false)
			_ = listener.Close()
			return path
		}, ReasonNoListener, "no process listens at this socket: the plugin that made it has ended; start it again"},
		{"deaf", func(t *testing.T) string {
			path := socketPath(t)
			listen(t, path) // the kernel takes connections, nobody accepts them
			return path
		}, ReasonTimeout, "it accepted the connection and does not answer within the start timeout; is it frozen, or not a gRPC server?"},
		{"hangs up", func(t *testing.T) string { return answer(t, func(conn net.Conn) { _ = conn.Close() }) }, ReasonNotPlugin,
			"it accepted the connection and closed it, or did not answer in gRPC; is it an OTLP receiver?"},
		{"HTTP/1", func(t *testing.T) string {
			return answer(t, func(conn net.Conn) {
				_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + strings.Repeat(" ", 100)))
				_ = conn.Close()
			})
		}, ReasonNotPlugin, "it accepted the connection and closed it, or did not answer in gRPC; is it an OTLP receiver?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := test.path(t)
			wait := 20 * time.Second
			if test.reason == ReasonTimeout {
				wait = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := Attach(ctx, path)
			wantError(t, err, test.reason, "attach to "+path+": "+test.text)
		})
	}
}

func wantError(t *testing.T, err error, reason Reason, text string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want an *Error", err)
	}
	if e.Reason != reason {
		t.Errorf("reason %v, want %v", e.Reason, reason)
	}
	if e.Error() != text {
		t.Errorf("error\n%s\nwant\n%s", e, text)
	}
}

func TestAttachIsCalledOff(t *testing.T) {
	path := socketPath(t)
	listen(t, path)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the host stops"))
	_, err := Attach(ctx, path)
	wantError(t, err, ReasonStopped, "attach to "+path+": no answer yet: the host stops")
}

// TestStopDoesNotWaitForAFrozenPeer: one that does not read, with more on its
// way than the socket takes.
func TestStopDoesNotWaitForAFrozenPeer(t *testing.T) {
	accepted := make(chan net.Conn, 1)
	path := answer(t, func(conn net.Conn) {
		// The server sends its settings, with windows without bounds, and then neither
		// writes nor reads.
		_, _ = conn.Write([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff}) // SETTINGS
		_, _ = conn.Write([]byte{0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0})             // WINDOW_UPDATE
		accepted <- conn
	})
	a := attach(t, path)
	conn := <-accepted
	t.Cleanup(func() { _ = conn.Close() })
	taken := make(chan struct{}, 4)
	var calls sync.WaitGroup
	for range cap(taken) {
		calls.Go(func() {
			request := &wire.Outgoing{Buffers: func() mem.BufferSlice {
				taken <- struct{}{}
				return mem.BufferSlice{mem.SliceBuffer(make([]byte, 4<<20))}
			}}
			if err := a.Conn().Invoke(t.Context(), wire.ExportMethod, request, &wire.Incoming{}); err == nil {
				t.Error("a call to nobody succeeds")
			}
		})
	}
	for range cap(taken) {
		<-taken
	}
	begun := time.Now()
	if err := a.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if took := time.Since(begun); took > 4*time.Second { // gRPC by itself waits for 5 s
		t.Errorf("Stop took %v", took)
	}
	calls.Wait()
}

func TestAttachmentsLeaveNothing(t *testing.T) {
	path, _ := serveGRPC(t)
	deaf := socketPath(t)
	listen(t, deaf)
	before := openFiles(t)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		a, err := Attach(ctx, path)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		_, err = Attach(ctx, deaf)
		cancel()
		if err == nil {
			t.Error("attached to a socket that nobody reads")
		}
	}
	testplugin.WaitFor(t, "descriptors to be closed", func() bool { return openFiles(t) <= before })
}

// TestTheStartTimeoutDecides: gRPC has a limit of its own, 20 s, for a
// connection to stand.
func TestTheStartTimeoutDecides(t *testing.T) {
	limit := make(chan time.Duration, 1)
	client, err := grpc.NewClient("passthrough:///localhost", dialOptions(func(ctx context.Context, _ string) (net.Conn, error) {
		deadline, _ := ctx.Deadline()
		select {
		case limit <- time.Until(deadline):
		default:
		}
		return nil, errors.New("nobody is there")
	}, insecure.NewCredentials())...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	client.Connect()
	if got := <-limit; got < 24*time.Hour {
		t.Errorf("a connection has %v to stand", got)
	}
}

// TestAnAttachmentKnowsThatThePluginLeaves: from a call that it does not take
// until the last one that it has.
func TestAnAttachmentKnowsThatThePluginLeaves(t *testing.T) {
	path := socketPath(t)
	listener := listen(t, path)
	arrived, finish := make(chan struct{}, 1), make(chan struct{})
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		arrived <- struct{}{}
		<-finish
		return status.Error(codes.Unimplemented, "as ever")
	}))
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) }) // ends with GracefulStop
	t.Cleanup(running.Wait)
	a := attach(t, path)
	running.Go(func() {
		if err := check(t, a); !wire.Unimplemented(err) {
			t.Errorf("the call from before: %v, want it unimplemented", err)
		}
	})
	<-arrived
	if a.Leaving() {
		t.Error("the plugin leaves before it was stopped")
	}
	running.Go(server.GracefulStop)
	testplugin.WaitFor(t, "the connection to be given up", func() bool { return a.client.GetState() == connectivity.Idle })
	running.Go(func() {
		if err := check(t, a); err == nil || !strings.Contains(err.Error(), errHungUp.Error()) {
			t.Errorf("a call after that: %v, want that %v", err, errHungUp)
		}
	})
	testplugin.WaitFor(t, "the plugin to leave", a.Leaving)
	close(finish)
	wantExit(t, a, "the plugin ended, or closed it")
	running.Wait() // the calls' context is the test's
}
