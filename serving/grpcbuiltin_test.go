package serving_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	rayserve "github.com/servetrace/servetrace/internal/gen/ray/serve"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// testApp has gRPC's test service.
func testApp(name string, s testService, opts ...serving.DeploymentOption) *serving.App {
	d := serving.NewDeployment("D", nil, opts...)
	pb.RegisterTestServiceServer(d, s)
	return serving.NewApp(name, d)
}

// named answers with the app's name.
func named(name string) testService {
	return testService{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return &pb.SimpleResponse{Username: name}, nil
	}}
}

// TestGRPCApplication: which app a call is for, and G9: one for no app has no
// span and a line in the log.
func TestGRPCApplication(t *testing.T) {
	several := startGRPCApps(t, serving.Config{},
		testApp("a", named("a")), testApp("b", named("b")), serving.NewApp("web", serving.NewDeployment("W", http.NotFoundHandler())))
	single := startGRPCApps(t, serving.Config{}, testApp("a", named("a")))
	const ping = "Ping /ray.serve.RayServeAPIService/ListApplications for available applications."
	for _, test := range []struct {
		r    *grpcRig
		meta []string
		want string // the app, or what the client was told
	}{
		{single, nil, "a"},
		{single, []string{"application", "other"}, "a"},
		{several, []string{"application", "a"}, "a"},
		{several, []string{"application", "b"}, "b"},
		{several, []string{"application", "b", "application", "a"}, "a"}, // the last, as in Ray
		{several, nil, "NOT_FOUND: Application metadata not set. " + ping},
		{several, []string{"application", "c"}, "NOT_FOUND: Application 'c' not found. " + ping},
		{several, []string{"application", "A"}, "NOT_FOUND: Application 'A' not found. " + ping},
		{several, []string{"application", "web"}, "UNIMPLEMENTED: Application 'web' has no method /grpc.testing.TestService/UnaryCall."},
	} {
		var trailer metadata.MD
		out, err := test.r.stub.UnaryCall(with(patient(t), append(test.meta, "request_id", "mine")...), &pb.SimpleRequest{}, grpc.Trailer(&trailer))
		got := out.GetUsername()
		if err != nil {
			got = told(err)
		}
		if got != test.want {
			t.Errorf("%q: got %q, want %q", test.meta, got, test.want)
		}
		if id := trailer["request_id"]; !slices.Equal(id, []string{"mine"}) {
			t.Errorf("%q: request id %q in the trailer, want mine", test.meta, id)
		}
	}
	if n := len(several.spans.take(t, 9)); n != 9 {
		t.Errorf("%d spans, want 9: three for each call that an app answered", n)
	}
	lines := several.access.take(t, "request", 7)
	if got := []any{lines[3]["code"], lines[3]["app"], lines[3]["request_id"], lines[3]["level"]}; !cmp.Equal(got, []any{"NOT_FOUND", nil, "mine", "INFO"}) {
		t.Errorf("access log of a call for no app: %v", lines[3])
	}
}

// TestGRPCUnknownMethod: what the app does not have is UNIMPLEMENTED, without a
// span, as with any gRPC server.
func TestGRPCUnknownMethod(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{})
	for method, want := range map[string]string{
		"/grpc.testing.TestService/Nothing":   "UNIMPLEMENTED: Application 'a' has no method /grpc.testing.TestService/Nothing.",
		"/grpc.testing.TestService/unarycall": "UNIMPLEMENTED: Application 'a' has no method /grpc.testing.TestService/unarycall.",
		"/no.such.Service/UnaryCall":          "UNIMPLEMENTED: Application 'a' has no method /no.such.Service/UnaryCall.",
		"/grpc.health.v1.Health/Nothing":      "UNIMPLEMENTED: Application 'a' has no method /grpc.health.v1.Health/Nothing.",
		"/Nothing":                            `UNIMPLEMENTED: malformed method name: "/Nothing"`,
	} {
		err := r.conn.Invoke(patient(t), method, &pb.SimpleRequest{}, &pb.SimpleResponse{})
		if got := told(err); got != want {
			t.Errorf("%s: client was told %q, want %q", method, got, want)
		}
	}
	r.access.take(t, "request", 4)
	if spans := r.spans.all(); len(spans) > 0 {
		t.Errorf("%d spans, want none", len(spans))
	}
}

// TestGRPCRayAPI holds G10: Ray Serve's service, well and draining, without spans
// and lines.
func TestGRPCRayAPI(t *testing.T) {
	r := startGRPCApps(t, serving.Config{}, testApp("b", testService{}), testApp("a", testService{}))
	ray := rayserve.NewRayServeAPIServiceClient(r.conn)
	well, err := ray.Healthz(patient(t), &rayserve.HealthzRequest{})
	if err != nil || well.GetMessage() != "success" {
		t.Errorf("Healthz: %v, %v", well, err)
	}
	apps, err := ray.ListApplications(patient(t), &rayserve.ListApplicationsRequest{})
	if diff := cmp.Diff([]string{"a", "b"}, apps.GetApplicationNames()); diff != "" || err != nil {
		t.Errorf("ListApplications: %v (-want +got):\n%s", err, diff)
	}
	r.server.Counter().Leave()
	const want = "UNAVAILABLE: This node is being drained."
	if _, err := ray.Healthz(patient(t), &rayserve.HealthzRequest{}); told(err) != want {
		t.Errorf("Healthz while draining: %q, want %q", told(err), want)
	}
	if _, err := ray.ListApplications(patient(t), &rayserve.ListApplicationsRequest{}); told(err) != want {
		t.Errorf("ListApplications while draining: %q, want %q", told(err), want)
	}
	if spans, lines := r.spans.all(), r.access.Lines(t, "request"); len(spans) > 0 || len(lines) > 0 {
		t.Errorf("%d spans, %d lines, want none", len(spans), len(lines))
	}
}

// watching gives what a health watch of service hears.
func (r *grpcRig) watching(service string) func() string {
	r.t.Helper()
	stream, err := healthv1.NewHealthClient(r.conn).Watch(patient(r.t), &healthv1.HealthCheckRequest{Service: service})
	if err != nil {
		r.t.Fatal(err)
	}
	return func() string {
		now, err := stream.Recv()
		if err != nil {
			return told(err)
		}
		return now.GetStatus().String()
	}
}

// TestGRPCHealth: the standard health service, until after the end.
func TestGRPCHealth(t *testing.T) {
	r := startGRPC(t, serving.Config{}, testService{})
	health := healthv1.NewHealthClient(r.conn)
	list, err := health.List(patient(t), &healthv1.HealthListRequest{})
	if err != nil || len(list.GetStatuses()) != 6 {
		t.Errorf("List: %v, %v; want six", list, err)
	}
	for service, s := range list.GetStatuses() {
		if s.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v", service, s)
		}
	}
	if _, err := health.Check(patient(t), &healthv1.HealthCheckRequest{Service: "no.such.Service"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v, want NotFound", err)
	}
	heard := r.watching("grpc.testing.TestService")
	if got := heard(); got != "SERVING" {
		t.Errorf("watch: %s, want SERVING", got)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.server.Shutdown(patient(t)) }()
	if got := heard(); got != "NOT_SERVING" {
		t.Errorf("watch at the drain: %s, want NOT_SERVING", got)
	}
	if got, want := heard(), "UNAVAILABLE: This node is being drained."; got != want {
		t.Errorf("watch at the end: %q, want %q", got, want)
	}
	if err := servingtest.Receive(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

// TestGRPCHealthOfReplicas: before a deployment has replicas, health says so, and
// its calls wait; where it will have none, they fail, which is G8.
func TestGRPCHealthOfReplicas(t *testing.T) {
	construct := make(chan error)
	d := serving.NewDeployment("D", nil)
	serving.PerReplica(d, func(ctx context.Context) (int, error) {
		select {
		case err := <-construct:
			return 0, err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	pb.RegisterTestServiceServer(d, testService{})
	r := startGRPCApps(t, serving.Config{}, serving.NewApp("a", d))
	heard, overall := r.watching("grpc.testing.TestService"), r.watching("")
	for _, got := range []string{heard(), overall()} {
		if got != "NOT_SERVING" {
			t.Errorf("watch before there is a replica: %s, want NOT_SERVING", got)
		}
	}
	_, err := rayserve.NewRayServeAPIServiceClient(r.conn).Healthz(patient(t), &rayserve.HealthzRequest{})
	if got, want := told(err), "UNAVAILABLE: Deployment(name='D', app='a') has no replica that takes requests yet."; got != want {
		t.Errorf("Healthz: %q, want %q", got, want)
	}
	answer := make(chan error, 1)
	go func() { answer <- r.unaryCall() }()
	r.queuedRPCs(1)
	construct <- nil
	for _, got := range []string{heard(), overall()} {
		if got != "SERVING" {
			t.Errorf("watch with a replica: %s, want SERVING", got)
		}
	}
	if err := servingtest.Receive(t, "the answer", answer); err != nil {
		t.Error(err)
	}
}

// TestGRPCUnavailable is G8.
func TestGRPCUnavailable(t *testing.T) {
	d := serving.NewDeployment("D", nil, serving.WithReplicas(20)) // which all fail, the last try of the deployment
	serving.PerReplica(d, func(context.Context) (int, error) { return 0, errors.New("no GPU") })
	pb.RegisterTestServiceServer(d, testService{})
	r := startGRPCApps(t, serving.Config{}, serving.NewApp("a", d))
	servingtest.Await(t, "the deployment to fail", func() bool { return r.server.Status()[0].State == serving.DeploymentUnavailable })
	const text = "Deployment(name='D', app='a') is unavailable because it failed to deploy."
	if got, want := told(r.unaryCall()), "UNAVAILABLE: "+text; got != want {
		t.Errorf("client was told %q, want %q", got, want)
	}
	want := []string{"proxy_grpc_request code=UNAVAILABLE ERROR(" + text + ") event(*serving.DeploymentUnavailableError True)", "route_to_replica"}
	if diff := cmp.Diff(want, rpcDigests(r.spans.take(t, 2))); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if line := r.access.take(t, "request", 1)[0]; line["code"] != "UNAVAILABLE" || line["level"] != "INFO" {
		t.Errorf("access log: %v", line)
	}
}

// TestGRPCReflection: both versions tell the services of the app.
func TestGRPCReflection(t *testing.T) {
	single := startGRPCApps(t, serving.Config{}, testApp("a", testService{}), serving.NewApp("web", serving.NewDeployment("W", http.NotFoundHandler())))
	several := startGRPCApps(t, serving.Config{}, testApp("a", testService{}), testApp("b", testService{}))
	for _, test := range []struct {
		name string
		r    *grpcRig
		meta []string
		want string
	}{
		{"the only one", single, nil, ""},
		{"one of several", several, []string{"application", "b"}, ""},
		{"none named", several, nil, "NOT_FOUND: " + textNoApplication},
		{"unknown", several, []string{"application", "c"}, "NOT_FOUND: Application 'c' not found. " + textListApplications},
	} {
		for version, list := range map[string]func(context.Context, *grpcRig) ([]string, error){"v1": listV1, "v1alpha": listAlpha} {
			services, err := list(with(patient(t), test.meta...), test.r)
			if test.want != "" {
				if told(err) != test.want {
					t.Errorf("%s, %s: client was told %q, want %q", version, test.name, told(err), test.want)
				}
				continue
			}
			if err != nil || len(services) != 5 || !slices.Contains(services, "grpc.testing.TestService") ||
				!slices.Contains(services, "ray.serve.RayServeAPIService") {
				t.Errorf("%s, %s: %q, %v", version, test.name, services, err)
			}
		}
	}
}

func listV1(ctx context.Context, r *grpcRig) (names []string, err error) {
	stream, err := reflectionv1.NewServerReflectionClient(r.conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	// The server may have refused already: what it says is heard below.
	_ = stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	answer, err := stream.Recv()
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	_ = stream.CloseSend()
	return names, err
}

func listAlpha(ctx context.Context, r *grpcRig) (names []string, err error) {
	stream, err := reflectionv1alpha.NewServerReflectionClient(r.conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	_ = stream.Send(&reflectionv1alpha.ServerReflectionRequest{MessageRequest: &reflectionv1alpha.ServerReflectionRequest_ListServices{}}) //nolint:staticcheck // some clients know no other version
	answer, err := stream.Recv()
	for _, s := range answer.GetListServicesResponse().GetService() { //nolint:staticcheck // as above
		names = append(names, s.GetName()) //nolint:staticcheck // as above
	}
	_ = stream.CloseSend()
	return names, err
}
