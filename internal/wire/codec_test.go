package wire_test

import (
	"bytes"
	"net"
	"path/filepath"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/internal/wire"
)

func TestCodecPassesBytes(t *testing.T) {
	want := []byte("anything at all")
	out := &wire.Outgoing{Buffers: func() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(want)} }}
	data, err := wire.Codec{}.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	var in wire.Incoming
	if err := (wire.Codec{}).Unmarshal(data, &in); err != nil || !bytes.Equal(in.Data, want) {
		t.Errorf("read %q, %v; want %q", in.Data, err, want)
	}
	data.Free()
	empty, err := wire.Codec{}.Marshal(&wire.Outgoing{})
	if err != nil || empty.Len() != 0 {
		t.Errorf("an empty message is %d bytes, %v", empty.Len(), err)
	}
}

// TestLentHasTheMessageOnly reuses the buffer of a longer message.
func TestLentHasTheMessageOnly(t *testing.T) {
	for _, want := range []string{"a long message", "short", "a much longer message than both"} {
		half := len(want) / 2
		var in wire.Lent
		err := wire.Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(want[:half]), mem.SliceBuffer(want[half:])}, &in)
		if err != nil || string(in.Buffer.ReadOnlyData()) != want {
			t.Errorf("read %q, %v; want %q", in.Buffer.ReadOnlyData(), err, want)
		}
		in.Buffer.Free()
	}
}

// TestPoolBoundsMemory: a buffer has at most twice the size that was asked for, if it is a
// frame's, also after larger ones came back.
func TestPoolBoundsMemory(t *testing.T) {
	const frame = 16 << 10
	for _, length := range []int{0, 1, 1025, frame / 2, frame/2 + 1, frame, frame + 1, 1 << 20, 64 << 20} {
		for range 3 {
			buffer := wire.Pool.Get(length)
			if len(*buffer) != length || length <= frame && cap(*buffer) > max(2*length, 8) {
				t.Errorf("%d bytes: a buffer with %d of %d", length, len(*buffer), cap(*buffer))
			}
			*buffer = (*buffer)[:length/2] // gRPC cuts the padding off
			wire.Pool.Put(buffer)
		}
	}
}

func TestCodecLeavesMessagesToProtobuf(t *testing.T) {
	want := &coltracepb.ExportTraceServiceResponse{PartialSuccess: &coltracepb.ExportTracePartialSuccess{RejectedSpans: 7}}
	data, err := wire.Codec{}.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	got := &coltracepb.ExportTraceServiceResponse{}
	if err := (wire.Codec{}).Unmarshal(data, got); err != nil || !proto.Equal(want, got) {
		t.Errorf("read %v, %v; want %v", got, err, want)
	}
	if (wire.Codec{}).Name() != "proto" {
		t.Errorf("the codec calls itself %q", wire.Codec{}.Name())
	}
}

func TestPeerIsSelf(t *testing.T) {
	lis, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	accepted := make(chan error, 1)
	go func() {
		conn, err := lis.Accept()
		if err == nil {
			defer func() { _ = conn.Close() }()
			_, _, err = wire.PeerCredentials().ServerHandshake(conn)
		}
		accepted <- err
	}()
	conn, err := net.Dial("unix", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, info, err := wire.PeerCredentials().ClientHandshake(t.Context(), "", conn); err != nil || info.AuthType() != "peer-uid" {
		t.Errorf("client: %v", err)
	}
	if err := <-accepted; err != nil {
		t.Errorf("server: %v", err)
	}
	one, other := net.Pipe()
	defer func() { _ = one.Close(); _ = other.Close() }()
	if _, _, err := wire.PeerCredentials().ClientHandshake(t.Context(), "", one); err == nil {
		t.Error("a peer that is not on a Unix socket was let in")
	}
}
