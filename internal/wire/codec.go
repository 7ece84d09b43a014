package wire

import (
	"bytes"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Outgoing is an encoded message to send. Codec.Marshal calls Buffers only when gRPC will take
// the buffers, which gRPC frees after use. If a call fails before that, Buffers is not called.
// If Buffers is nil, the message is empty.
type Outgoing struct{ Buffers func() mem.BufferSlice }

// Incoming is a received message that is not decoded. The receiver owns Data.
type Incoming struct{ Data []byte }

// Lent is a received message that is not decoded, in a buffer of gRPC. The receiver must call
// Buffer.Free after its last use of the message.
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
		in.Data = join(data)
		return nil
	case *Lent:
		in.Buffer = data.MaterializeToBuffer(Pool)
		return nil
	}
	return encoding.GetCodecV2(proto.Name).Unmarshal(data, v)
}

// join returns the bytes of data in a new slice. Unlike the method of BufferSlice, it does
// not zero the new slice before it copies.
func join(data mem.BufferSlice) []byte {
	pieces := make([][]byte, len(data))
	for i, piece := range data {
		pieces[i] = piece.ReadOnlyData()
	}
	return bytes.Join(pieces, nil)
}

// Pool has the buffers of a server's received frames and messages. Unlike gRPC's own
// pool, it does not clear a buffer, because a frame or a message fills its buffer.
var Pool mem.BufferPool = new(bufferPool)

// bufferPool implements [mem.BufferPool]. It keeps no small buffers. So no frame gets a buffer
// of more than twice its size, even if a sender chooses small frames.
type bufferPool struct{ frames, messages sync.Pool }

const (
	// frameBytes is the size of the largest frame of gRPC, in bytes. It is also the size of the
	// kept buffers for frames, which are used only for frames of more than half this size.
	frameBytes = 16 << 10
	// maxPooledBytes is the size of the largest buffer that a bufferPool keeps, in bytes.
	maxPooledBytes = 4 << 20
)

// Get returns a buffer of the given length. It implements [mem.BufferPool].
func (p *bufferPool) Get(length int) *[]byte {
	switch {
	case length > frameBytes:
		return get(&p.messages, length, length)
	case length > frameBytes/2:
		return get(&p.frames, length, frameBytes)
	}
	small := make([]byte, length)
	return &small
}

// get returns a buffer with a length from a pool. If the pool has no buffer that is large enough,
// it returns a new buffer with a capacity of room bytes.
func get(from *sync.Pool, length, room int) *[]byte {
	buffer, ok := from.Get().(*[]byte)
	if !ok || cap(*buffer) < length {
		fresh := make([]byte, length, room)
		return &fresh
	}
	*buffer = (*buffer)[:length]
	return buffer
}

// Put keeps a buffer for a later Get, if its size is right. It implements [mem.BufferPool].
func (p *bufferPool) Put(buffer *[]byte) {
	switch size := cap(*buffer); {
	case size == frameBytes:
		p.frames.Put(buffer)
	case size > frameBytes && size <= maxPooledBytes:
		p.messages.Put(buffer)
	}
}
