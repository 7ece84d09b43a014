package host

import (
	"context"

	"github.com/servetrace/servetrace/host/internal/supervise"
)

// Supervisor returns the supervisor of a Host. A test may replace its Connect before Start.
func (h *Host) Supervisor() *supervise.Supervisor { return h.sup }

// Seal makes a batch of the spans that have ended.
func (h *Host) Seal() { h.pipeline.Flush() }

// InspectOnly is Inspect with launch for a Host with one plugin.
func (h *Host) InspectOnly(ctx context.Context) Inspection {
	return h.cfg.inspect(ctx, h.plugins[0], true, false)
}
