package testplugin

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/pluginsdk"
)

// crooked is a good plugin, run by pluginsdk inside this process, behind a proxy with a
// single defect. Everything else is passed on unchanged. The zero value with a Spec has
// no defect.
type crooked struct {
	spec pluginsdk.Spec
	// calls handles each unary call. Most implementations call c.pass.
	calls func(c *call) ([]byte, error)
	// unserved is a method that is answered with UNIMPLEMENTED.
	unserved string
	// line makes the handshake line from the good plugin's.
	line func(good string) string
	// environ is added to the good plugin's environment.
	environ []string
	// outside puts its socket beside the host's folder.
	outside bool
	// deaf ignores the end of standard input.
	deaf bool
	// interrupt and terminate replace the reactions to SIGINT (none) and SIGTERM (an
	// orderly end).
	interrupt, terminate func()
	// end is called last.
	end func()
}

// call is a call of a crooked plugin.
type call struct {
	stream  grpc.ServerStream
	method  string // without the package: "Lifecycle/Describe"
	request []byte
	// forward calls the good plugin.
	forward func(request []byte) ([]byte, error)
}

// pass forwards the request unchanged to the good plugin.
func (c *call) pass() ([]byte, error) { return c.forward(c.request) }

// gRPC's numbers, because only internal/wire may import the package of their names:
// https://grpc.io/docs/guides/status-codes/
const (
	invalidArgument   = 3
	alreadyExists     = 6
	resourceExhausted = 8
	unimplemented     = 12
	internal          = 13
	unavailable       = 14
)

// raw is a codec that does not change messages.
type raw struct{}

// Name returns the name of the peer's codec.
func (raw) Name() string { return "proto" }

// Marshal returns the bytes of v.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal stores the bytes in v.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// proxy is a running crooked plugin.
type proxy struct {
	crooked
	conn *grpc.ClientConn // to the good plugin
	// ctx ends when stop is called.
	ctx  context.Context
	stop context.CancelFunc
}

// serve runs the plugin in this process and does not return.
func (k crooked) serve() {
	p := &proxy{crooked: k}
	p.ctx, p.stop = context.WithCancel(context.Background())
	own, ended := p.runGood()
	inner := strings.Split(own, "|")[3]
	listener := p.listen()
	server := p.newServer(inner)
	go func() { _ = server.Serve(listener) }() // ends by GracefulStop
	p.heedSignals()
	own = strings.Replace(own, inner, listener.Addr().String(), 1)
	if k.line != nil {
		own = k.line(own)
	}
	say(os.Stdout, own+"\n")
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		if !k.deaf {
			p.stop()
		}
	}()
	must(<-ended)
	p.stop()
	server.GracefulStop()
	if k.end != nil {
		k.end()
	}
	os.Exit(0)
}

func must(err error) {
	if err != nil {
		say(os.Stderr, err.Error()+"\n")
		os.Exit(1)
	}
}

// runGood starts the good plugin, with its socket beside the host's folder, and returns
// its handshake line. The plugin ends with ctx.
func (p *proxy) runGood() (handshake string, ended <-chan error) {
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	environ := append(append(os.Environ(), "PLUGIN_UNIX_SOCKET_DIR="+beside()), p.environ...)
	go func() {
		err := pluginsdk.Run(p.ctx, pluginsdk.Env{
			Args: os.Args[:1], Environ: environ, Handshake: writer, Stdout: os.Stderr, Stderr: os.Stderr,
		}, p.spec)
		_ = writer.CloseWithError(errors.Join(io.EOF, err))
		done <- err
	}()
	line := make([]byte, 4096)
	n, err := reader.Read(line)
	if err != nil {
		say(os.Stderr, err.Error()+"\n")
		os.Exit(1)
	}
	return strings.TrimSpace(string(line[:n])), done
}

// beside returns the parent of the folder that the host made for the socket.
func beside() string { return filepath.Dir(os.Getenv("PLUGIN_UNIX_SOCKET_DIR")) }

func (p *proxy) listen() net.Listener {
	folder := os.Getenv("PLUGIN_UNIX_SOCKET_DIR")
	if p.outside {
		folder = beside()
	}
	listener, err := net.Listen("unix", filepath.Join(folder, "crooked.sock"))
	must(err)
	return listener
}

func (p *proxy) heedSignals() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the process
		for s := range signals {
			switch {
			case s == syscall.SIGTERM && p.terminate != nil:
				p.terminate()
			case s == syscall.SIGTERM:
				p.stop()
			case p.interrupt != nil:
				p.interrupt()
			}
		}
	}()
}

// newServer returns a server that passes every call to the plugin at the inner socket.
func (p *proxy) newServer(inner string) *grpc.Server {
	const most = 80 << 20
	var err error
	p.conn, err = grpc.NewClient("unix:"+inner,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(most), grpc.MaxCallSendMsgSize(most)))
	must(err)
	return grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(most),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return p.handle(stream) }))
}

// handle handles a call.
func (p *proxy) handle(stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	c := &call{stream: stream, method: full[strings.LastIndexByte(full[:strings.LastIndexByte(full, '/')], '.')+1:]}
	if strings.HasPrefix(c.method, "GRPCBroker/") { // go-plugin's, a stream without an end
		return status.Error(unimplemented, "there is no broker")
	}
	if err := stream.RecvMsg(&c.request); err != nil {
		return err
	}
	c.forward = func(request []byte) ([]byte, error) {
		md, _ := metadata.FromIncomingContext(stream.Context())
		var (
			reply   []byte
			trailer metadata.MD
		)
		err := p.conn.Invoke(metadata.NewOutgoingContext(stream.Context(), md), full, &request, &reply, grpc.Trailer(&trailer))
		stream.SetTrailer(trailer)
		return reply, err
	}
	switch c.method {
	case p.unserved:
		return status.Error(unimplemented, "no such method")
	case "GRPCStdio/StreamStdio": // held open
		select {
		case <-stream.Context().Done():
		case <-p.ctx.Done():
		}
		return nil
	case "GRPCController/Shutdown":
		defer p.stop()
		return stream.SendMsg(new([]byte))
	}
	answer := p.calls
	if answer == nil {
		answer = (*call).pass
	}
	reply, err := answer(c)
	if err != nil {
		return err
	}
	return stream.SendMsg(&reply)
}
