package slowdisk_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host/internal/slowdisk"
)

func TestLookThatHangsIsLeftBehind(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	hangs := make(chan struct{})
	defer close(hangs)
	if _, err := slowdisk.Aside(ctx, func() (bool, error) { <-hangs; return true, nil }); !errors.Is(err, slowdisk.ErrSilent) {
		t.Errorf("a look that hangs gave %v", err)
	}
	why := errors.New("the host shuts down")
	stopped, stop := context.WithCancelCause(t.Context())
	stop(why)
	if _, err := slowdisk.Aside(stopped, func() (bool, error) { <-hangs; return true, nil }); !errors.Is(err, why) {
		t.Errorf("a look that was called off gave %v", err)
	}
	if ok, err := slowdisk.Aside(t.Context(), func() (bool, error) { return true, nil }); !ok || err != nil {
		t.Errorf("a look gave %t, %v", ok, err)
	}
}
