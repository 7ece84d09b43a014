package grpcproxy

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

// Services are the gRPC services of a deployment. They do not change after a proxy was
// built for the deployment. The zero value has no services.
type Services struct {
	// Unary and Stream are the interceptors of the methods, the outermost first. Stats are
	// the stats handlers, which are called in this order.
	Unary  []grpc.UnaryServerInterceptor
	Stream []grpc.StreamServerInterceptor
	Stats  []stats.Handler

	infos   map[string]grpc.ServiceInfo // by the name of the service
	methods map[string]*method          // by the full name, "/service/method"
	faults  []error
}

// method is one method of a service.
type method struct {
	full string // full name, "/service/method"
	name string // the part of full after the last slash
	impl any    // the implementation of the service

	unary  grpc.MethodHandler // handler of a unary method; nil for a streaming method
	stream grpc.StreamHandler // handler of a streaming method; nil for a unary method
	info   grpc.StreamServerInfo

	// The deployment's interceptors, joined to one function; nil if there are none.
	aroundUnary  grpc.UnaryServerInterceptor
	aroundStream grpc.StreamServerInterceptor
	stats        []stats.Handler
}

// Any reports whether the deployment has at least one service.
func (s *Services) Any() bool { return len(s.infos) > 0 }

// Add adds a service. If the service has a fault, Add records it for Faults instead.
func (s *Services) Add(desc *grpc.ServiceDesc, impl any) {
	if desc == nil {
		s.faults = append(s.faults, errors.New("gRPC service: no description"))
		return
	}
	if err := s.check(desc, impl); err != nil {
		s.faults = append(s.faults, fmt.Errorf("gRPC service %q: %w", desc.ServiceName, err))
		return
	}
	if s.infos == nil {
		s.infos, s.methods = make(map[string]grpc.ServiceInfo), make(map[string]*method)
	}
	info := grpc.ServiceInfo{Metadata: desc.Metadata}
	put := func(m *method) {
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
		put(&method{name: m.MethodName, unary: m.Handler})
	}
	for _, m := range desc.Streams {
		put(&method{name: m.StreamName, stream: m.Handler, info: grpc.StreamServerInfo{
			IsClientStream: m.ClientStreams,
			IsServerStream: m.ServerStreams,
		}})
	}
	s.infos[desc.ServiceName] = info
}

// check returns the first fault of a service, or nil if it can be added.
func (s *Services) check(desc *grpc.ServiceDesc, impl any) error {
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

// Faults returns the faults of the services, the interceptors and the stats handlers.
// ingress reports whether the deployment is the ingress of its app. In another deployment a
// service is a fault, because clients can call only the ingress.
func (s *Services) Faults(ingress bool) []error {
	faults := slices.Clone(s.faults)
	if !ingress && s.Any() {
		faults = append(faults, errors.New("it has gRPC services, which only the ingress of an app can serve"))
	}
	if slices.Contains(s.Stats, nil) {
		faults = append(faults, errors.New("WithStatsHandler: nil"))
	}
	if slices.ContainsFunc(s.Unary, func(i grpc.UnaryServerInterceptor) bool { return i == nil }) {
		faults = append(faults, errors.New("WithUnaryInterceptor: nil"))
	}
	if slices.ContainsFunc(s.Stream, func(i grpc.StreamServerInterceptor) bool { return i == nil }) {
		faults = append(faults, errors.New("WithStreamInterceptor: nil"))
	}
	return faults
}

// chain copies the interceptors and the stats handlers to each method. It is called once,
// when a proxy is built.
func (s *Services) chain() {
	unary, stream := chainUnary(s.Unary), chainStream(s.Stream)
	for _, m := range s.methods {
		m.aroundUnary, m.aroundStream, m.stats = unary, stream, s.Stats
	}
}

// chainUnary joins interceptors to one, of which all[0] is the outermost. It returns nil if
// there are none.
func chainUnary(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(all) == 0 {
		return nil
	}
	outer, inner := all[0], chainUnary(all[1:])
	if inner == nil {
		return outer
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return outer(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return inner(ctx, req, info, handler)
		})
	}
}

// chainStream joins interceptors to one, of which all[0] is the outermost. It returns nil if
// there are none.
func chainStream(all []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	if len(all) == 0 {
		return nil
	}
	outer, inner := all[0], chainStream(all[1:])
	if inner == nil {
		return outer
	}
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return outer(srv, stream, info, func(srv any, stream grpc.ServerStream) error {
			return inner(srv, stream, info, handler)
		})
	}
}
