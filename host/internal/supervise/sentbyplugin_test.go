package supervise

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/test/testplugin"
)

// The origin of an error, the plugin or gRPC, decides whether a health check follows and
// whether a batch is suspected. gRPC does not report the origin; sentByPlugin finds it in the
// errors of real servers.

// answerOf sends one batch to the server at a socket.
func answerOf(t *testing.T, x *Plugin, socket string) pipeline.Answer {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	f := newPeerFake(nil)
	f.conn = conn
	return sendOne(t, x, newSender(x, f))
}

// garbled sends bytes that only look at gRPC like a batch.
type garbled struct{ grpc.ClientConnInterface }

func (g garbled) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if batch, ok := args.(*wire.Outgoing); ok {
		noMessage := make([]byte, 2000) // each field has number 0
		args = &wire.Outgoing{Buffers: func() mem.BufferSlice {
			batch.Buffers().Free()
			return mem.BufferSlice{mem.SliceBuffer(noMessage)}
		}}
	}
	return g.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// sendOne sends garbage in place of a batch, and returns the answer.
func sendOne(t *testing.T, x *Plugin, s *sender) pipeline.Answer {
	t.Helper()
	sealOne(x)
	s.conn = garbled{s.conn}
	s.lane.Open(limitsOf(nil))
	defer s.lane.Close()
	it := s.lane.Take(t.Context())
	ans := s.send(t.Context(), it)
	s.lane.Settle(it, ans)
	return ans
}

// rawTraces is a server's Export that sees the call and not the bytes.
func rawTraces(export func(ctx context.Context) error) func(*grpc.Server) {
	return func(s *grpc.Server) {
		s.RegisterService(&grpc.ServiceDesc{
			ServiceName: coltracepb.TraceService_ServiceDesc.ServiceName,
			HandlerType: (*any)(nil),
			Methods: []grpc.MethodDesc{{MethodName: "Export", Handler: func(_ any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return nil, export(ctx)
			}}},
		}, nil)
	}
}

func TestSpokenByServersInGo(t *testing.T) {
	t.Parallel()
	down := status.Error(codes.Unavailable, "503")
	stop := make(chan func(), 1)
	for _, test := range []struct {
		name          string
		export        func(ctx context.Context) error
		code          string
		said, reached bool
	}{
		{"retryable", func(context.Context) error { return down }, "UNAVAILABLE", true, true},
		{"final", func(context.Context) error { return status.Error(codes.PermissionDenied, "403") }, "PERMISSION_DENIED", true, true},
		{"its own deadline", func(context.Context) error { return status.Error(codes.DeadlineExceeded, "back end") }, "DEADLINE_EXCEEDED", true, true},
		{"trailer of its own", func(ctx context.Context) error {
			_ = grpc.SetTrailer(ctx, metadata.Pairs("x", "y"))
			return down
		}, "UNAVAILABLE", true, true},
		// Its word is taken for silence, which costs a health check.
		{"header before", func(ctx context.Context) error {
			_ = grpc.SendHeader(ctx, metadata.Pairs("x", "y"))
			return down
		}, "UNAVAILABLE", false, true},
		{"ends", func(ctx context.Context) error {
			go (<-stop)() // returns when this call has
			<-ctx.Done()
			return ctx.Err()
		}, "UNAVAILABLE", false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := testPlugin(t)
			x.sup.cfg.ExportTimeout = time.Second
			socket := filepath.Join(testplugin.SocketFolder(t), "r.sock")
			server := testplugin.Serve(t, socket, rawTraces(test.export))
			stop <- server.Stop
			ans := answerOf(t, x, socket)
			select {
			case <-stop: // nobody has
			default:
			}
			if ans.Err == nil || ans.Err.Code != test.code || ans.Said != test.said || ans.Reached != test.reached {
				t.Errorf("%v, said %v, reached %v; want %s, %v, %v", ans.Err, ans.Said, ans.Reached, test.code, test.said, test.reached)
			}
		})
	}
	t.Run("no server", func(t *testing.T) {
		x := testPlugin(t)
		if ans := answerOf(t, x, filepath.Join(testplugin.SocketFolder(t), "none")); ans.Said || ans.Reached || ans.Err == nil {
			t.Errorf("%+v, want nothing said and nothing reached", ans)
		}
	})
	t.Run("no such service", func(t *testing.T) {
		x := testPlugin(t)
		socket := filepath.Join(testplugin.SocketFolder(t), "r.sock")
		testplugin.Serve(t, socket, func(*grpc.Server) {})
		if ans := answerOf(t, x, socket); !ans.Said || ans.Err == nil || ans.Err.Code != "UNIMPLEMENTED" {
			t.Errorf("%+v, want the server's own UNIMPLEMENTED", ans)
		}
	})
	t.Run("too large", func(t *testing.T) {
		x := testPlugin(t)
		socket := filepath.Join(testplugin.SocketFolder(t), "r.sock")
		testplugin.Serve(t, socket, func(s *grpc.Server) {
			coltracepb.RegisterTraceServiceServer(s, coltracepb.UnimplementedTraceServiceServer{})
		}, grpc.MaxRecvMsgSize(1000))
		if ans := answerOf(t, x, socket); !ans.Said || ans.Err == nil || ans.Err.Code != "RESOURCE_EXHAUSTED" {
			t.Errorf("%+v, want the server's own RESOURCE_EXHAUSTED", ans)
		}
	})
}

func TestSpokenByPlugins(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mode, code string
		said       bool
	}{
		{"flaky:9", "UNAVAILABLE", true}, // the SDK
		{"permanent", "INVALID_ARGUMENT", true},
		{"panic", "INTERNAL", true},
		{"stock", "INTERNAL", true}, // go-plugin's server: no such message
		{"crash:1", "UNAVAILABLE", false},
	} {
		t.Run(test.mode, func(t *testing.T) {
			x := testPlugin(t)
			x.Entry.Where = testplugin.Install(t, test.mode)
			l := newLife(x)
			if err := l.begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.end() }() // one has ended by itself
			ans := sendOne(t, x, l.sender)
			if ans.Err == nil || ans.Err.Code != test.code || ans.Said != test.said || ans.Lost == test.said {
				t.Errorf("%v, said %v, lost %v; want %s, said %v", ans.Err, ans.Said, ans.Lost, test.code, test.said)
			}
		})
	}
}

// pythonServer answers every batch with an error, as Python's grpcio sends it.
const pythonServer = `
import sys, grpc
from concurrent import futures
def export(request, context):
    context.abort(grpc.StatusCode.UNAVAILABLE, "503")
server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
    "opentelemetry.proto.collector.trace.v1.TraceService",
    {"Export": grpc.unary_unary_rpc_method_handler(export)}),))
server.add_insecure_port("unix:" + sys.argv[1])
server.start()
server.wait_for_termination()
`

func TestSpokenByPython(t *testing.T) {
	t.Parallel()
	python := filepath.Join("..", "..", "..", "examples", "python-plugin", ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("no Python with grpcio: run make python")
	}
	socket := filepath.Join(testplugin.SocketFolder(t), "r.sock")
	cmd := exec.Command(python, "-c", pythonServer, socket)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	// The file exists before the server listens.
	testplugin.WaitFor(t, "the server to listen", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	ans := answerOf(t, testPlugin(t), socket)
	if ans.Err == nil || ans.Err.Code != "UNAVAILABLE" || !ans.Said || !ans.Reached || ans.Lost {
		t.Errorf("%v, said %v, reached %v, lost %v; want the plugin's own UNAVAILABLE", ans.Err, ans.Said, ans.Reached, ans.Lost)
	}
}
