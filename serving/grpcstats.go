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

// rpcStats is the stream that a handler sees if there are stats handlers: it tells
// them what grpc's own server would.
type rpcStats struct {
	*rpcStream

	full     string
	handlers []stats.Handler
	user     context.Context // with what the handlers have put in
	began    time.Time
	headed   bool // whether they were told of the headers; the sender's
}

var _ grpc.ServerStream = (*rpcStats)(nil)

// newRPCStats tells the handlers that a call begins.
func newRPCStats(r *rpcRun) *rpcStats {
	s := &rpcStats{rpcStream: r.stream, full: r.method.full, handlers: r.method.stats, user: r.stream.user, began: time.Now()}
	header := &stats.InHeader{FullMethod: s.full, Header: r.md}
	if from, ok := peer.FromContext(s.user); ok {
		header.RemoteAddr, header.LocalAddr = from.Addr, from.LocalAddr
	}
	for _, h := range s.handlers {
		s.user = h.TagRPC(s.user, &stats.RPCTagInfo{FullMethodName: s.full})
	}
	for _, h := range s.handlers {
		h.HandleRPC(s.user, header)
		h.HandleRPC(s.user, &stats.Begin{
			BeginTime:      s.began,
			IsClientStream: s.info.IsClientStream,
			IsServerStream: s.info.IsServerStream,
		})
	}
	return s
}

// Context implements [grpc.ServerStream].
func (s *rpcStats) Context() context.Context { return s.user }

func (s *rpcStats) tell(e stats.RPCStats) {
	for _, h := range s.handlers {
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
	err := s.rpcStream.SendHeader(md)
	if err == nil {
		s.headers(md)
	}
	return err
}

func (s *rpcStats) headers(md metadata.MD) {
	if !s.headed {
		s.headed = true
		s.tell(&stats.OutHeader{FullMethod: s.full, Header: md})
	}
}

// SendMsg implements [grpc.ServerStream].
func (s *rpcStats) SendMsg(m any) error {
	err := s.rpcStream.SendMsg(m)
	if err == nil {
		s.headers(nil)
		n := messageSize(m)
		s.tell(&stats.OutPayload{Payload: m, Length: n, CompressedLength: n, WireLength: n + frameHeader, SentTime: time.Now()})
	}
	return err
}

// RecvMsg implements [grpc.ServerStream].
func (s *rpcStats) RecvMsg(m any) error {
	err := s.rpcStream.RecvMsg(m)
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
