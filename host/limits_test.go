package host_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/supervise"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

// TestPartsAreNotSentAgainWithTheRest: a plugin with limits has had a part of a
// batch when it ends, and the next has no limits.
func TestPartsAreNotSentAgainWithTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var successor *fakePlugin
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			if n > 1 {
				successor = newFakePlugin(func(context.Context, int) error { return nil })
				successor.hold = true
				return successor, nil
			}
			first := newFakePlugin(nil)
			first.limits = &pluginv1.Limits{MaxBatchSpans: 10, MaxConcurrency: 1}
			first.export = func(ctx context.Context, n int) error {
				if n <= 3 {
					return nil
				}
				first.Kill("test")
				<-ctx.Done()
				return status.Error(codes.Unavailable, "error reading from server: EOF")
			}
			return first, nil
		}, nil)
		endSpans(h, 100)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		sent := 0
		for _, b := range successor.held {
			sent += spansIn(t, b.ReadOnlyData())
			b.Free()
		}
		if sent != 70 {
			t.Errorf("%d spans sent to a successor without limits, want the 70 that are left", sent)
		}
		if got := h.Stats(); got.Exporters[0].Delivered != 100 || got.Check() != nil || got.Bytes != 0 {
			t.Errorf("accounting: %+v", got)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestPartsAreCutAgain: the next process of a plugin takes less at a time.
func TestPartsAreCutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var successor *fakePlugin
		h := fakeHost(t, func(n int) (*fakePlugin, error) {
			if n > 1 {
				successor = newFakePlugin(func(context.Context, int) error { return nil })
				successor.limits = &pluginv1.Limits{MaxBatchSpans: 7, MaxConcurrency: 1}
				successor.hold = true
				return successor, nil
			}
			first := newFakePlugin(nil)
			first.limits = &pluginv1.Limits{MaxBatchSpans: 40}
			first.export = func(ctx context.Context, _ int) error {
				first.Kill("test")
				<-ctx.Done()
				return status.Error(codes.Unavailable, "error reading from server: EOF")
			}
			return first, nil
		}, nil)
		endSpans(h, 100)
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		sent := 0
		for _, b := range successor.held {
			n := spansIn(t, b.ReadOnlyData())
			if n > 7 {
				t.Errorf("%d spans at a time for a plugin that takes 7", n)
			}
			sent += n
			b.Free()
		}
		ids := map[string]bool{}
		for _, id := range successor.ids {
			ids[id] = true
		}
		if sent != 100 || len(ids) != len(successor.held) {
			t.Errorf("%d spans in %d calls by %d names, want 100 and a name for each", sent, len(successor.held), len(ids))
		}
		if got := h.Stats(); got.Exporters[0].Delivered != 100 || got.Check() != nil || got.Bytes != 0 {
			t.Errorf("accounting: %+v", got)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestPartsStayWithinTheBound: batches that one exporter still holds whole are
// cut for three others at once.
func TestPartsStayWithinTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 1 << 20
		h, err := host.New(host.Config{Plugins: "/fake/a,/fake/b,/fake/c,/fake/d", QueueBytes: bound, BatchBytes: 32 << 10},
			host.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		up := make(chan struct{})
		h.Supervisor().Connect = func(_ context.Context, _ *supervise.Settings, plan supervise.Plan, _ *slog.Logger) (supervise.Peer, error) {
			<-up
			p := newFakePlugin(func(ctx context.Context, _ int) error {
				<-ctx.Done()
				return status.FromContextError(ctx.Err()).Err()
			})
			p.limits = &pluginv1.Limits{MaxBatchBytes: 16 << 10, MaxConcurrency: 64}
			if plan.Path == "/fake/a" {
				p.limits = nil
			}
			return p, nil
		}
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			endSpans(h, 280)
			h.Seal()
		}
		close(up)
		most := int64(0)
		for range 100 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			most = max(most, h.Stats().Bytes)
		}
		if most > bound {
			t.Errorf("%d bytes charged, more than the %d allowed", most, int64(bound))
		}
		if err := h.Stats().Check(); err != nil {
			t.Error(err)
		}
		if err := h.Shutdown(context.Background()); err == nil {
			t.Error("no error although spans are lost")
		}
	})
}

// spansIn counts the spans of an encoded request.
func spansIn(t *testing.T, data []byte) (n int) {
	t.Helper()
	var req coltracepb.ExportTraceServiceRequest
	if err := proto.Unmarshal(data, &req); err != nil {
		t.Fatal(err)
	}
	for _, rs := range req.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			n += len(ss.GetSpans())
		}
	}
	return n
}
