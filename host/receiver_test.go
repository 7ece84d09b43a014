package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/test/testplugin"
)

// A receiver is a plain OTLP server at a socket, as a collector would be: it
// knows nothing of this project. It runs in a test, or in a process of its own.

// traces is its service.
type traces struct {
	coltracepb.UnimplementedTraceServiceServer
	export func(ctx context.Context, names []string) error
}

func (s traces) Export(ctx context.Context, r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	var names []string
	for _, rs := range r.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				names = append(names, span.GetName())
			}
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, s.export(ctx, names)
}

// runReceiver is the process. It listens at the socket in its first argument, and
// replaces a socket that is there. It waits for the duration in its second argument for
// each batch, and records the batches like testplugin's plugins.
func runReceiver() {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pause, err := time.ParseDuration(os.Args[2])
	if err != nil {
		fail(err)
	}
	_ = os.Remove(os.Args[1])
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		fail(err)
	}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, traces{export: func(_ context.Context, names []string) error {
		<-time.After(pause)
		return writeRecord(names)
	}})
	fail(server.Serve(listener)) // until it is killed
}

func writeRecord(names []string) error {
	line, err := json.Marshal(testplugin.Batch{ID: "receiver", PID: os.Getpid(), Spans: names})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(os.Args[0]+".spans", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// receiver is a socket, and the processes that have listened there one after
// the other. At path is the record of all of them.
type receiver struct {
	t            *testing.T
	path, socket string
	args         []string
	cmd          *exec.Cmd
}

// newReceiver starts none yet.
func newReceiver(t *testing.T, pause time.Duration) *receiver {
	socket := filepath.Join(testplugin.SocketFolder(t), "r.sock")
	return &receiver{t: t, path: installOwn(t, "receiver"), socket: socket, args: []string{socket, pause.String()}}
}

// newListener is the same with a plugin of the SDK, of one of testplugin's
// modes, run by hand.
func newListener(t *testing.T, mode string) *receiver {
	socket := filepath.Join(testplugin.SocketFolder(t), "r.sock")
	return &receiver{t: t, path: testplugin.Install(t, mode), socket: socket, args: []string{"--listen", socket}}
}

// entry returns the receiver's entry in a host's list.
func (r *receiver) entry() string { return "unix://" + r.socket }

func (r *receiver) start() {
	r.t.Helper()
	cmd := exec.Command(r.path, r.args...)
	cmd.Stderr = r.t.Output()
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	var once sync.Once
	r.t.Cleanup(func() { once.Do(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) })
	r.cmd = cmd
}

// kill is kill -9, and returns when the process has ended.
func (r *receiver) kill() {
	r.t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	_ = r.cmd.Wait() // killed, as wanted
}
