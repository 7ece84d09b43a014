package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/supervise"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

// troubles are the ways in which a plugin can be a bad neighbour.
var troubles = map[string]func(draw func(int) int) (*fakePlugin, error){
	"dead": func(func(int) int) (*fakePlugin, error) { return nil, fmt.Errorf("no such plugin") },
	"hung": func(func(int) int) (*fakePlugin, error) { // answers health checks alone, and gRPC keeps all
		f := newFakePlugin(untilTheEnd)
		f.hold, f.limits = true, &pluginv1.Limits{MaxConcurrency: 64}
		return f, nil
	},
	"silent": func(func(int) int) (*fakePlugin, error) {
		f := newFakePlugin(untilTheEnd)
		f.health = func(ctx context.Context) error { return untilTheEnd(ctx, 0) }
		return f, nil
	},
	"slow": func(draw func(int) int) (*fakePlugin, error) {
		return newFakePlugin(func(context.Context, int) error {
			<-time.After(time.Duration(draw(2000)) * time.Millisecond)
			return nil
		}), nil
	},
	"refuses": func(func(int) int) (*fakePlugin, error) {
		return newFakePlugin(func(context.Context, int) error { return status.Error(codes.PermissionDenied, "403") }), nil
	},
	"down": func(func(int) int) (*fakePlugin, error) {
		return newFakePlugin(func(context.Context, int) error { return status.Error(codes.Unavailable, "503") }), nil
	},
	"crashes": func(draw func(int) int) (*fakePlugin, error) {
		f := newFakePlugin(nil)
		f.export = func(ctx context.Context, _ int) error {
			if draw(3) > 0 {
				return nil
			}
			f.die()
			return errBroken
		}
		return f, nil
	},
	"tiny": func(draw func(int) int) (*fakePlugin, error) { // and slow at it
		f := newFakePlugin(func(context.Context, int) error {
			<-time.After(time.Duration(draw(100)) * time.Millisecond)
			return nil
		})
		f.limits = &pluginv1.Limits{MaxBatchSpans: uint32(1 + draw(20)), MaxConcurrency: 64}
		return f, nil
	},
}

func untilTheEnd(ctx context.Context, _ int) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// TestTroubleOfOneCostsNoOtherASpan runs random plugins in trouble beside a healthy
// plugin, replaces them while they run, and makes far more spans than fit. Promise 3 of
// the design: the bytes stay within the bound, no span is refused, the healthy plugin
// gets all spans, and the accounting always balances.
func TestTroubleOfOneCostsNoOtherASpan(t *testing.T) {
	names := slices.Sorted(maps.Keys(troubles))
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 11))
		var mu sync.Mutex
		draw := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return rng.IntN(n)
		}
		kinds := map[string]string{}
		list := "/fake/healthy"
		for i := range 1 + draw(5) {
			path := fmt.Sprintf("/fake/p%d", i)
			kinds[path] = names[draw(len(names))]
			list += "," + path
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { mixed(t, list, kinds, draw) })
		})
	}
}

func mixed(t *testing.T, list string, kinds map[string]string, draw func(int) int) {
	const bound = 4 << 20
	h, err := host.New(host.Config{Plugins: list, QueueBytes: bound, BatchBytes: 64 << 10, MaxAge: time.Minute, ExportTimeout: time.Second},
		host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	h.Supervisor().Connect = func(_ context.Context, _ *supervise.Settings, p supervise.Plan, _ *slog.Logger) (supervise.Peer, error) {
		kind, bad := kinds[p.Path]
		if !bad {
			return newFakePlugin(func(context.Context, int) error { <-time.After(time.Millisecond); return nil }), nil
		}
		f, err := troubles[kind](draw)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	most, ended := int64(0), uint64(0)
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h)).Tracer("test")
	body := strings.Repeat("x", 1000)
	for range 150 { // some 22 MiB, over a minute
		n := 50 + draw(200)
		for range n {
			_, span := tracer.Start(context.Background(), "s", trace.WithAttributes(attribute.String("body", body)))
			span.End()
		}
		ended += uint64(n)
		<-time.After(time.Duration(draw(800)) * time.Millisecond)
		s := h.Stats()
		most = max(most, s.Bytes)
		if err := s.Check(); err != nil {
			t.Fatalf("%v: %v", kinds, err)
		}
		if draw(60) == 0 { // two links at once
			go func() { _ = h.Reload(t.Context()) }() // some cannot; it ends by its bounds, or the test's
		}
	}
	<-time.After(time.Second)
	synctest.Wait()
	s := h.Stats()
	if most > bound {
		t.Errorf("%v: %d bytes in use, the bound is %d", kinds, most, int64(bound))
	}
	if len(s.Refused) > 0 {
		t.Errorf("%v: spans refused: %v", kinds, s.Refused)
	}
	if x := s.Exporters[0]; x.Delivered != ended {
		t.Errorf("%v: the healthy plugin got %d of %d spans; dropped %v, %d waiting", kinds, x.Delivered, ended, x.Dropped, x.Waiting)
	}
	_ = h.Shutdown(context.Background()) // the other exporters lose the rest
	s = h.Stats()
	if err := s.Check(); err != nil {
		t.Errorf("%v: %v", kinds, err)
	}
	for _, x := range s.Exporters {
		if x.Waiting != 0 || x.InFlight != 0 || x.InFlightBatches != 0 || x.HeldBytes != 0 {
			t.Errorf("%v: %s keeps %d spans after the end: %d in flight, %d bytes", kinds, x.Name, x.Waiting, x.InFlight, x.HeldBytes)
		}
	}
	if s.Bytes != 0 {
		t.Errorf("%v: %d bytes charged after the end", kinds, s.Bytes)
	}
}
