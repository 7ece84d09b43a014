package relay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/wire"
)

const (
	// maxHeaderBytes bounds the headers of a request.
	maxHeaderBytes = 16 << 10
	// keepaliveTime is the silence before the relay pings a sender, and keepaliveTimeout
	// the time for the answer.
	keepaliveTime    = time.Minute
	keepaliveTimeout = 20 * time.Second
	// keepaliveMinTime is the least time between pings of a sender.
	keepaliveMinTime = 10 * time.Second
)

// newGRPC returns a gRPC server for the TraceService of OTLP and grpc.health.v1.
func (s *Server) newGRPC() *grpc.Server {
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.RPCDecompressor(s.unzip), //nolint:staticcheck // encoding.RegisterCompressor is for the whole process, and bounds nothing
		grpc.MaxRecvMsgSize(s.cfg.MaxRequestBytes),
		grpc.MaxConcurrentStreams(uint32(s.cfg.MaxStreams)), //nolint:gosec // Validate has checked it
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(s.cfg.ReadTimeout),
		grpc.StaticStreamWindowSize(wire.WindowBytes),
		grpc.StaticConnWindowSize(wire.WindowBytes),
		grpc.SharedWriteBuffer(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: s.cfg.IdleTimeout, Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMinTime, PermitWithoutStream: true}),
		grpc.UnknownServiceHandler(refuseService),
		grpc.StreamInterceptor(s.endWithServer),
	)
	// A stream of one message is a unary call on the wire. As a stream, the time for the
	// message to arrive can be bounded.
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: wire.ExportService, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Export", Handler: s.exportStream, ServerStreams: true, ClientStreams: true}},
	}, nil)
	grpc_health_v1.RegisterHealthServer(server, s.health)
	return server
}

func newHealth() *health.Server {
	h := health.NewServer()
	h.SetServingStatus(wire.ExportService, grpc_health_v1.HealthCheckResponse_SERVING)
	return h
}

// refuseService answers calls of other services, such as OTLP's for metrics and logs.
func refuseService(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Errorf(codes.Unimplemented, "%s: this relay takes traces only", method)
}

// endWithServer ends the streams of health watches when the server stops.
func (s *Server) endWithServer(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod != grpc_health_v1.Health_Watch_FullMethodName {
		return next(srv, stream)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer context.AfterFunc(s.stopped, cancel)()
	return next(srv, endingStream{stream, ctx})
}

// endingStream is a stream with another context.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has one
}

func (s endingStream) Context() context.Context { return s.ctx }

// exportStream is the handler of a call of Export.
func (s *Server) exportStream(_ any, stream grpc.ServerStream) error {
	ctx := stream.Context()
	from, _ := peer.FromContext(ctx)
	c := from.Addr.(remoteAddr).conn //nolint:forcetypeassert // each listener makes such connections
	start := c.begin()
	defer c.ended()
	request, err := s.receive(stream)
	c.arrived(start)
	if err == nil {
		err = s.answer(ctx, c, stream, request)
	}
	s.counts.addRequest(c, status.Code(err))
	return err
}

// answer exports a request and sends the answer.
func (s *Server) answer(ctx context.Context, c *conn, stream grpc.ServerStream, request *wire.Lent) error {
	defer request.Buffer.Free()
	md, _ := metadata.FromIncomingContext(ctx)
	wait := ""
	if values := md.Get(HeaderWait); len(values) > 0 {
		wait = values[0]
	}
	response, err := s.export(ctx, c, request.Buffer.ReadOnlyData(), wait)
	if err != nil {
		return err
	}
	return stream.SendMsg(response)
}

// receive returns the message of a call. It returns an error if the message does not
// arrive in time. gRPC then ends the stream, and with it the goroutine.
func (s *Server) receive(stream grpc.ServerStream) (*wire.Lent, error) {
	type result struct {
		message *wire.Lent
		err     error
	}
	received := make(chan result, 1)
	go func() {
		message := &wire.Lent{}
		received <- result{message, stream.RecvMsg(message)}
	}()
	timer := time.NewTimer(s.cfg.ReadTimeout)
	defer timer.Stop()
	select {
	case r := <-received:
		if status.Code(r.err) == codes.Internal { // it cannot be decompressed
			r.err = status.Error(codes.InvalidArgument, status.Convert(r.err).Message())
		}
		return r.message, r.err
	case <-timer.C:
		return nil, status.Errorf(codes.DeadlineExceeded, "the request did not arrive within %v (%s)", s.cfg.ReadTimeout, EnvReadTimeout)
	}
}

// unzip decompresses requests, at most as many at a time as there are processors. It is
// the decompressor of a gRPC server. Safe for concurrent use.
type unzip struct {
	most  int64 // bytes of a decompressed request
	slots chan struct{}
}

func newUnzip(most int) *unzip {
	return &unzip{most: int64(most), slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Type returns the name of the compression.
func (*unzip) Type() string { return "gzip" }

// Do returns the decompressed bytes of r. If they are too many, it returns one byte more
// than is allowed.
func (u *unzip) Do(r io.Reader) ([]byte, error) {
	u.slots <- struct{}{}
	defer func() { <-u.slots }()
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	var out bytes.Buffer
	if _, err := out.ReadFrom(io.LimitReader(z, u.most+1)); err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return out.Bytes(), nil
}
