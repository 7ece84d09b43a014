// Package supervise starts each plugin, sends it the batches of its queue, checks its
// health, starts it again, and replaces it without a loss.
//
//  1. A Supervisor makes a Plugin for each entry of the list. Plugin.Run begins a life,
//     sends it batches, and begins the next life, with backoff (plugin.go).
//  2. A life is one process, or one connection to a plugin that another program has
//     started (life.go). It has a plan from settings and files (plan.go). It is
//     connected (connect.go), described (describe.go) and configured (configure.go).
//  3. The sender of a life takes items from the lane of the queue, calls the plugin,
//     and settles each item with the answer (sender.go). A plugin that does not answer
//     health checks is killed (health.go).
//  4. A crash goes to the log, and to a file if Settings.CrashDir is set (crash.go,
//     crashfiles.go). The breaker detects a plugin that crashes too often (breaker.go).
//     A batch that the plugin crashes on is quarantined by package pipeline.
//  5. A Reload, or a changed file (filewatch.go), puts a new process beside the old one
//     (reload.go, upgrade.go) and on probation (trial.go).
//  6. pluginStatus is the only type that changes the state (state.go, status.go).
//
// The package decides when a batch is sent. Package pipeline chooses the batch and
// keeps the accounting.
//
// Open plugin.go first, then life.go, sender.go, health.go, crash.go, status.go and
// upgrade.go.
package supervise

import (
	"context"
	"log/slog"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/stdio"
)

// The variables that this package names in errors and log lines.
const (
	EnvExportTimeout = "SERVE_TRACING_EXPORT_TIMEOUT" // if unset: OTEL_BSP_EXPORT_TIMEOUT, in ms
	EnvMaxAge        = "SERVE_TRACING_MAX_AGE"
	EnvStartTimeout  = "SERVE_TRACING_START_TIMEOUT"
	EnvCrashDir      = "SERVE_TRACING_CRASH_DIR"
)

// Settings are the settings of all plugins. Package host documents them.
type Settings struct {
	Plugins       *pluginlist.Settings
	Context       *pluginv1.StaticContext // without the fields that differ between plugins
	AllowWritable bool
	ExportTimeout time.Duration
	MaxAge        time.Duration
	StartTimeout  time.Duration
	StartJitter   time.Duration
	Watch         time.Duration
	QueueBytes    int64
	CrashDir      string
	// Output gets the plugins' standard output, nil for standard output of this process.
	Output *stdio.File
}

// output returns the file for the plugins' standard output, or nil if it is closed.
func (c *Settings) output() *stdio.File {
	if c.Output != nil {
		return c.Output
	}
	return stdio.Stdout()
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

// patience returns the longest wait of a batch for a processor that fails open, and 0
// for any other plugin.
func (c *Settings) patience(e pluginlist.Entry) time.Duration {
	if e.Processor && c.Plugins.FailsOpen(e.Name) {
		return c.ExportTimeout
	}
	return 0
}

// leastMostPause is the lower limit of the longest pause between two starts. It applies if
// MaxAge is small.
const leastMostPause = time.Second

// inTime limits a pause between two starts to half of MaxAge, so that a start comes
// while the waiting batches can still be delivered.
func (c *Settings) inTime(pause time.Duration) time.Duration {
	return min(pause, max(leastMostPause, c.MaxAge/2))
}
