package grpcproxy

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
)

// statsStream is the stream that a method sees if its deployment has stats handlers. It
// reports to the stats handlers the events that grpc's own server would report.
type statsStream struct {
	grpc.ServerStream

	method *method
	user   context.Context // context of the handler, with the values that the stats handlers have added
	began  time.Time
	headed bool // the stats handlers have got the event OutHeader; used only by the goroutine that sends
}

var _ grpc.ServerStream = (*statsStream)(nil)

// newStatsStream returns the stream of a call, and reports the beginning of the call to the
// stats handlers.
func newStatsStream(c *call) *statsStream {
	s := &statsStream{ServerStream: &c.stream, method: c.method, user: c.stream.user, began: time.Now()}
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
func (s *statsStream) Context() context.Context { return s.user }

func (s *statsStream) report(e stats.RPCStats) {
	for _, h := range s.method.stats {
		h.HandleRPC(s.user, e)
	}
}

func (s *statsStream) end(err error) {
	s.report(&stats.OutTrailer{})
	s.report(&stats.End{BeginTime: s.began, EndTime: time.Now(), Error: err})
}

// SendHeader implements [grpc.ServerStream].
func (s *statsStream) SendHeader(md metadata.MD) error {
	err := s.ServerStream.SendHeader(md)
	if err == nil {
		s.headers(md)
	}
	return err
}

func (s *statsStream) headers(md metadata.MD) {
	if !s.headed {
		s.headed = true
		s.report(&stats.OutHeader{FullMethod: s.method.full, Header: md})
	}
}

// SendMsg implements [grpc.ServerStream].
func (s *statsStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.headers(nil)
		n := messageSize(m)
		s.report(&stats.OutPayload{Payload: m, Length: n, CompressedLength: n, WireLength: n + frameHeader, SentTime: time.Now()})
	}
	return err
}

// RecvMsg implements [grpc.ServerStream].
func (s *statsStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		n := messageSize(m)
		s.report(&stats.InPayload{Payload: m, Length: n, CompressedLength: n, WireLength: n + frameHeader, RecvTime: time.Now()})
	}
	return err
}

// frameHeader is the size of the header that gRPC puts before each message, in bytes.
const frameHeader = 5

// messageSize returns the encoded size of a message of Protocol Buffers, in bytes. It returns
// 0 for other messages.
func messageSize(m any) int {
	if p, ok := m.(proto.Message); ok {
		return proto.Size(p)
	}
	return 0
}
