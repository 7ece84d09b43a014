package serving_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/serving"
)

// TestGRPCLongNames: names that are not ours come back, and into the log, by their
// beginnings only. HPACK has a client send a name of 4 KiB anew with one byte.
func TestGRPCLongNames(t *testing.T) {
	d := serving.NewDeployment("E", nil)
	pb.RegisterTestServiceServer(d, testService{})
	r := startGRPCApps(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("D", noHandler)), serving.NewApp("b", d, serving.WithRoutePrefix("/b")))
	long := strings.Repeat("x", 4000)
	for app, want := range map[string]codes.Code{"b": codes.Unimplemented, long: codes.NotFound} {
		err := r.conn.Invoke(with(patient(t), "application", app), "/long/"+long, &pb.Empty{}, &pb.Empty{})
		if code, n := status.Code(err), len(status.Convert(err).Message()); code != want || n > mostPath+200 {
			t.Errorf("%v with a text of %d bytes, want %v with about %d", code, n, want, mostPath)
		}
	}
	for _, line := range r.access.take(t, "request", 2) {
		if n := len(line["method"].(string)); n > mostPath+len("…") {
			t.Errorf("a method of %d bytes in the log", n)
		}
	}
}
