package pluginsdk_test

import (
	"google.golang.org/grpc/mem"
)

// rawMessage is bytes that are sent and received as they are.
type rawMessage []byte

// rawCodec sends rawMessages under protobuf's name.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(rawMessage))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*rawMessage) = data.Materialize()
	return nil
}
