// Package supervise starts each plugin, sends it the batches of its queue, checks its
// health, starts it again after its end, and replaces it without a loss.
//
//  1. A Supervisor has the settings, and makes a Plugin for each entry of the list
//     (supervisor.go). Plugin.Run is a loop (plugin.go). In it, starts begins a life,
//     Plugin.serve sends batches until the life ends, and starts waits until the next
//     start is due (starts.go).
//  2. A life is one process, or one connection to a plugin that another program has
//     started (life.go). It makes a plan from settings and files (plan.go), connects to
//     the plugin through package launch (connect.go), asks for its description
//     (describe.go) and configures it (configure.go).
//  3. The sender of a life takes batches from the plugin's queue through a lane, calls the
//     plugin, and settles each batch with the answer (sender.go). It kills a plugin that
//     does not answer health checks (health.go).
//  4. A crash goes to the log, and to a file if Settings.CrashDir is set (crash.go,
//     crashfiles.go). Then the loop of step 1 chooses the pause before the next start
//     (starts.go). If the plugin crashes too often, a circuit breaker opens, and the
//     pause is long (breaker.go). If one batch causes the crashes, package pipeline
//     quarantines it.
//  5. A Reload, or a changed file (filewatch.go), starts a new process beside the old
//     one (reload.go, upgrade.go). The new process is on probation until it has
//     delivered some batches (trial.go).
//  6. Each step reports to pluginStatus, which alone changes the plugin's state
//     (state.go, status.go).
//  7. Plugin.Shutdown waits for the rest of the batches and ends the loop. life.shutdown
//     calls the plugin's Shutdown, and life.end ends the process.
//
// This package decides when a batch is sent. Package pipeline chooses the batch and
// keeps the accounting. Its files queue.go, lane.go and poison.go have the functions that
// this package calls.
//
// To follow a plugin from the list to a crash and back, open supervisor.go, plugin.go,
// starts.go (to runLife), life.go, plan.go, connect.go, describe.go, configure.go,
// sender.go, health.go and crash.go in this order. Return to life.go for its end, and to
// starts.go from awaitNext. Then open state.go, status.go and upgrade.go. In all files x is
// a Plugin, and l a life.
//
// Six small files serve the others. policy.go has the pauses and texts of started and of
// attached plugins, and startlog.go holds back output that a failing start repeats.
// lostlines.go counts output that was not logged, opencalls.go has the calls in progress,
// list.go is a list with a mutex, and processor.go has the calls to processors.
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
	EnvExportTimeout = "SERVE_TRACING_EXPORT_TIMEOUT" // OTEL_BSP_EXPORT_TIMEOUT, in ms, counts if this is not set
	EnvMaxAge        = "SERVE_TRACING_MAX_AGE"
	EnvStartTimeout  = "SERVE_TRACING_START_TIMEOUT"
	EnvCrashDir      = "SERVE_TRACING_CRASH_DIR"
)

// Settings are the settings of all plugins. Package host documents them.
type Settings struct {
	Plugins       *pluginlist.Settings
	Context       *pluginv1.StaticContext // Settings.context adds the fields that differ between plugins
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

// Supervisor makes the plugins of one Host, and has the settings and files that they
// share. Safe for concurrent use.
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

// patience returns the longest time that a batch waits for a processor that fails open.
// It returns 0 for all other plugins.
func (c *Settings) patience(e pluginlist.Entry) time.Duration {
	if e.Processor && c.Plugins.FailsOpen(e.Name) {
		return c.ExportTimeout
	}
	return 0
}
