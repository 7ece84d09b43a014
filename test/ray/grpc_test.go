package ray

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// rpcService is the service of apps.py, in which every message is a text.
const rpcService = "spans.v1.Plain"

type message = wrapperspb.StringValue

func (s *service) rpcApps(many serving.DeploymentOption, narrow []serving.DeploymentOption) []*serving.App {
	rpc := serving.NewDeployment("Rpc", nil, many)
	rpc.RegisterService(rpcDesc(s.waits), s)
	full := serving.NewDeployment("NarrowRpc", nil, narrow...)
	full.RegisterService(rpcDesc(func(context.Context) error {
		s.holds()
		return nil
	}), s)
	return []*serving.App{
		serving.NewApp("rpc", rpc, serving.WithRoutePrefix("/rpc")),
		serving.NewApp("narrow", full, serving.WithRoutePrefix("/narrow")),
	}
}

// rpcDesc describes the service as generated code would. The deployment implements its
// method Waits.
func rpcDesc(waits func(context.Context) error) *grpc.ServiceDesc {
	unary := func(name string, f func(context.Context, *message) (*message, error)) grpc.MethodDesc {
		return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := new(message)
			if err := decode(in); err != nil {
				return nil, err
			}
			return f(ctx, in)
		}}
	}
	return &grpc.ServiceDesc{
		ServiceName: rpcService,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			unary("Unary", func(_ context.Context, in *message) (*message, error) { return in, nil }),
			unary("Raises", func(context.Context, *message) (*message, error) { return nil, errBoom }),
			unary("SetsCode", func(_ context.Context, in *message) (*message, error) { return nil, status.Error(codeOf(in), "set") }),
			unary("RaisesCode", func(_ context.Context, in *message) (*message, error) {
				return nil, fmt.Errorf("boom: %w", status.Error(codeOf(in), "set"))
			}),
			unary("Waits", func(ctx context.Context, in *message) (*message, error) { return in, waits(ctx) }),
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "Stream", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error { return count(stream, nil) }},
			{StreamName: "Breaks", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error { return count(stream, errBoom) }},
			{StreamName: "Collect", ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
				if err := readAll(stream, func(*message) error { return nil }); err != nil {
					return err
				}
				return stream.SendMsg(wrapperspb.String("ok"))
			}},
			{StreamName: "Chat", ServerStreams: true, ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
				return readAll(stream, func(in *message) error { return stream.SendMsg(in) })
			}},
		},
	}
}

// codeOf gives the code whose name is in.
func codeOf(in *message) (c codes.Code) {
	if err := c.UnmarshalJSON([]byte(strconv.Quote(in.GetValue()))); err != nil {
		return codes.Unknown
	}
	return c
}

// count answers the one message of a client with three, and then with err.
func count(stream grpc.ServerStream, err error) error {
	if err := stream.RecvMsg(new(message)); err != nil {
		return err
	}
	for i := range 3 {
		if err := stream.SendMsg(wrapperspb.String(strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return err
}

// readAll reads messages, of a client or a server, to their end.
func readAll(stream interface{ RecvMsg(m any) error }, each func(*message) error) error {
	for {
		in := new(message)
		if err := stream.RecvMsg(in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(in); err != nil {
			return err
		}
	}
}

// rpc makes a call and returns its code.
func (s *stage) rpc(what sent) seen {
	s.t.Helper()
	return seen{Code: status.Code(s.call(s.t.Context(), what.ID, what))}
}

// rpcLeave cancels its call when it has come to where it waits.
func (s *stage) rpcLeave(what sent) seen {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	var got seen
	var gone sync.WaitGroup
	gone.Go(func() { got.Code = status.Code(s.call(ctx, what.ID, what)) })
	servingtest.Receive(s.t, "the method", s.service.entered)
	cancel()
	gone.Wait()
	return got
}

func (s *stage) call(ctx context.Context, id string, what sent) error {
	pairs := []string{"application", what.App, "request_id", id}
	for key, value := range what.Headers {
		pairs = append(pairs, key, value)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
	method, say := "/"+rpcService+"/"+what.Method, wrapperspb.String(what.Say)
	if what.Kind == "unary" {
		return s.conn.Invoke(ctx, method, say, new(message))
	}
	desc := &grpc.StreamDesc{ServerStreams: what.Kind != "collect", ClientStreams: what.Kind != "stream"}
	stream, err := s.conn.NewStream(ctx, desc, method)
	if err != nil {
		return err
	}
	messages := 1
	if desc.ClientStreams {
		messages = 3
	}
	for range messages {
		if err := stream.SendMsg(say); err != nil {
			break // the answer has the error
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return readAll(stream, func(*message) error { return nil })
}
