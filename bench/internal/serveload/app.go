package serveload

import (
	"context"
	"fmt"
	"net/http"

	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/serving"
)

// The applications are a handler and a gRPC service. A bare server and our server run
// the same code.
const (
	appHello = "hello" // HTTP, five bytes
	appEcho  = "echo"  // gRPC, unary
)

func errUnknownApp(name string) error {
	return fmt.Errorf("application %q: want %s or %s", name, appHello, appEcho)
}

// hello is the smallest handler.
func hello(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write(helloBody) // the client may have left
}

var helloBody = []byte("hello")

// echo is a gRPC service that returns the payload of the request.
type echo struct {
	testpb.UnimplementedTestServiceServer
}

// UnaryCall implements [testpb.TestServiceServer].
func (echo) UnaryCall(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
}

// echoMethod is the full name of the method of the load, "/service/method".
const echoMethod = testpb.TestService_UnaryCall_FullMethodName

// echoPayload is the payload of the load.
var echoPayload = []byte("the quick brown fox")

// plenty is more concurrent calls than any load has, so that no limit applies.
const plenty = 1024

// ourApp returns an application for our server. Two replicas give the router a
// choice.
func ourApp(name string) (*serving.App, error) {
	option := []serving.DeploymentOption{serving.WithReplicas(2), serving.WithMaxOngoingRequests(plenty)}
	switch name {
	case appHello:
		return serving.NewApp(name, serving.NewDeployment("Hello", http.HandlerFunc(hello), option...)), nil
	case appEcho:
		d := serving.NewDeployment("Echo", nil, option...)
		testpb.RegisterTestServiceServer(d, echo{})
		return serving.NewApp(name, d), nil
	}
	return nil, errUnknownApp(name)
}
