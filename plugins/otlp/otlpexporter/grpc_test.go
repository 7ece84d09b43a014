package otlpexporter

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/servetrace/servetrace/pluginsdk"
)

// grpcBack is a gRPC back end that decodes nothing.
type grpcBack struct {
	address string
	// answer returns the answer; nil: success.
	answer func(context.Context) error
	// partial is the partial success in the answer.
	partial *coltracepb.ExportTracePartialSuccess

	mu     sync.Mutex
	bodies [][]byte
	heads  []metadata.MD
	conns  []net.Conn
}

// bytesCodec hands on bytes.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = bytesCodec{}

// listener keeps connections, for a test to cut.
type listener struct {
	net.Listener
	back *grpcBack
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.back.mu.Lock()
		l.back.conns = append(l.back.conns, conn)
		l.back.mu.Unlock()
	}
	return conn, err
}

func (b *grpcBack) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.conns {
		_ = conn.Close()
	}
	b.conns = nil
}

// serveGRPC starts one; config nil: without TLS.
func serveGRPC(tb testing.TB, config *tls.Config) *grpcBack {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return serveGRPCOn(tb, l, config)
}

func serveGRPCOn(tb testing.TB, l net.Listener, config *tls.Config) *grpcBack {
	tb.Helper()
	b := &grpcBack{address: l.Addr().String()}
	options := []grpc.ServerOption{grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(b.handle)}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	s := grpc.NewServer(options...)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(listener{l, b}) }()
	tb.Cleanup(func() { s.Stop(); <-served })
	return b
}

func (b *grpcBack) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if method != coltracepb.TraceService_Export_FullMethodName {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	var body []byte
	if err := stream.RecvMsg(&body); err != nil {
		return err
	}
	head, _ := metadata.FromIncomingContext(stream.Context())
	b.mu.Lock()
	b.bodies, b.heads = append(b.bodies, body), append(b.heads, head)
	b.mu.Unlock()
	if b.answer != nil {
		if err := b.answer(stream.Context()); err != nil {
			return err
		}
	}
	answer, err := proto.Marshal(&coltracepb.ExportTraceServiceResponse{PartialSuccess: b.partial})
	if err != nil {
		return err
	}
	return stream.SendMsg(&answer)
}

func TestBatchArrivesByGRPC(t *testing.T) {
	for _, compression := range []string{"none", "gzip"} {
		t.Run(compression, func(t *testing.T) {
			back := serveGRPC(t, nil)
			e := open(t, env(EnvProtocol+"=grpc", EnvEndpoint+"=http://"+back.address, EnvCompression+"="+compression, EnvHeaders+"=X-Key=a%20b,k-bin=%01"))
			for range 2 { // the second with pooled compressors
				if err := export(t, e); err != nil {
					t.Fatal(err)
				}
			}
			if len(back.bodies) != 2 || !bytes.Equal(back.bodies[1], some(t, 1)) {
				t.Errorf("bodies are %x", back.bodies)
			}
			head := back.heads[1]
			if strings.Join(head.Get("x-key"), "|") != "a b" || strings.Join(head.Get("k-bin"), "|") != "\x01" {
				t.Errorf("metadata is %v", head)
			}
			if got := head.Get("user-agent"); len(got) != 1 || !strings.HasPrefix(got[0], "servetrace-otlp-exporter/"+pluginsdk.Version()+" (Go)") {
				t.Errorf("user agent is %q", got)
			}
			if got := strings.Join(head.Get("grpc-accept-encoding"), ""); got != "gzip" {
				t.Errorf("accepts %q, want gzip", got)
			}
		})
	}
}

// TestDecompressorIsOnesOwn until it is closed: gRPC does that after the end was
// read, when another call may have begun to read.
func TestDecompressorIsOnesOwn(t *testing.T) {
	c := encoding.GetCompressor(compressionGzip)
	var squeezed bytes.Buffer
	w, err := c.Compress(&squeezed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "an answer"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for range 100 { // a pool may lose what it is given
		var readers [2]io.Reader
		for i := range readers {
			if readers[i], err = c.Decompress(bytes.NewReader(squeezed.Bytes())); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(readers[i]); err != nil || string(got) != "an answer" {
				t.Fatalf("read %q, %v", got, err)
			}
		}
		if readers[0] == readers[1] {
			t.Fatal("one reader was given to two")
		}
		for _, r := range readers {
			if err := r.(io.Closer).Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	back := serveGRPCOn(t, l, nil)
	for _, form := range []string{"unix://" + socket, "unix:" + socket} {
		if err := export(t, open(t, env(EnvProtocol+"=grpc", EnvEndpoint+"="+form))); err != nil {
			t.Errorf("%s: %v", form, err)
		}
	}
	if len(back.bodies) != 2 {
		t.Errorf("%d batches came, want 2", len(back.bodies))
	}
}

// TestAnswersByGRPC: code, details and partial success reach the host.
func TestAnswersByGRPC(t *testing.T) {
	throttled := func(code codes.Code, text string, d time.Duration) error {
		st, err := status.New(code, text).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	for _, c := range []struct {
		name    string
		answer  error
		partial *coltracepb.ExportTracePartialSuccess
		code    string
		final   bool
		after   time.Duration
		want    string // URL stands for the server's
	}{
		{name: "taken"},
		{name: "nothing partial", partial: &coltracepb.ExportTracePartialSuccess{}},
		{
			name: "partial", partial: &coltracepb.ExportTracePartialSuccess{RejectedSpans: 1 << 40, ErrorMessage: "too old"},
			code: "UNAVAILABLE", want: "1073741824 spans rejected: too old",
		},
		{
			name: "unavailable", answer: throttled(codes.Unavailable, "5ecre7-value is down: dial tcp 10.0.0.1:1: connection refused", 3*time.Second), code: "UNAVAILABLE", after: 3 * time.Second,
			want: `URL answered Unavailable: "<redacted> is down: dial tcp 10.0.0.1:1: connection refused"`,
		},
		{
			name: "exhausted for a time", answer: throttled(codes.ResourceExhausted, "quota", 2*time.Second), code: "RESOURCE_EXHAUSTED", after: 2 * time.Second,
			want: `URL answered ResourceExhausted: "quota"; the batch has 108 bytes before compression; if that is too much, raise the receiver's limit, ` +
				`or lower SERVE_TRACING_BATCH_BYTES`,
		},
		{
			name: "exhausted", answer: status.Error(codes.ResourceExhausted, "quota"), code: "RESOURCE_EXHAUSTED", final: true,
			want: `URL answered ResourceExhausted: "quota"; the batch has 108 bytes before compression; if that is too much, raise the receiver's limit, ` +
				`or lower SERVE_TRACING_BATCH_BYTES`,
		},
		{
			name: "malformed", answer: status.Error(codes.InvalidArgument, "bad\nwire"), code: "INVALID_ARGUMENT", final: true,
			want: `URL answered InvalidArgument: "bad wire"`,
		},
		{
			name: "no credentials", answer: status.Error(codes.Unauthenticated, "no Bearer 5ecre7-value here"), code: "UNAUTHENTICATED", final: true,
			want: `URL answered Unauthenticated: "no <redacted> here"; check the headers in OTEL_EXPORTER_OTLP_HEADERS (sent: authorization)`,
		},
		{
			name: "no traces", answer: status.Error(codes.Unimplemented, "unknown service"), code: "UNIMPLEMENTED", final: true,
			want: `URL answered Unimplemented: "unknown service"; it does not accept traces by OTLP/gRPC: check OTEL_EXPORTER_OTLP_ENDPOINT`,
		},
		{name: "internal", answer: status.Error(codes.Internal, "oops"), code: "INTERNAL", final: true, want: `URL answered Internal: "oops"`},
		{name: "lost", answer: status.Error(codes.DataLoss, "disk"), code: "DATA_LOSS", want: `URL answered DataLoss: "disk"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			back := serveGRPC(t, nil)
			back.answer, back.partial = func(context.Context) error { return c.answer }, c.partial
			err := export(t, open(t, env(EnvProtocol+"=grpc", EnvEndpoint+"=http://"+back.address, EnvHeaders+"=authorization=Bearer 5ecre7-value")))
			if len(back.bodies) != 1 {
				t.Errorf("%d calls, want 1", len(back.bodies))
			}
			if c.want == "" {
				if err != nil {
					t.Errorf("got %v, want delivered", err)
				}
				return
			}
			if err == nil {
				t.Fatal("got delivered, want an error")
			}
			got := asHost(err)
			if want := strings.ReplaceAll(c.want, "URL", "http://"+back.address); got.Error() != want {
				t.Errorf("\ngot  %s\nwant %s", got, want)
			}
			if got.Code != c.code || got.Final != c.final || got.After != c.after {
				t.Errorf("the host reads %s, final %v, after %v", got.Code, got.Final, got.After)
			}
			if _, _, partial := pluginsdk.Rejected(err); partial != (c.partial != nil) {
				t.Errorf("partial success is %v", partial)
			}
		})
	}
}

// TestBackAgain: a back end that was away for a while is found at once.
func TestBackAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	e := open(t, env(EnvProtocol+"=grpc", EnvEndpoint+"=http://"+address))
	for range 3 {
		if err := export(t, e); err == nil {
			t.Fatal("delivered to nobody")
		}
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Skip("somebody took the port: ", err)
	}
	serveGRPCOn(t, l, nil)
	if err := eventually(t, e, func(err error) bool { return err == nil }); err != nil {
		t.Error(err)
	}
}
