package relay_test

import (
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/servetrace/servetrace/test/testplugin"
)

// waitForWaiting waits until this many spans wait for the plugin.
func waitForWaiting(t *testing.T, r *rig, n uint64) {
	t.Helper()
	testplugin.WaitFor(t, "spans that wait", func() bool { return r.host.Stats().Exporters[0].Waiting == n })
}

// rawCodec passes bytes through.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
