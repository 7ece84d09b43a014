package wire

import (
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Outgoing is an encoded message to be sent. Marshal calls Buffers once gRPC is sure to
// take the buffers; gRPC frees each buffer after use. If the call fails earlier,
// Buffers is never called. Nil means an empty message.
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
		in.Buffer = data.MaterializeToBuffer(&lent)
		return nil
	}
	return encoding.GetCodecV2(proto.Name).Unmarshal(data, v)
}

// lent has the buffers of messages that arrive in several frames.
var lent bufferPool

// maxPooledBytes is the largest buffer that a bufferPool keeps.
const maxPooledBytes = 4 << 20

// bufferPool keeps buffers without clearing them, because a message fills its buffer.
// gRPC's own pool clears 1 MiB for each message of more than 32 KiB.
type bufferPool struct{ free sync.Pool }

// Get implements [mem.BufferPool].
func (p *bufferPool) Get(length int) *[]byte {
	buffer, ok := p.free.Get().(*[]byte)
	if !ok || cap(*buffer) < length {
		fresh := make([]byte, length)
		return &fresh
	}
	*buffer = (*buffer)[:length]
	return buffer
}

// Put implements [mem.BufferPool].
func (p *bufferPool) Put(buffer *[]byte) {
	if cap(*buffer) <= maxPooledBytes {
		p.free.Put(buffer)
	}
}
