package wire_test

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// TestProcessMessages: both ends agree with protobuf, in both directions.
func TestProcessMessages(t *testing.T) {
	content := bytes.Repeat([]byte("batch"), 100)
	patch := &pluginv1.Patch{Splices: []*pluginv1.Splice{{Keep: 7, Insert: content}}}
	encodedPatch := encodeProcess(t, patch)
	later := protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), 5) // a field of a later contract
	for _, c := range []struct {
		name    string
		message proto.Message
		fields  []wire.ProcessField
		field   wire.ProcessField
		content []byte
	}{
		{"request", &pluginv1.ProcessRequest{Batch: content}, []wire.ProcessField{wire.RequestBatch}, wire.RequestBatch, content},
		{"empty request", &pluginv1.ProcessRequest{}, []wire.ProcessField{wire.RequestBatch}, 0, nil},
		{"patch", &pluginv1.ProcessResponse{Result: &pluginv1.ProcessResponse_Patch{Patch: patch}}, []wire.ProcessField{wire.ResponsePatch, wire.ResponseBatch}, wire.ResponsePatch, encodedPatch},
		{"batch", &pluginv1.ProcessResponse{Result: &pluginv1.ProcessResponse_Batch{Batch: content}}, []wire.ProcessField{wire.ResponsePatch, wire.ResponseBatch}, wire.ResponseBatch, content},
		{"empty batch", &pluginv1.ProcessResponse{Result: &pluginv1.ProcessResponse_Batch{}}, []wire.ProcessField{wire.ResponsePatch, wire.ResponseBatch}, wire.ResponseBatch, nil},
		{"unchanged", &pluginv1.ProcessResponse{}, []wire.ProcessField{wire.ResponsePatch, wire.ResponseBatch}, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			encoded := encodeProcess(t, c.message)
			field, got, err := wire.ReadProcess(slices.Concat(later, encoded, later), c.fields...)
			if err != nil || field != c.field || !bytes.Equal(got, c.content) {
				t.Errorf("field %d with %d bytes, %v; want %d with %d", field, len(got), err, c.field, len(c.content))
			}
			if c.field == 0 {
				return
			}
			if own := append(wire.ProcessHead(c.field, len(c.content)), c.content...); !bytes.Equal(own, encoded) {
				t.Errorf("wrote %x, want %x", own, encoded)
			}
		})
	}
	if _, _, err := wire.ReadProcess([]byte{0x0a, 0x05, 0x01}, wire.RequestBatch); err == nil {
		t.Error("a field past the end was accepted")
	}
	if _, _, err := wire.ReadProcess([]byte{0x10, 0x05, 0xff}, wire.RequestBatch); err == nil {
		t.Error("a malformed tag was accepted")
	}
}

func encodeProcess(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
