package sink

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// message is an encoded message.
type message struct{ data []byte }

// rawCodec decodes nothing: the sink only counts.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return proto.Name }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*message).data)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*message).data = data.Materialize() //nolint:misspell // receiveGRPC passes no other type
	return nil
}

// receiveGRPC receives a call of any service.
func (t *receiver) receiveGRPC(_ any, stream grpc.ServerStream) error {
	var request message
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	spans, err := otlpwire.CountSpans(request.data)
	t.spans.Add(uint64(spans)) //nolint:gosec // a count; before the answer
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return stream.SendMsg(&message{})
}
