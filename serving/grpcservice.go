package serving

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

var _ grpc.ServiceRegistrar = (*Deployment)(nil)

// RegisterService implements [grpc.ServiceRegistrar], so that generated code
// registers a service on a deployment: pb.RegisterGreeterServer(deployment, impl).
// The server's gRPC proxy then serves it, if the deployment is the ingress of
// its app. impl is shared by the replicas and must be safe for concurrent use.
//
// Register before [New], which reports the faults of a service: an impl that is nil or
// does not fit, a name that is taken. RegisterService is not safe for concurrent use.
func (d *Deployment) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d.rpcs.Add(desc, impl)
}

// WithUnaryInterceptor adds interceptors of unary calls. They run in the replica, under
// its span and in its slot, around the code of the deployment's services; the first is
// the outermost.
func WithUnaryInterceptor(interceptors ...grpc.UnaryServerInterceptor) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.rpcs.Unary = append(d.rpcs.Unary, interceptors...) }}
}

// WithStreamInterceptor adds interceptors of streaming calls, as [WithUnaryInterceptor]
// does for unary calls.
func WithStreamInterceptor(interceptors ...grpc.StreamServerInterceptor) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.rpcs.Stream = append(d.rpcs.Stream, interceptors...) }}
}

// WithStatsHandler reports the calls in a replica of the deployment to h. An example is the
// handler of OpenTelemetry's otelgrpc. Its spans are then children of the replica's spans.
// h sees messages and not bytes, so the sizes are sizes before compression. It sees no
// connections.
func WithStatsHandler(h stats.Handler) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.rpcs.Stats = append(d.rpcs.Stats, h) }}
}
