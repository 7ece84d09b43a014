package testplugin

import (
	"net"
	"os"
	"sync"
	"testing"

	"google.golang.org/grpc"
)

// SocketFolder returns a new folder, which is removed at the end of the test. Its path is
// short enough for a socket, which the path of t.TempDir may not be.
func SocketFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "st")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Serve serves gRPC at a new socket until the end of the test. register adds the services.
func Serve(t testing.TB, socket string, register func(*grpc.Server), opts ...grpc.ServerOption) *grpc.Server {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(opts...)
	register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	t.Cleanup(serving.Wait)
	t.Cleanup(server.Stop)
	return server
}
