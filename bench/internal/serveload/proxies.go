package serveload

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// startProxy serves by a proxy before backend.
func startProxy(addr, app, backend string) (*server, error) {
	if backend == "" {
		return nil, errors.New("a proxy wants -backend")
	}
	if app == appEcho {
		return startGRPCProxy(addr, backend)
	}
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
	// The default keeps two idle connections to a host, and would open one for
	// every third request.
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	transport.MaxIdleConnsPerHost = plenty
	p.Transport = transport
	return serveHTTP(addr, p)
}

// startGRPCProxy serves by a proxy that knows no service: it passes messages on
// undecoded, and metadata both ways, as a stream in whatever direction.
func startGRPCProxy(addr, backend string) (*server, error) {
	conn, err := grpc.NewClient(backend, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		return nil, err
	}
	s, err := serveGRPC(addr, grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error { return forward(conn, in) })))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	stop := s.stop
	s.stop = func() (books, error) {
		b, err := stop()
		return b, errors.Join(err, conn.Close())
	}
	return s, nil
}

// rawCodec takes messages for what they are, bytes.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// frame is a message, undecoded.
type frame struct{ data mem.BufferSlice }

// Marshal implements [encoding.CodecV2].
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, status.Errorf(codes.Internal, "message is a %T", v)
	}
	return f.data, nil // grpc frees it
}

// Unmarshal implements [encoding.CodecV2].
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return status.Errorf(codes.Internal, "message is a %T", v)
	}
	data.Ref()
	f.data = data
	return nil
}

// Name implements [encoding.CodecV2].
func (rawCodec) Name() string { return "proto" }

var everyKind = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// forward passes one call on and answers as the back end does.
func forward(conn *grpc.ClientConn, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	ctx := in.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, err := conn.NewStream(ctx, everyKind, method)
	if err != nil {
		return err
	}
	go func() { // ends with the call
		if err := copyFrames(out, in); err != nil {
			cancel()
			return
		}
		_ = out.CloseSend() // its fault is the answer's too
	}()
	first := &frame{}
	err = out.RecvMsg(first)
	if header, headerErr := out.Header(); headerErr == nil {
		if err := in.SetHeader(header); err != nil {
			return err
		}
	}
	if err == nil {
		err = in.SendMsg(first)
	}
	if err == nil {
		err = copyFrames(in, out)
	}
	in.SetTrailer(out.Trailer())
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// copyFrames copies until the end of from, which is no error.
func copyFrames(to interface{ SendMsg(any) error }, from interface{ RecvMsg(any) error }) error {
	for {
		f := &frame{}
		switch err := from.RecvMsg(f); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := to.SendMsg(f); err != nil {
			return err
		}
	}
}
