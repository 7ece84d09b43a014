package grpcproxy

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	rayserve "github.com/servetrace/servetrace/internal/gen/ray/serve"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
)

// builtinServices are the services that the proxy implements itself, by name. Their calls
// have no span and no line in the access log.
var builtinServices = map[string]bool{
	rayserve.RayServeAPIService_ServiceDesc.ServiceName:        true,
	healthv1.Health_ServiceDesc.ServiceName:                    true,
	reflectionv1.ServerReflection_ServiceDesc.ServiceName:      true,
	reflectionv1alpha.ServerReflection_ServiceDesc.ServiceName: true,
}

// builtin implements the services that the proxy itself has: health, reflection and Ray's.
type builtin struct {
	proxy  *proxy
	health *health.Server
	names  []string                                            // names of all apps, sorted
	over   context.Context                                     // ends when the server stops
	v1     map[string]reflectionv1.ServerReflectionServer      // by the name of the app
	alpha  map[string]reflectionv1alpha.ServerReflectionServer // by the name of the app

	mu   sync.Mutex
	sent map[string]healthv1.HealthCheckResponse_ServingStatus // the status that health has now, by service
}

// newBuiltin returns the services that the proxy implements itself. The watches of the
// health service end when the context over ends.
func newBuiltin(over context.Context, p *proxy) *builtin {
	b := &builtin{
		proxy:  p,
		health: health.NewServer(),
		over:   over,
		v1:     make(map[string]reflectionv1.ServerReflectionServer),
		alpha:  make(map[string]reflectionv1alpha.ServerReflectionServer),
		sent:   make(map[string]healthv1.HealthCheckResponse_ServingStatus),
	}
	for name, app := range p.apps {
		b.names = append(b.names, name)
		if !app.Services.Any() {
			continue
		}
		opts := reflection.ServerOptions{Services: servicesOf{app.Services}}
		b.v1[name], b.alpha[name] = reflection.NewServerV1(opts), reflection.NewServer(opts)
	}
	slices.Sort(b.names)
	b.refresh()
	return b
}

// refresh updates the statuses of the health service. A service is healthy if all deployments
// of each app that offers it take calls. The empty name and the builtinServices are healthy
// if all deployments of all apps take calls.
func (b *builtin) refresh() {
	b.mu.Lock() // held to the end, so that a concurrent call cannot set an older status later
	defer b.mu.Unlock()
	all := healthv1.HealthCheckResponse_SERVING
	services := make(map[string]healthv1.HealthCheckResponse_ServingStatus)
	for _, app := range b.proxy.apps {
		now := healthv1.HealthCheckResponse_SERVING
		if !app.ready() {
			now = healthv1.HealthCheckResponse_NOT_SERVING
			all = now
		}
		for service := range app.Services.infos {
			if services[service] != healthv1.HealthCheckResponse_NOT_SERVING {
				services[service] = now
			}
		}
	}
	services[""] = all
	for service := range builtinServices {
		services[service] = all
	}
	for service, now := range services {
		if b.sent[service] != now {
			b.sent[service] = now
			b.health.SetServingStatus(service, now)
		}
	}
}

func (b *builtin) registerOn(s *grpc.Server) {
	rayserve.RegisterRayServeAPIServiceServer(s, rayAPI{b: b})
	healthv1.RegisterHealthServer(s, endingHealth{Server: b.health, over: b.over})
	reflectionv1.RegisterServerReflectionServer(s, reflectionV1{b})
	reflectionv1alpha.RegisterServerReflectionServer(s, reflectionAlpha{b})
}

// rayAPI implements Ray Serve's own gRPC service.
type rayAPI struct {
	rayserve.UnimplementedRayServeAPIServiceServer

	b *builtin
}

// Healthz implements [rayserve.RayServeAPIServiceServer].
func (a rayAPI) Healthz(context.Context, *rayserve.HealthzRequest) (*rayserve.HealthzResponse, error) {
	if reason := a.b.proxy.unready(); reason != "" {
		return nil, status.Error(codes.Unavailable, reason)
	}
	return &rayserve.HealthzResponse{Message: textHealthy}, nil
}

// ListApplications implements [rayserve.RayServeAPIServiceServer].
func (a rayAPI) ListApplications(context.Context, *rayserve.ListApplicationsRequest) (*rayserve.ListApplicationsResponse, error) {
	if reason := a.b.proxy.unready(); reason != "" {
		return nil, status.Error(codes.Unavailable, reason)
	}
	return &rayserve.ListApplicationsResponse{ApplicationNames: a.b.names}, nil
}

// endingHealth is grpc's health service, except that its watches end when the context over
// ends. Otherwise a client with a watch would delay the server's stop.
type endingHealth struct {
	*health.Server

	over context.Context
}

// Watch implements [healthv1.HealthServer].
func (h endingHealth) Watch(in *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(h.over, cancel)()
	err := h.Server.Watch(in, endingWatch{stream, ctx})
	if h.over.Err() != nil {
		return status.Error(codes.Unavailable, textDraining)
	}
	return err
}

type endingWatch struct {
	healthv1.Health_WatchServer

	ctx context.Context
}

// Context implements [grpc.ServerStream].
func (w endingWatch) Context() context.Context { return w.ctx }

// servicesOf lists the services of an app and the builtinServices, for reflection.
type servicesOf struct{ services *Services }

var _ reflection.ServiceInfoProvider = servicesOf{}

// GetServiceInfo implements [reflection.ServiceInfoProvider].
func (s servicesOf) GetServiceInfo() map[string]grpc.ServiceInfo {
	infos := make(map[string]grpc.ServiceInfo, len(s.services.infos)+len(builtinServices))
	for name, info := range s.services.infos {
		infos[name] = info
	}
	for name := range builtinServices {
		infos[name] = grpc.ServiceInfo{}
	}
	return infos
}

// reflected returns the app that a reflection call is about: the app that its metadata
// names, or the only app with gRPC services.
func (b *builtin) reflected(ctx context.Context) (app string, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	name := last(md, metaApplication)
	if _, there := b.v1[name]; there {
		return name, nil
	}
	if len(b.v1) == 1 {
		for only := range b.v1 {
			return only, nil
		}
	}
	if name == "" {
		return "", status.Error(codes.NotFound, textNoApplication)
	}
	return "", status.Errorf(codes.NotFound, textApplicationUnknown, accesslog.Cut(name))
}

type reflectionV1 struct{ b *builtin }

// ServerReflectionInfo implements [reflectionv1.ServerReflectionServer].
func (r reflectionV1) ServerReflectionInfo(stream reflectionv1.ServerReflection_ServerReflectionInfoServer) error {
	app, err := r.b.reflected(stream.Context())
	if err != nil {
		return err
	}
	return r.b.v1[app].ServerReflectionInfo(stream)
}

type reflectionAlpha struct{ b *builtin }

// ServerReflectionInfo implements [reflectionv1alpha.ServerReflectionServer].
func (r reflectionAlpha) ServerReflectionInfo(stream reflectionv1alpha.ServerReflection_ServerReflectionInfoServer) error {
	app, err := r.b.reflected(stream.Context())
	if err != nil {
		return err
	}
	return r.b.alpha[app].ServerReflectionInfo(stream)
}
