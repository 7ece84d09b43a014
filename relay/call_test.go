package relay

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestCallWithoutHandler begins calls whose deadlines end before gRPC calls the handler, so
// that gRPC answers them itself. Their bytes are no longer held.
func TestCallWithoutHandler(t *testing.T) {
	all := newConnections(Config{}.withDefaults(), func() {}, slog.New(slog.DiscardHandler))
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	c := all.admit(near, "grpc")
	t.Cleanup(func() { _ = c.Close() })
	from := peer.NewContext(t.Context(), &peer.Peer{Addr: c.RemoteAddr()})
	held := func() (bytes int64, requests int) {
		all.mu.Lock()
		defer all.mu.Unlock()
		return all.held, c.busy
	}
	for range 100 {
		ctx, cancel := context.WithTimeout(from, time.Hour)
		if _, err := beginCall(ctx, &tap.Info{FullMethodName: wire.ExportMethod}); err != nil {
			t.Fatal(err)
		}
		all.received(c, 1000)
		if bytes, requests := held(); bytes != 1000 || requests != 1 {
			t.Fatalf("%d bytes of %d requests are held, want 1000 of one", bytes, requests)
		}
		cancel()
		testplugin.WaitFor(t, "the end of the call", func() bool {
			bytes, requests := held()
			return bytes == 0 && requests == 0
		})
	}
}

// TestPlacesOfDecompression: one sender with large requests does not hold up all others,
// also on a machine with few processors.
func TestPlacesOfDecompression(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for procs, want := range map[int]int{1: 2, 2: 2, 3: 3, 64: 4} {
		runtime.GOMAXPROCS(procs)
		if got := cap(newDecoder(1).unzipping); got != want {
			t.Errorf("%d processors: %d places, want %d", procs, got, want)
		}
	}
}

// TestEndedCallIsNotDecompressed: a call that has ended waits for no place of decompression.
func TestEndedCallIsNotDecompressed(t *testing.T) {
	d := newDecoder(1 << 10)
	for range cap(d.unzipping) {
		d.unzipping <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := grpcService{service: &service{decoder: d}}
	if _, err := s.decompressed(ctx, []byte{0x1f, 0x8b}); status.Code(err) != codes.Unavailable {
		t.Errorf("error %v, want UNAVAILABLE", err)
	}
}
