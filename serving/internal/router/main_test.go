package router

import (
	"context"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer returns a server without proxies.
func newServer(t *testing.T, log *slog.Logger) *Shared {
	base, cancel := context.WithCancel(context.Background())
	s := &Shared{
		Base:    base,
		Counter: inflight.NewCounter(),
		Workers: new(inflight.Workers),
		Metrics: metrics.New(),
		Tracer:  spans.New(tracing.Off()),
		Log:     accesslog.Log{Logger: log},
	}
	t.Cleanup(func() { cancel(); s.Workers.Close() })
	return s
}
