// Package supervise has the life of each plugin: it starts the plugin, sends it the
// batches of its queue, watches it, starts it again, and replaces it without a loss.
//
//  1. A Supervisor makes a Plugin for each entry of the list. Run is its life: begin a
//     process, serve it, and again, with backoff.
//  2. A life is one process, or one connection to a plugin that another program has
//     started. It is planned from settings and files, connected, described, configured.
//  3. Its sender takes items from the lane of the queue, calls the plugin, and settles
//     each item with the answer. A probe finds a plugin that does not answer.
//  4. An upgrade puts a new process beside the old one and on probation.
//  5. pluginStatus is the only place that changes the state. Crashes go to the log, and
//     to files if they are kept.
//
// The package decides when a batch is sent, and package pipeline decides which batch it
// is and keeps the accounting. It knows no span and no sampler.
//
// Open supervise.go first, then life.go, sender.go, status.go and upgrade.go.
package supervise

import (
	"context"
	"log/slog"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

// Variables that set some of Settings, for log lines and errors.
const (
	EnvExportTimeout = "SERVE_TRACING_EXPORT_TIMEOUT" // else OTEL_BSP_EXPORT_TIMEOUT, ms
	EnvMaxAge        = "SERVE_TRACING_MAX_AGE"
	EnvStartTimeout  = "SERVE_TRACING_START_TIMEOUT"
	EnvCrashDir      = "SERVE_TRACING_CRASH_DIR"
)

// Settings are the settings of all plugins. Package host documents them, with
// defaults.
type Settings struct {
	List          *pluginlist.Settings
	Context       *pluginv1.StaticContext // without the fields of one plugin
	AllowWritable bool
	ExportTimeout time.Duration
	MaxAge        time.Duration
	StartTimeout  time.Duration
	StartJitter   time.Duration
	Watch         time.Duration
	QueueBytes    int64
	CrashDir      string
}

// Supervisor has the parts that the plugins of one Host share. Safe for concurrent use.
type Supervisor struct {
	// Connect connects to a plugin. Tests may replace it before the first start.
	Connect    connector
	cfg        Settings
	log        *slog.Logger
	pipeline   *pipeline.Pipeline
	crashFiles *crashFiles
}

// New returns a Supervisor that takes spans from p.
func New(cfg Settings, p *pipeline.Pipeline, log *slog.Logger) *Supervisor {
	return &Supervisor{Connect: connect, cfg: cfg, log: log, pipeline: p, crashFiles: newCrashFiles(&cfg, log)}
}

// Wait blocks until all files about crashes are written, or ctx ends.
func (s *Supervisor) Wait(ctx context.Context) { s.crashFiles.wait(ctx) }

// leastMostPause is the lower limit of the longest pause between two starts, for a
// small MaxAge.
const leastMostPause = time.Second

// inTime limits a pause between two starts to half of MaxAge, so that a start comes
// while the waiting batches can still be delivered.
func (c *Settings) inTime(pause time.Duration) time.Duration {
	return min(pause, max(leastMostPause, c.MaxAge/2))
}
