package wire

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Outgoing is an encoded message to be sent. Marshal calls Buffers when gRPC is sure to
// take the buffers. gRPC frees each buffer after use. If the call fails earlier, Buffers
// is never called. If Buffers is nil, the message is empty.
type Outgoing struct{ Buffers func() mem.BufferSlice }

// Incoming is a received message, not decoded. The receiver owns Data.
type Incoming struct{ Data []byte }

// Lent is a received message, not decoded, in a buffer of gRPC. The receiver must call
// Buffer.Free after its last use.
type Lent struct{ Buffer mem.Buffer }

// Codec passes Outgoing, Incoming and Lent through unchanged and leaves every other
// message to gRPC's protobuf codec. It uses the name "proto", so that the peer needs no
// special codec. It is safe for concurrent use.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name returns the name of gRPC's protobuf codec.
func (Codec) Name() string { return proto.Name }

// Marshal returns the buffers of an Outgoing, or v encoded as protobuf.
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

// Unmarshal copies data into an Incoming, lends it to a Lent, or decodes it as protobuf.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch in := v.(type) {
	case *Incoming:
		in.Data = data.Materialize()
		return nil
	case *Lent:
		in.Buffer = data.MaterializeToBuffer(Pool)
		return nil
	}
	return encoding.GetCodecV2(proto.Name).Unmarshal(data, v)
}

// Pool has the buffers of a server's received frames and messages. A buffer has at most
// twice the size of its frame or message, whatever sizes the sender chooses.
var Pool = newPool()

// mostPooled is the largest buffer that Pool keeps, as a power of two: 4 MiB.
const mostPooled = 22

func newPool() mem.BufferPool {
	var sizes []uint8
	for exponent := uint8(3); exponent <= mostPooled; exponent++ {
		sizes = append(sizes, exponent)
	}
	pool, err := mem.NewBinaryTieredBufferPool(sizes...)
	if err != nil { // cannot happen: every int can hold these sizes
		pool = mem.NopBufferPool{}
	}
	return boundedPool{pool}
}

// boundedPool keeps no buffers that are larger than its sizes.
type boundedPool struct{ mem.BufferPool }

// Put implements [mem.BufferPool].
func (p boundedPool) Put(buffer *[]byte) {
	if cap(*buffer) <= 1<<mostPooled {
		p.BufferPool.Put(buffer)
	}
}
