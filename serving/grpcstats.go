package serving

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
)

// rpcStats is a call as its handler sees it where there are stats handlers: it
// tells them what grpc's own server would.
type rpcStats struct {
	*rpc

	handlers []stats.Handler
	began    time.Time
	headed   bool // whether they were told of the headers; the sender's
}

var _ grpc.ServerStream = (*rpcStats)(nil)

// newRPCStats tells that c begins. What the handlers put into its context is in
// that of the user's code.
func newRPCStats(c *rpc) *rpcStats {
	s := &rpcStats{rpc: c, handlers: c.method.stats, began: time.Now()}
	header := &stats.InHeader{FullMethod: c.full, Header: c.md}
	if from, ok := peer.FromContext(c.user); ok {
		header.RemoteAddr, header.LocalAddr = from.Addr, from.LocalAddr
	}
	for _, h := range s.handlers {
		c.user = h.TagRPC(c.user, &stats.RPCTagInfo{FullMethodName: c.full})
	}
	for _, h := range s.handlers {
		h.HandleRPC(c.user, header)
		h.HandleRPC(c.user, &stats.Begin{
			BeginTime:      s.began,
			IsClientStream: c.method.info.IsClientStream,
			IsServerStream: c.method.info.IsServerStream,
		})
	}
	return s
}

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
	err := s.rpc.SendHeader(md)
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
	err := s.rpc.SendMsg(m)
	if err == nil {
		s.headers(nil)
		n := messageSize(m)
		s.tell(&stats.OutPayload{Payload: m, Length: n, CompressedLength: n, WireLength: n + frameHeader, SentTime: time.Now()})
	}
	return err
}

// RecvMsg implements [grpc.ServerStream].
func (s *rpcStats) RecvMsg(m any) error {
	err := s.rpc.RecvMsg(m)
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
