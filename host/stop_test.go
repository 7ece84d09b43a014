package host

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestShutdownDuringTheEndOfAPluginOfNoUse: a plugin that refused its
// configuration and ends slowly does not hold a Shutdown that has less time.
func TestShutdownDuringTheEndOfAPluginOfNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := fakeHost(t, func(int) (*fakePlugin, error) {
			plugin := newFakePlugin(nil)
			plugin.configure = status.Error(codes.InvalidArgument, "no token")
			plugin.slowEnd = true
			return plugin, nil
		}, nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if err := h.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("Shutdown took %v of 100ms", took)
		}
	})
}
