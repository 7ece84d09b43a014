package otlpexporter

import (
	"compress/flate"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// newGRPC returns a client that sends by gRPC. It does not connect before the first call.
func newGRPC(c settings) (connection, error) {
	conn, err := grpc.NewClient(c.endpoint.target, dialOptions(c)...)
	if err != nil {
		return connection{}, &pluginsdk.ConfigError{Path: c.endpoint.from, Err: fmt.Errorf("%q: %w", c.endpoint.shown, err)}
	}
	client := otlptracegrpc.NewClient(
		otlptracegrpc.WithGRPCConn(conn), // conn already has the endpoint, TLS and compression
		otlptracegrpc.WithHeaders(c.headers),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: false}),
		otlptracegrpc.WithMaxRequestSize(0), // no limit, because the host already bounds the size of batches
		otlptracegrpc.WithTimeout(0),        // no timeout, because Export sets the deadline
	)
	return connection{client, conn.Close}, nil
}

func dialOptions(c settings) []grpc.DialOption {
	creds := insecure.NewCredentials()
	if c.endpoint.secure {
		creds = &renewing{TransportCredentials: credentials.NewTLS(nil), trust: c.trust}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithUserAgent(userAgent),
		grpc.WithUnaryInterceptor((&interceptor{answers{adviser: adviser{c}}}).intercept),
		// If there is no connection, a call fails at once, and the host retries it and reports
		// the reason. Calls also fail during the pause between two attempts to connect, so this
		// pause must be short.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// Servers by default allow at most one ping in five minutes. This setting also sets
		// TCP_USER_TIMEOUT, by which the kernel closes a connection if the other side
		// acknowledges nothing.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 20 * time.Second}),
		grpc.WithDisableServiceConfig(), // saves DNS queries for TXT records
	}
	if c.gzip {
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	}
	return options
}

type interceptor struct{ answers answers }

// intercept makes the gRPC call of OpenTelemetry's client, and records the answer in the
// [call]. It exists because the client drops the details of a status, and converts a
// partial success to an error of its own.
func (i *interceptor) intercept(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	of := callOf(ctx)
	if of.batchID != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, headerBatchID, of.batchID)
	}
	var head, trailer metadata.MD
	err := invoke(ctx, method, req, reply, conn, append(opts, grpc.Header(&head), grpc.Trailer(&trailer))...)
	of.connected.Store(conn.GetState() == connectivity.Ready)
	switch {
	case err == nil:
		response := reply.(*coltracepb.ExportTraceServiceResponse)
		of.setAnswer(i.answers.partial(response.GetPartialSuccess()))
	case ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded && almostOver(ctx):
		of.late = true
	default:
		of.setAnswer(i.refused(proto.Size(req.(proto.Message)), err, len(head)+len(trailer) > 0))
	}
	return err
}

// almostOver reports whether the deadline of ctx has almost passed. The server knows the
// deadline, and may report that it has passed a little earlier than the client.
func almostOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < 100*time.Millisecond
}

// refused returns err as a status with the same code and details, and with advice for the
// operator. fromServer is true if a server has sent the status, even a server that does
// not speak gRPC, and false if gRPC's client has made it. Network errors in a server's
// message are not explained, because they may be about connections of the server.
func (i *interceptor) refused(bytes int, err error, fromServer bool) error {
	st := status.Convert(err).Proto()
	if !fromServer || strings.Contains(st.GetMessage(), "unexpected HTTP status code") || strings.Contains(st.GetMessage(), "unexpected content-type") {
		st.Message = i.answers.explained(st.GetMessage(), nil)
		return &coded{status.FromProto(st)}
	}
	remedy := ""
	switch codes.Code(st.GetCode()) {
	case codes.Unauthenticated, codes.PermissionDenied:
		remedy = i.answers.credentials()
	case codes.Unimplemented:
		remedy = "it does not accept traces by OTLP/gRPC: check " + i.answers.setting()
	case codes.ResourceExhausted:
		remedy = fmt.Sprintf("the batch has %d bytes before compression; if that is too much, raise the receiver's limit, or lower SERVE_TRACING_BATCH_BYTES", bytes)
	}
	text := fmt.Sprintf("%s answered %s: %q", i.answers.settings.endpoint.shown, codes.Code(st.GetCode()), plain(i.answers.settings.secrets.redact(st.GetMessage())))
	if remedy != "" {
		text += "; " + remedy
	}
	st.Message = text
	return &coded{status.FromProto(st)}
}

// renewing has TLS credentials that read the certificate files again at each handshake,
// because an operator may replace them.
type renewing struct {
	credentials.TransportCredentials
	trust trust
}

// ClientHandshake reads the certificate files and performs the TLS handshake.
func (r *renewing) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, _, err := r.trust.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
}

// Clone returns a copy, which also reads the files at each handshake.
func (r *renewing) Clone() credentials.TransportCredentials {
	return &renewing{r.TransportCredentials.Clone(), r.trust}
}

// init sets the level of gRPC's gzip compressor, which is the same for the whole process.
func init() { _ = gzip.SetLevel(flate.BestSpeed) } // cannot fail, because the level is valid
