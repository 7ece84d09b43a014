package serveload

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/serving"
)

// The applications are written once, as a handler, functions and a gRPC service
// that know nothing of who serves them: a bare server runs the same code as ours.

const (
	appHello = "hello" // HTTP, five bytes
	appChain = "chain" // HTTP with JSON, two calls by handle in a row
	appEcho  = "echo"  // gRPC, unary
)

func errUnknownApp(name string) error {
	return fmt.Errorf("application %q: want %s, %s or %s", name, appHello, appChain, appEcho)
}

// hello is the least that a handler can do.
func hello(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write(helloBody) // the client may have left
}

var helloBody = []byte("hello")

// question and answer go through the chain, as JSON outside of it.
type question struct {
	Text string `json:"text"`
}

type answer struct {
	Text  string `json:"text"`
	Words int    `json:"words"`
}

// function is one of a chain's, and how the one before it calls it.
type function func(context.Context, question) (answer, error)

// gateway, counted and upper are the chain's three links; each calls the next.
func gateway(next function) function {
	return func(ctx context.Context, in question) (answer, error) { return next(ctx, in) }
}

func counted(next function) function {
	return func(ctx context.Context, in question) (answer, error) {
		out, err := next(ctx, in)
		out.Words = len(strings.Fields(in.Text))
		return out, err
	}
}

func upper(_ context.Context, in question) (answer, error) {
	return answer{Text: strings.ToUpper(in.Text)}, nil
}

const (
	chainQuestion = `{"text":"the quick brown fox"}`
	chainAnswer   = `{"text":"THE QUICK BROWN FOX","words":4}` + "\n"
)

// bareHandler is an application of HTTP without a runtime: its functions are plain
// calls, each wrapped by link, unless that is nil. Decoding and encoding is the same code as in ours.
func bareHandler(name string, link func(name string, f function) function) (http.Handler, error) {
	if link == nil {
		link = func(_ string, f function) function { return f }
	}
	switch name {
	case appHello:
		return http.HandlerFunc(hello), nil
	case appChain:
		return serving.JSON(link("gateway", gateway(link("counted", counted(link("upper", upper)))))), nil
	}
	return nil, errUnknownApp(name)
}

// echo is a gRPC service that answers with what it is sent.
type echo struct {
	testpb.UnimplementedTestServiceServer
}

// UnaryCall implements [testpb.TestServiceServer].
func (echo) UnaryCall(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
}

// echoMethod is the full name of the method that load calls, "/service/method".
const echoMethod = testpb.TestService_UnaryCall_FullMethodName

// echoPayload is what it sends, echoQuestion that as JSON.
var echoPayload = []byte("the quick brown fox")

func echoQuestion() string {
	return fmt.Sprintf(`{"payload":{"body":%q}}`, base64.StdEncoding.EncodeToString(echoPayload))
}

// What stands before a limit of ours would be measured instead of the path of a
// request: more calls at a time than any load makes.
const plenty = 1024

// ourApp is an application as ours serves it. Two replicas give the router
// something to choose from.
func ourApp(name string) (*serving.App, error) {
	option := []serving.DeploymentOption{serving.WithReplicas(2), serving.WithMaxOngoingRequests(plenty)}
	switch name {
	case appHello:
		return serving.NewApp(name, serving.NewDeployment("Hello", http.HandlerFunc(hello), option...)), nil
	case appChain:
		last := serving.NewDeployment("Upper", nil, option...)
		middle := serving.NewDeployment("Counted", nil, option...)
		callLast := serving.AddFunction(last, "upper", upper)
		callMiddle := serving.AddFunction(middle, "counted", counted(callLast.Call))
		first := serving.NewDeployment("Gateway", serving.JSON(gateway(callMiddle.Call)), option...)
		return serving.NewApp(name, first, serving.WithDeployments(middle, last)), nil
	case appEcho:
		d := serving.NewDeployment("Echo", nil, option...)
		testpb.RegisterTestServiceServer(d, echo{})
		return serving.NewApp(name, d), nil
	}
	return nil, errUnknownApp(name)
}
