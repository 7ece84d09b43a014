package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/servetrace/servetrace/internal/wire"
)

const (
	// maxHeaderBytes bounds the headers of a request.
	maxHeaderBytes = 16 << 10
	// keepaliveTime is the silence before the relay pings a sender, and keepaliveTimeout
	// the time for the answer.
	keepaliveTime    = time.Minute
	keepaliveTimeout = 20 * time.Second
	// keepaliveMinTime is the shortest time between two pings that a sender may send.
	keepaliveMinTime = 10 * time.Second
	// streamWorkers is the number of goroutines that gRPC keeps and reuses for calls. A new
	// goroutine would cost CPU, because its small stack must grow.
	streamWorkers = 16
)

// grpcService implements the TraceService of OTLP and grpc.health.v1 over gRPC.
type grpcService struct {
	*service
	health  *health.Server
	stopped context.Context //nolint:containedctx // ends with Shutdown, and ends the health watches
}

// front returns a listener with a gRPC server. secure may be nil.
func (s grpcService) front(l net.Listener, secure *tls.Config) front {
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	server := grpc.NewServer(
		grpc.Creds(creds),
		grpc.NumStreamWorkers(streamWorkers),
		experimental.BufferPool(wire.Pool),
		grpc.InTapHandle(beginCall),
		grpc.StatsHandler(compressionCheck{s.service}),
		grpc.ForceServerCodecV2(codec{}),
		grpc.RPCDecompressor(s.decoder), //nolint:staticcheck // encoding.RegisterCompressor would change the whole process, and has no bound
		grpc.MaxRecvMsgSize(s.cfg.MaxRequestBytes),
		grpc.MaxConcurrentStreams(uint32(s.cfg.MaxStreams)), //nolint:gosec // Validate has checked it
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(s.cfg.ReadTimeout),
		grpc.StaticStreamWindowSize(wire.WindowBytes),
		grpc.StaticConnWindowSize(wire.WindowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: s.cfg.IdleTimeout, Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMinTime, PermitWithoutStream: true}),
		grpc.UnknownServiceHandler(refuseService),
		grpc.StreamInterceptor(s.endWithServer),
	)
	// On the wire, a stream with one message is the same as a unary call. A handler of a stream
	// runs before the message has arrived, so it can bound the time of the arrival.
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: wire.ExportService, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Export", Handler: s.exportStream, ServerStreams: true, ClientStreams: true}},
	}, nil)
	grpc_health_v1.RegisterHealthServer(server, s.health)
	return front{
		protocol: "grpc", secure: secure != nil, listener: l,
		serve: server.Serve, drain: server.GracefulStop, cut: server.Stop,
	}
}

func newGRPCService(s *service, stopped context.Context) grpcService { //nolint:revive // it is no call's context
	h := health.NewServer()
	h.SetServingStatus(wire.ExportService, grpc_health_v1.HealthCheckResponse_SERVING)
	return grpcService{s, h, stopped}
}

// refuseService answers calls of other services, such as OTLP's for metrics and logs.
func refuseService(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Errorf(codes.Unimplemented, "%s: this relay takes traces only", method)
}

// endWithServer is an interceptor that ends the streams of health watches when the server
// stops.
func (s grpcService) endWithServer(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod != grpc_health_v1.Health_Watch_FullMethodName {
		return next(srv, stream)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer context.AfterFunc(s.stopped, cancel)()
	return next(srv, endingStream{stream, ctx})
}

// endingStream is a stream with a context that endWithServer can end.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has a context
}

func (s endingStream) Context() context.Context { return s.ctx }

// callKey is the key of the *call in the context of a gRPC call.
type callKey struct{}

// call is a call of Export that has begun.
type call struct {
	arrival *arrival
	// keep takes over the counts of the call: after keep, the end of the context no longer
	// calls arrival.done and conn.ended. It reports false if the context has ended already.
	keep func() bool
}

// beginCall records that a call of Export begins. gRPC calls it before it reads more bytes
// from the connection. gRPC answers some calls itself and never calls exportStream, because
// their deadline is over or their compression is unknown. For such a call, the end of its
// context ends the record.
func beginCall(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName != wire.ExportMethod {
		return ctx, nil
	}
	if err := ctx.Err(); err != nil {
		return ctx, status.FromContextError(err).Err()
	}
	arrival := connOf(ctx).begin()
	keep := context.AfterFunc(ctx, func() {
		arrival.done()
		arrival.conn.ended()
	})
	return context.WithValue(ctx, callKey{}, &call{arrival, keep}), nil
}

// compressionCheck is a stats.Handler that counts the calls with an unknown compression,
// which gRPC refuses without exportStream. It logs the first of these calls.
type compressionCheck struct{ *service }

// HandleRPC checks the compression of a call of Export.
func (s compressionCheck) HandleRPC(ctx context.Context, event stats.RPCStats) {
	header, ok := event.(*stats.InHeader)
	if !ok || header.FullMethod != wire.ExportMethod {
		return
	}
	switch header.Compression {
	case "", encoding.Identity, s.decoder.Type():
		return
	}
	if encoding.GetCompressor(header.Compression) != nil {
		return
	}
	c := connOf(ctx)
	s.counts.addRequest(c, codes.Unimplemented)
	s.compressionOnce.Do(func() {
		s.log.Warn("a sender's compression is unknown, so its requests are refused; set gzip or no compression in the sender; further requests are counted as UNIMPLEMENTED, and not logged",
			"sender", c.sender, "compression", fmt.Sprintf("%.100s", header.Compression))
	})
}

// TagRPC returns ctx.
func (compressionCheck) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn returns ctx.
func (compressionCheck) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}

// HandleConn does nothing.
func (compressionCheck) HandleConn(context.Context, stats.ConnStats) {}

// connOf returns the connection of a call.
func connOf(ctx context.Context) *conn {
	from, _ := peer.FromContext(ctx)
	return from.Addr.(remoteAddr).conn //nolint:forcetypeassert // each listener makes such connections
}

// exportStream is the handler of a call of Export.
func (s grpcService) exportStream(_ any, stream grpc.ServerStream) error {
	ctx := stream.Context()
	begun := ctx.Value(callKey{}).(*call) //nolint:forcetypeassert // beginCall has set it
	arrival, c := begun.arrival, begun.arrival.conn
	if !begun.keep() {
		err := status.FromContextError(ctx.Err()).Err()
		s.counts.addRequest(c, status.Code(err))
		return err
	}
	// From here on, this function calls arrival.done, because it may still hold the bytes of the
	// request when the context ends.
	defer c.ended()
	defer arrival.done()
	md, _ := metadata.FromIncomingContext(ctx)
	err := s.authorize(c, first(md.Get("authorization")))
	if err == nil {
		err = s.answer(ctx, arrival, stream, asked{first(md.Get(HeaderWait)), first(md.Get(headerBatchID))})
	}
	s.counts.addRequest(c, status.Code(err))
	return err
}

// answer receives a request, exports it and sends the answer.
func (s grpcService) answer(ctx context.Context, arrival *arrival, stream grpc.ServerStream, a asked) error {
	message, err := s.receive(stream)
	if err != nil {
		return err
	}
	defer message.Buffer.Free()
	request, err := s.decompressed(ctx, message.Buffer.ReadOnlyData())
	arrival.done()
	if err != nil {
		return err
	}
	response, err := s.export(ctx, arrival.conn, request, a)
	if err != nil {
		return err
	}
	return stream.SendMsg(response)
}

// decompressed returns the request in a message.
func (s grpcService) decompressed(ctx context.Context, message []byte) ([]byte, error) {
	if !isGzip(message) {
		return message, nil
	}
	request, err := s.decoder.decompress(ctx, s.decoder.Type(), bytes.NewReader(message))
	if err == nil && len(request) > s.cfg.MaxRequestBytes {
		err = tooLarge(s.cfg.MaxRequestBytes)
	}
	return request, err
}

// first returns the first value of a header, or an empty text.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// receive returns the message of a call. It returns an error if the message does not arrive
// within Config.ReadTimeout. After this error, gRPC ends the stream, which ends the goroutine.
func (s grpcService) receive(stream grpc.ServerStream) (*wire.Lent, error) {
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
		return r.message, r.err
	case <-timer.C:
		return nil, status.Error(codes.DeadlineExceeded, late(s.cfg.ReadTimeout))
	}
}
