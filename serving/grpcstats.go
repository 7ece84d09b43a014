package serving

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
)

// rpcStats is the stream that a handler sees if there are stats handlers, which get
// from it the events that they get from grpc's own server.
type rpcStats struct {
	grpc.ServerStream

	method *rpcMethod
	user   context.Context // with the values that the handlers have put in
	began  time.Time
	headed bool // the handlers have had the headers; the sender's
}

var _ grpc.ServerStream = (*rpcStats)(nil)

// newRPCStats reports the beginning of a call to the handlers.
func newRPCStats(c *rpc) *rpcStats {
	s := &rpcStats{ServerStream: &c.stream, method: c.method, user: c.stream.user, began: time.Now()}
	header := &stats.InHeader{FullMethod: c.method.full, Header: c.md}
	if from, ok := peer.FromContext(s.user); ok {
		header.RemoteAddr, header.LocalAddr = from.Addr, from.LocalAddr
	}
	for _, h := range c.method.stats {
		s.user = h.TagRPC(s.user, &stats.RPCTagInfo{FullMethodName: c.method.full})
	}
	for _, h := range c.method.stats {
		h.HandleRPC(s.user, header)
		h.HandleRPC(s.user, &stats.Begin{
			BeginTime:      s.began,
			IsClientStream: c.method.info.IsClientStream,
			IsServerStream: c.method.info.IsServerStream,
		})
	}
	return s
}

// Context implements [grpc.ServerStream].
func (s *rpcStats) Context() context.Context { return s.user }

func (s *rpcStats) tell(e stats.RPCStats) {
	for _, h := range s.method.stats {
		h.HandleRPC(s.user, e)
	}
}

// end tells how the handler ended.
func (s *rpcStats) end(err error) {
	s.tell(&stats.OutTrailer{})
	s.tell(&stats.End{BeginTime: s.began, EndTime: time.Now(), Error: err})
}

// SendHeader implements [grpc.ServerStream].
func (s *rpcStats) SendHeader(md metadata.MD) error {
	err := s.ServerStream.SendHeader(md)
	if err == nil {
		s.headers(md)
	}
	return err
}

func (s *rpcStats) headers(md metadata.MD) {
	if !s.headed {
		s.headed = true
		s.tell(&stats.OutHeader{FullMethod: s.method.full, Header: md})
	}
}

// SendMsg implements [grpc.ServerStream].
func (s *rpcStats) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.headers(nil)
		n := messageSize(m)
		s.tell(&stats.OutPayload{Payload: m, Length: n, CompressedLength: n, WireLength: n + frameHeader, SentTime: time.Now()})
	}
	return err
}

// RecvMsg implements [grpc.ServerStream].
func (s *rpcStats) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		n := messageSize(m)
		s.tell(&stats.InPayload{Payload: m, Length: n, CompressedLength: n, WireLength: n + frameHeader, RecvTime: time.Now()})
	}
	return err
}

// frameHeader is what gRPC puts before each message, in bytes.
const frameHeader = 5

// messageSize is 0 for what is no message of Protocol Buffers.
func messageSize(m any) int {
	if p, ok := m.(proto.Message); ok {
		return proto.Size(p)
	}
	return 0
}
