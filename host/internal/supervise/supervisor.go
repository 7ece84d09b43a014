// Package supervise starts each plugin, sends it the batches of its queue, checks its
// health, starts it again after its end, and replaces it without a loss.
//
//  1. A Supervisor makes a Plugin for each entry of the list (supervisor.go). Plugin.Run
//     is a loop: it starts the plugin, sends it batches until it ends (plugin.go), and
//     waits until the next start is due (starts.go).
//  2. A life is one process, or one connection to a plugin that another program has
//     started (life.go). It makes a plan from settings and files (plan.go), connects to
//     the plugin (connect.go), asks for its description (describe.go) and configures it
//     (configure.go).
//  3. The sender of a life takes batches from the plugin's queue, calls the plugin, and
//     settles each batch with the answer (sender.go). It kills a plugin that does not
//     answer health checks (health.go).
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
//
// This package decides when a batch is sent. Package pipeline chooses the batch and
// keeps the accounting.
//
// To follow a plugin from the list to a crash and back, open supervisor.go, plugin.go,
// starts.go, life.go, connect.go, sender.go, health.go and crash.go in this order, and
// after them starts.go again, from awaitNext. Then open status.go and upgrade.go.
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

// leastMostPause is the lower limit of the longest pause between two starts. It applies if
// MaxAge is small.
const leastMostPause = time.Second

// inTime shortens a pause between two starts to half of MaxAge, if it is longer. So the
// next start comes while the waiting batches are young enough to be delivered.
func (c *Settings) inTime(pause time.Duration) time.Duration {
	return min(pause, max(leastMostPause, c.MaxAge/2))
}
