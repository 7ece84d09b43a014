package serving

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

var _ grpc.ServiceRegistrar = (*Deployment)(nil)

// RegisterService implements [grpc.ServiceRegistrar], so that generated code can register a
// service on a deployment: pb.RegisterGreeterServer(deployment, impl). The gRPC proxy serves
// the service if the deployment is the ingress of its app. All replicas call the same impl,
// which must be safe for concurrent use.
//
// RegisterService must be called before [New], and not concurrently. New returns an error if
// impl is nil, if impl does not implement the service, or if two services have one name.
func (d *Deployment) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d.rpcs.Add(desc, impl)
}

// WithUnaryInterceptor adds interceptors of unary calls. The replica runs them around the
// code of the deployment's services, below the replica span. The first interceptor is the
// outermost.
func WithUnaryInterceptor(interceptors ...grpc.UnaryServerInterceptor) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.rpcs.Unary = append(d.rpcs.Unary, interceptors...) }}
}

// WithStreamInterceptor adds interceptors of streaming calls, as [WithUnaryInterceptor]
// does for unary calls.
func WithStreamInterceptor(interceptors ...grpc.StreamServerInterceptor) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.rpcs.Stream = append(d.rpcs.Stream, interceptors...) }}
}

// WithStatsHandler reports the gRPC calls in the replicas of the deployment to h, such as
// the handler of OpenTelemetry's otelgrpc. The spans that h makes are children of the replica
// span. The sizes that h gets are sizes before compression. h gets no events of connections.
func WithStatsHandler(h stats.Handler) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.rpcs.Stats = append(d.rpcs.Stats, h) }}
}
