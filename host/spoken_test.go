package host

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/test/testplugin"
)

// What the host takes for the plugin's own word, and what for gRPC's, decides
// whether a health check follows, and whether a batch is suspected. gRPC does
// not say; spoken tells them apart by what real servers send.

// dialled is a peer that is only a connection.
type dialled struct {
	*fakePlugin
	conn *grpc.ClientConn
}

func (d dialled) Conn() grpc.ClientConnInterface { return d.conn }

// answerOf sends one batch to the server at a socket.
func answerOf(t *testing.T, h *Host, socket string) answer {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	s := newSender(h.plugins[0], dialled{newFakePlugin(nil), conn})
	return sendOne(t, s)
}

// sendOne sends a batch of bytes that only look at gRPC like one, and gives the
// answer.
func sendOne(t *testing.T, s *sender) answer {
	t.Helper()
	b := newBatch(s.x.queue.p.mem, make([]byte, 2000), 10) // no message: each field has number 0
	defer b.release()
	return s.send(t.Context(), &item{b: b, seq: 1, sealed: time.Now()})
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
			h := unstarted(t, "/no/plugin")
			h.cfg.ExportTimeout = time.Second
			socket := filepath.Join(socketFolder(t), "r.sock")
			server := serveAt(t, socket, rawTraces(test.export))
			stop <- server.Stop
			ans := answerOf(t, h, socket)
			select {
			case <-stop: // nobody has
			default:
			}
			if ans.err == nil || ans.err.Code != test.code || ans.said != test.said || ans.reached != test.reached {
				t.Errorf("%v, said %v, reached %v; want %s, %v, %v", ans.err, ans.said, ans.reached, test.code, test.said, test.reached)
			}
		})
	}
	t.Run("no server", func(t *testing.T) {
		h := unstarted(t, "/no/plugin")
		if ans := answerOf(t, h, filepath.Join(socketFolder(t), "none")); ans.said || ans.reached || ans.err == nil {
			t.Errorf("%+v, want nothing said and nothing reached", ans)
		}
	})
	t.Run("no such service", func(t *testing.T) {
		h := unstarted(t, "/no/plugin")
		socket := filepath.Join(socketFolder(t), "r.sock")
		serveAt(t, socket, func(*grpc.Server) {})
		if ans := answerOf(t, h, socket); !ans.said || ans.err == nil || ans.err.Code != "UNIMPLEMENTED" {
			t.Errorf("%+v, want the server's own UNIMPLEMENTED", ans)
		}
	})
	t.Run("too large", func(t *testing.T) {
		h := unstarted(t, "/no/plugin")
		socket := filepath.Join(socketFolder(t), "r.sock")
		serveAt(t, socket, func(s *grpc.Server) { coltracepb.RegisterTraceServiceServer(s, taker{}) }, grpc.MaxRecvMsgSize(1000))
		if ans := answerOf(t, h, socket); !ans.said || ans.err == nil || ans.err.Code != "RESOURCE_EXHAUSTED" {
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
			h := unstarted(t, pluginList([]string{testplugin.Install(t, test.mode)}))
			x := h.plugins[0]
			l, err := begin(t.Context(), x, newAttempt(x))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.end() }() // one has ended by itself
			ans := sendOne(t, l.sender)
			if ans.err == nil || ans.err.Code != test.code || ans.said != test.said || ans.lost == test.said {
				t.Errorf("%v, said %v, lost %v; want %s, said %v", ans.err, ans.said, ans.lost, test.code, test.said)
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
	python := filepath.Join("..", "examples", "python-plugin", ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("no Python with grpcio: run make python")
	}
	socket := filepath.Join(socketFolder(t), "r.sock")
	cmd := exec.Command(python, "-c", pythonServer, socket)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	// There is a file before anybody listens at it.
	testplugin.WaitFor(t, "the server to listen", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	ans := answerOf(t, unstarted(t, "/no/plugin"), socket)
	if ans.err == nil || ans.err.Code != "UNAVAILABLE" || !ans.said || !ans.reached || ans.lost {
		t.Errorf("%v, said %v, reached %v, lost %v; want the plugin's own UNAVAILABLE", ans.err, ans.said, ans.reached, ans.lost)
	}
}
