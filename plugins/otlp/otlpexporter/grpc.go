package otlpexporter

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// newGRPC makes the client for gRPC, on a connection of ours, which connects at
// the first call.
func newGRPC(c settings) (connection, error) {
	conn, err := grpc.NewClient(c.endpoint.target, c.dialOptions()...)
	if err != nil {
		return connection{}, &pluginsdk.ConfigError{Path: c.endpoint.from, Err: fmt.Errorf("%q: %w", c.endpoint.shown, err)}
	}
	client := otlptracegrpc.NewClient(
		otlptracegrpc.WithGRPCConn(conn), // has endpoint, TLS and compression
		otlptracegrpc.WithHeaders(c.headers),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: false}),
		otlptracegrpc.WithMaxRequestSize(0), // the host bounds batches
		otlptracegrpc.WithTimeout(0),        // Export sets the deadline
	)
	return connection{client, conn.Close}, nil
}

func (c *settings) dialOptions() []grpc.DialOption {
	creds := insecure.NewCredentials()
	if c.endpoint.secure {
		creds = &renewing{TransportCredentials: credentials.NewTLS(nil), trust: c.trust}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithUserAgent(userAgent),
		grpc.WithUnaryInterceptor(c.intercept),
		// Calls do not wait for a connection that can not be had: the host does, and
		// tells why. So it must not take long to be had again.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// As often as servers allow by default. What counts is what comes with it:
		// the kernel ends a connection that swallows what it is given for that long.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 20 * time.Second}),
		grpc.WithDisableServiceConfig(), // no look-ups of TXT records
	}
	if c.gzip {
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(compressionGzip)))
	}
	return options
}

// intercept notes the answer in the [call]: the client drops a status's details,
// and turns partial success into an error of its own.
func (c *settings) intercept(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	of := callOf(ctx)
	var head, trailer metadata.MD
	err := invoke(ctx, method, req, reply, conn, append(opts, grpc.Header(&head), grpc.Trailer(&trailer))...)
	of.connected.Store(conn.GetState() == connectivity.Ready)
	switch {
	case err == nil:
		taken := reply.(*coltracepb.ExportTraceServiceResponse)
		of.answers(c.partial(taken.GetPartialSuccess()))
	case ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded && soonOver(ctx):
		of.late = true
	default:
		of.answers(c.refused(proto.Size(req.(proto.Message)), err, len(head)+len(trailer) > 0))
	}
	return err
}

// soonOver tells whether a call's time is as good as over. A server knows the
// deadline, and may say so a little before we do.
func soonOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < 100*time.Millisecond
}

// refused gives a status with the same code and details, and with words for an
// operator. said: the server did, or something that is no gRPC server; a status
// without headers is made on this side. A collector's words may be of its own
// connections, and then say nothing about ours.
func (c *settings) refused(bytes int, err error, said bool) error {
	st := status.Convert(err).Proto()
	if !said || strings.Contains(st.GetMessage(), "unexpected HTTP status code") || strings.Contains(st.GetMessage(), "unexpected content-type") {
		st.Message = c.explained(st.GetMessage(), nil)
		return &coded{status.FromProto(st)}
	}
	remedy := ""
	switch codes.Code(st.GetCode()) {
	case codes.Unauthenticated, codes.PermissionDenied:
		remedy = c.credentials()
	case codes.Unimplemented:
		remedy = "it does not take traces by OTLP/gRPC: check " + c.setting()
	case codes.ResourceExhausted:
		remedy = fmt.Sprintf("the batch has %d bytes before compression; if that is too much, raise the receiver's limit, or lower SERVE_TRACING_BATCH_BYTES", bytes)
	}
	text := fmt.Sprintf("%s answered %s: %q", c.endpoint.shown, codes.Code(st.GetCode()), plain(c.secrets.hide(st.GetMessage())))
	if remedy != "" {
		text += "; " + remedy
	}
	st.Message = text
	return &coded{status.FromProto(st)}
}

// renewing are TLS credentials that read their files at each handshake.
type renewing struct {
	credentials.TransportCredentials
	trust trust
}

// ClientHandshake reads the files.
func (r *renewing) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, _, err := r.trust.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
}

// Clone keeps what makes it renewing.
func (r *renewing) Clone() credentials.TransportCredentials {
	return &renewing{r.TransportCredentials.Clone(), r.trust}
}

// gRPC has compressors by name, for the whole process. The one of grpc itself is
// the standard library's, which costs five times as much; it is imported so that
// it is there before this one, for packages begin after those that they import.
func init() { encoding.RegisterCompressor(&compressor{}) }

// compressor is gzip for gRPC.
type compressor struct{ writers, readers sync.Pool }

var _ encoding.Compressor = (*compressor)(nil)

// Name is gRPC's.
func (*compressor) Name() string { return compressionGzip }

// Compress gives a writer that goes back to its pool when it is closed.
func (c *compressor) Compress(w io.Writer) (io.WriteCloser, error) {
	if z, ok := c.writers.Get().(*pooledWriter); ok {
		z.Reset(w)
		return z, nil
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	return &pooledWriter{z, &c.writers}, err
}

type pooledWriter struct {
	*gzip.Writer
	pool *sync.Pool
}

// Close ends the stream.
func (z *pooledWriter) Close() error {
	defer z.pool.Put(z)
	return z.Writer.Close()
}

// Decompress gives a reader that goes back to its pool when it is closed, which
// gRPC does once.
func (c *compressor) Decompress(r io.Reader) (io.Reader, error) {
	if z, ok := c.readers.Get().(*pooledReader); ok {
		if err := z.Reset(r); err != nil {
			c.readers.Put(z)
			return nil, err
		}
		return z, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	return &pooledReader{z, &c.readers}, nil
}

type pooledReader struct {
	*gzip.Reader
	pool *sync.Pool
}

// Close ends the use of it.
func (z *pooledReader) Close() error {
	defer z.pool.Put(z)
	return z.Reader.Close()
}
