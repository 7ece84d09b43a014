package serving

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

var _ grpc.ServiceRegistrar = (*Deployment)(nil)

// RegisterService implements [grpc.ServiceRegistrar], so that generated code
// registers a service on a deployment: pb.RegisterGreeterServer(deployment, impl).
// The server's gRPC proxy then serves it, where the deployment is the ingress of
// its app. impl is shared by the replicas and must be safe for concurrent use.
//
// Register before [New], which reports what is wrong with a service: an impl
// that is nil or does not fit, a name that is taken. It is not for concurrent
// use.
func (d *Deployment) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d.rpcs.add(desc, impl)
}

// WithUnaryInterceptor adds interceptors of the calls that are neither client nor
// server streams. They run in the replica, under its span and in its slot,
// around the code of the deployment's services; the first is the outermost.
func WithUnaryInterceptor(interceptors ...grpc.UnaryServerInterceptor) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.rpcs.unary = append(d.rpcs.unary, interceptors...) }}
}

// WithStreamInterceptor adds interceptors of the calls that stream, as
// [WithUnaryInterceptor] does for the others.
func WithStreamInterceptor(interceptors ...grpc.StreamServerInterceptor) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.rpcs.stream = append(d.rpcs.stream, interceptors...) }}
}

// WithStatsHandler has h told of the calls that a replica of the deployment runs,
// such as the handler of OpenTelemetry's otelgrpc, whose spans then are children
// of the replica's. h works in the replica, around the interceptors: it sees
// messages and not bytes, so that the sizes are those before compression. It
// sees no connections.
func WithStatsHandler(h stats.Handler) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.rpcs.stats = append(d.rpcs.stats, h) }}
}

// rpcServices are the gRPC services of a deployment. They do not change once a
// server is built for it.
type rpcServices struct {
	infos   map[string]grpc.ServiceInfo // by name
	methods map[string]*rpcMethod       // by full name, "/service/method"
	unary   []grpc.UnaryServerInterceptor
	stream  []grpc.StreamServerInterceptor
	stats   []stats.Handler
	faults  []error
}

// rpcMethod is one method of a service.
type rpcMethod struct {
	full string // "/service/method"
	name string // the last part of it
	impl any

	unary  grpc.MethodHandler // nil for one that streams
	stream grpc.StreamHandler // nil for one that does not
	info   grpc.StreamServerInfo

	// Those of the deployment, chained; nil for none.
	aroundUnary  grpc.UnaryServerInterceptor
	aroundStream grpc.StreamServerInterceptor
	stats        []stats.Handler
}

func (s *rpcServices) any() bool { return len(s.infos) > 0 }

// add keeps the service, or what is wrong with it.
func (s *rpcServices) add(desc *grpc.ServiceDesc, impl any) {
	if desc == nil {
		s.faults = append(s.faults, errors.New("gRPC service: no description"))
		return
	}
	if err := s.check(desc, impl); err != nil {
		s.faults = append(s.faults, fmt.Errorf("gRPC service %q: %w", desc.ServiceName, err))
		return
	}
	if s.infos == nil {
		s.infos, s.methods = make(map[string]grpc.ServiceInfo), make(map[string]*rpcMethod)
	}
	info := grpc.ServiceInfo{Metadata: desc.Metadata}
	put := func(m *rpcMethod) {
		m.full, m.impl = "/"+desc.ServiceName+"/"+m.name, impl
		m.info.FullMethod = m.full
		s.methods[m.full] = m
		info.Methods = append(info.Methods, grpc.MethodInfo{
			Name:           m.name,
			IsClientStream: m.info.IsClientStream,
			IsServerStream: m.info.IsServerStream,
		})
	}
	for _, m := range desc.Methods {
		put(&rpcMethod{name: m.MethodName, unary: m.Handler})
	}
	for _, m := range desc.Streams {
		put(&rpcMethod{name: m.StreamName, stream: m.Handler, info: grpc.StreamServerInfo{
			IsClientStream: m.ClientStreams,
			IsServerStream: m.ServerStreams,
		}})
	}
	s.infos[desc.ServiceName] = info
}

// check says what is wrong with a service that is to be added.
func (s *rpcServices) check(desc *grpc.ServiceDesc, impl any) error {
	switch _, taken := s.infos[desc.ServiceName]; {
	case desc.ServiceName == "":
		return errors.New("no name")
	case builtinServices[desc.ServiceName]:
		return errors.New("the proxy serves it itself: take it out")
	case taken:
		return errors.New("registered twice")
	case impl == nil:
		return errors.New("the implementation is nil")
	case desc.HandlerType == nil:
		return errors.New("the description has no HandlerType")
	}
	want := reflect.TypeOf(desc.HandlerType)
	if want.Kind() != reflect.Pointer || want.Elem().Kind() != reflect.Interface {
		return fmt.Errorf("HandlerType %v: want a pointer to the service's interface", want)
	}
	if got := reflect.TypeOf(impl); !got.Implements(want.Elem()) {
		return fmt.Errorf("the implementation %v is no %v", got, want.Elem())
	}
	return checkMethods(desc)
}

func checkMethods(desc *grpc.ServiceDesc) error {
	seen := make(map[string]bool)
	check := func(name string, handled bool) error {
		switch {
		case name == "" || strings.Contains(name, "/"):
			return fmt.Errorf("method %q: want a name without \"/\"", name)
		case seen[name]:
			return fmt.Errorf("method %q: described twice", name)
		case !handled:
			return fmt.Errorf("method %q: no handler", name)
		}
		seen[name] = true
		return nil
	}
	for _, m := range desc.Methods {
		if err := check(m.MethodName, m.Handler != nil); err != nil {
			return err
		}
	}
	for _, m := range desc.Streams {
		if err := check(m.StreamName, m.Handler != nil); err != nil {
			return err
		}
	}
	return nil
}

// checkFor gives every fault. Calls from outside reach the ingress only.
func (s *rpcServices) checkFor(ingress bool) []error {
	faults := slices.Clone(s.faults)
	if !ingress && s.any() {
		faults = append(faults, errors.New("it has gRPC services, which only the ingress of an app can serve"))
	}
	if slices.Contains(s.stats, nil) {
		faults = append(faults, errors.New("WithStatsHandler: nil"))
	}
	for _, i := range s.unary {
		if i == nil {
			faults = append(faults, errors.New("WithUnaryInterceptor: nil"))
		}
	}
	for _, i := range s.stream {
		if i == nil {
			faults = append(faults, errors.New("WithStreamInterceptor: nil"))
		}
	}
	return faults
}

// ready gives each method what is around it. It is called once, when a server is
// built.
func (s *rpcServices) ready() {
	unary, stream := chainUnary(s.unary), chainStream(s.stream)
	for _, m := range s.methods {
		m.aroundUnary, m.aroundStream, m.stats = unary, stream, s.stats
	}
}

// chainUnary makes one interceptor of several, nil of none.
func chainUnary(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(all) <= 1 {
		if len(all) == 0 {
			return nil
		}
		return all[0]
	}
	first, rest := all[0], chainUnary(all[1:])
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return first(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return rest(ctx, req, info, handler)
		})
	}
}

// chainStream makes one interceptor of several, nil of none.
func chainStream(all []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	if len(all) <= 1 {
		if len(all) == 0 {
			return nil
		}
		return all[0]
	}
	first, rest := all[0], chainStream(all[1:])
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return first(srv, stream, info, func(srv any, stream grpc.ServerStream) error {
			return rest(srv, stream, info, handler)
		})
	}
}
