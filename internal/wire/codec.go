package wire

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Outgoing is an encoded message on its way out. Marshal calls Buffers once it
// is sure that gRPC takes them, and gRPC frees each when it has let go of it; a
// call that fails before never calls it. Nil: an empty message.
type Outgoing struct{ Buffers func() mem.BufferSlice }

// Incoming is a message as it arrived, not decoded. Data is the receiver's to
// keep.
type Incoming struct{ Data []byte }

// Codec passes Outgoing and Incoming untouched and leaves every other message
// to gRPC's protobuf codec. It calls itself "proto", so that the other end
// needs no codec of its own. Safe for concurrent use.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name is that of gRPC's protobuf codec, which is what is on the wire.
func (Codec) Name() string { return proto.Name }

// Marshal gives the buffers of an Outgoing, or v encoded as protobuf.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(*Outgoing)
	switch {
	case !ok:
		return encoding.GetCodecV2(proto.Name).Marshal(v)
	case out.Buffers == nil:
		return nil, nil
	}
	return out.Buffers(), nil
}

// Unmarshal copies data into an Incoming, or decodes it as protobuf.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*Incoming); ok {
		in.Data = data.Materialize()
		return nil
	}
	return encoding.GetCodecV2(proto.Name).Unmarshal(data, v)
}
