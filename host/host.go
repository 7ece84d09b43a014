package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/supervise"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	"github.com/servetrace/servetrace/internal/stdio"
)

// Host sends the spans of a program to exporter plugins. Before that, processor plugins
// may change or drop the spans. It is safe for concurrent use.
type Host struct {
	cfg      Config
	log      *slog.Logger
	enabled  bool // Config.Plugins is not empty, although a folder in it may have no plugin
	pipeline *pipeline.Pipeline
	sup      *supervise.Supervisor // makes the plugins
	ends     ends
	running  sync.WaitGroup // waits for the goroutines of Start
	shutOnce sync.Once
	shutErr  error // result of the first Shutdown, set by shutOnce

	// reloading is a semaphore of size 1. It is held while Reload changes the list of
	// plugins.
	reloading chan struct{}

	// mu guards the fields below. It is locked before the mutexes of the pipeline,
	// never after them.
	mu sync.Mutex
	// plugins are the plugins of the lists, processors first. gone are the plugins that
	// a Reload has removed and that may still have batches. A change replaces the
	// slices, so that a reader needs no copy.
	plugins, gone    []*supervise.Plugin
	started, stopped bool
}

// ends has three contexts, which Shutdown ends one after the other. stop ends when it
// begins. flush ends when the time for sending is over. kill ends when the time is over in
// which plugins may end by themselves. They end the background work of the Host, and bound
// the end of plugins that a Reload removes. The plugins of the list do not use them, because
// Shutdown calls Plugin.Shutdown for each plugin.
type ends struct {
	stop, flush, kill                   context.Context
	cancelStop, cancelFlush, cancelKill context.CancelFunc
}

func newEnds() (e ends) {
	e.stop, e.cancelStop = context.WithCancel(context.Background())
	e.flush, e.cancelFlush = context.WithCancel(context.Background())
	e.kill, e.cancelKill = context.WithCancel(context.Background())
	return e
}

var _ sdktrace.SpanProcessor = (*Host)(nil)

// Option changes a Host in New.
type Option interface{ apply(*options) }

type options struct {
	log    *slog.Logger
	output *stdio.File // nil for standard output of this process

	eitherKind bool             // set by WithEitherKind
	recent     *pipeline.Recent // set by WithRecent, or nil
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// WithLogger sets the logger of the Host. The log lines of its plugins go to the same
// logger. Default: slog.Default().
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(o *options) { o.log = l })
}

// WithOutput sets the file to which the Host copies the standard output of its plugins.
// The file must stay open while plugins run. Default: standard output of this process.
func WithOutput(f *os.File) Option {
	return optionFunc(func(o *options) { o.output = stdio.New(f) })
}

// New returns a Host that is not started. It starts no process, and opens no files
// except the folders of the list, which may be empty. It returns the error of
// cfg.Validate, or an error about the folders, such as two plugins with the same name.
func New(cfg Config, opts ...Option) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("tracing settings: %w", err)
	}
	o := options{log: slog.Default()}
	for _, opt := range opts {
		opt.apply(&o)
	}
	h := &Host{
		cfg:       cfg.withDefaults().cloned(),
		log:       o.log,
		enabled:   strings.TrimSpace(cfg.Plugins) != "",
		ends:      newEnds(),
		reloading: make(chan struct{}, 1),
	}
	if !h.enabled && (cfg.Processors != "" || len(cfg.ExporterProcessors) > 0) {
		h.log.Warn("there are processor plugins and no exporter, so no plugin runs and tracing is off: set "+EnvPlugins,
			"processors", cfg.Processors)
	}
	supervised := h.cfg.superviseSettings()
	supervised.Output = o.output
	h.pipeline = pipeline.New(pipeline.Settings{
		QueueBytes: h.cfg.QueueBytes, MaxSpanBytes: h.cfg.MaxSpanBytes, BatchAge: h.cfg.BatchAge,
		BatchSpans: h.cfg.BatchSpans, BatchBytes: h.cfg.BatchBytes, MaxAge: h.cfg.MaxAge,
		SpoolDir: h.cfg.SpoolDir, SpoolBytes: h.cfg.SpoolBytes, Recent: o.recent,
	}, h.log)
	h.sup = supervise.New(supervised, h.pipeline, h.log)
	list, err := h.expand(nil)
	if err != nil {
		return nil, fmt.Errorf("tracing settings: %w", err)
	}
	for _, e := range list {
		h.plugins = append(h.plugins, h.sup.Plugin(e))
	}
	h.pipeline.SetProcessors(processorsOf(h.plugins, ""))
	for _, x := range h.plugins {
		if !x.Entry.Processor {
			h.pipeline.Join(x.Queue, processorsOf(h.plugins, x.Entry.Name)...)
		}
	}
	return h, nil
}

// expand reads the list and its folders. running are the entries of the present
// plugins. It is nil in New.
func (h *Host) expand(running []pluginlist.Entry) ([]pluginlist.Entry, error) {
	list, warnings, err := h.cfg.pluginSettings().Expand(running)
	for _, text := range warnings {
		h.log.Warn("setting of plugins", "text", text)
	}
	return list, err
}

// processorsOf returns the queues of the processors of one exporter. If the name is
// empty, it returns the queues of the processors that all exporters share.
func processorsOf(plugins []*supervise.Plugin, exporter string) (list []*pipeline.Queue) {
	for _, x := range plugins {
		if x.Entry.Processor && x.Entry.Exporter == exporter {
			list = append(list, x.Queue)
		}
	}
	return list
}

// Enabled reports whether the list has a plugin, or a folder that may contain plugins
// later. A Host that is not enabled takes no spans and costs nothing.
func (h *Host) Enabled() bool { return h.enabled }

// Start starts the plugins in the background and returns at once. It does not use ctx
// after it returns. Spans that end before the plugins are ready wait in the queue. A
// second call, or a call after Shutdown, returns an error.
func (h *Host) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.started || h.stopped {
		return errors.New("start tracing host: it was started or shut down before")
	}
	h.started = true
	if !h.Enabled() {
		return nil
	}
	h.running.Go(func() { h.pipeline.Run(h.ends.stop.Done()) }) // encodes the spans
	// Sweep removes the runtime folders that killed hosts have left behind.
	h.running.Go(func() { launch.Sweep(h.ends.stop, h.cfg.pluginSettings().RuntimeDirs(), h.log) })
	plugins := h.plugins
	h.running.Go(func() {
		h.pipeline.Spool.Recover(h.ends.stop) // Recover ends before the plugins start, so that the oldest batches are sent first
		for _, x := range plugins {
			h.running.Go(x.Run) // starts the plugin, and sends batches to it, see supervise/sender.go
		}
	})
	return nil
}

// OnStart does nothing.
func (h *Host) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd accepts a sampled span, or refuses and counts it. It never waits for a plugin, only
// for short locks, and does not allocate. It ignores a span that is not sampled.
func (h *Host) OnEnd(s sdktrace.ReadOnlySpan) {
	if !h.enabled {
		return
	}
	if g, ok := sdkspan.GistOf(s); ok { // g has the span's size in memory; ok is false if it is not sampled
		h.pipeline.Add(s, g)
	}
}

// Stats returns a snapshot of the delivery accounting. Every span that ended before the
// call is counted in exactly one place. Stats waits for a running encoding cycle, which
// is short, and blocks OnEnd while it reads the counters. Safe for concurrent use.
func (h *Host) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.pipeline.Stats()
	s := Stats{Instance: h.pipeline.Instance, Ended: now.Ended, Refused: now.Refused, Accepted: now.Accepted, PushedBack: now.PushedBack, Bytes: now.Bytes, LimitBytes: now.LimitBytes, Spool: spoolStats(now.Spool)}
	for _, x := range slices.Concat(h.plugins, h.gone) {
		if x.Entry.Processor {
			s.Processors = append(s.Processors, processorStats(x, now.Queues[x.Queue], h.cfg.pluginSettings().FailsOpen(x.Entry.Name)))
		} else {
			s.Exporters = append(s.Exporters, exporterStats(x.Status(), now.Queues[x.Queue]))
		}
	}
	return s
}

// listed returns the plugins of the lists, without the plugins that a Reload has
// removed.
func (h *Host) listed() []*supervise.Plugin {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.plugins
}

// ForceFlush sends all spans that have ended. It blocks until each batch was answered
// or dropped, or ctx ends. Then it asks each plugin to deliver its spans. If ctx ends,
// the error has the number of remaining spans. ForceFlush returns nil for a Host that
// is not enabled or was never started.
func (h *Host) ForceFlush(ctx context.Context) error {
	h.mu.Lock()
	idle := !h.started || h.stopped
	h.mu.Unlock()
	if idle || !h.Enabled() {
		return nil
	}
	seq := h.pipeline.Flush()
	return each(h.listed(), func(x *supervise.Plugin) error { return x.Flush(ctx, seq) })
}

// each calls f for all plugins of a list at once and joins the errors.
func each(list []*supervise.Plugin, f func(*supervise.Plugin) error) error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, x := range list {
		all.Go(func() { errs[i] = f(x) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Shutdown refuses further spans, sends the spans that have ended, ends the plugins and
// counts the remaining spans as dropped, or as spooled if they stay in the spool. It
// returns at the end of ctx or after Config.StopTimeout, whichever is first, with a small
// delay. By then every plugin has ended or was killed. The error has the number of spans
// that were not delivered, for each plugin that has spans outside of the spool. A second
// call waits for the first and returns the same error.
func (h *Host) Shutdown(ctx context.Context) error {
	h.shutOnce.Do(func() { h.shutErr = h.shutdown(ctx) })
	return h.shutErr
}

func (h *Host) shutdown(ctx context.Context) error {
	h.pipeline.Close()
	h.mu.Lock()
	started := h.started
	h.stopped = true
	h.mu.Unlock()
	if !started || !h.Enabled() {
		h.pipeline.Flush()
		h.keepRest(h.listed())
		return nil
	}
	limit := h.cfg.StopTimeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(0, min(limit, time.Until(deadline)))
	}
	flush, cancelFlush := shareOf(ctx, limit, flushShare)
	defer cancelFlush()
	kill, cancelKill := shareOf(ctx, limit, pluginShare)
	defer cancelKill()

	defer context.AfterFunc(flush, h.ends.cancelFlush)()
	defer context.AfterFunc(kill, h.ends.cancelKill)()
	h.ends.cancelStop()
	seq := h.pipeline.Flush()
	err := each(h.listed(), func(x *supervise.Plugin) error {
		err := x.Shutdown(flush, kill, seq)
		if h.pipeline.Spool.HasAll(x.Queue) {
			return nil
		}
		return err
	})
	h.running.Wait()
	h.mu.Lock()
	all := slices.Concat(h.plugins, h.gone)
	h.mu.Unlock()
	h.keepRest(all)
	files, cancel := context.WithTimeout(ctx, keepGrace)
	defer cancel()
	h.sup.Wait(files)
	return err
}

// Parts of the stop timeout. After flushShare no more spans are sent. After pluginShare
// the plugins that have not ended by themselves are killed.
const (
	flushShare  = 0.6
	pluginShare = 0.9
)

// timeUpError is the cause of a context of shareOf that has timed out. Its text names
// the setting for operators. errors.Is treats it as context.DeadlineExceeded.
type timeUpError time.Duration

func (t timeUpError) Error() string {
	return fmt.Sprintf("no time is left: it had %v, a part of %s", time.Duration(t), EnvStopTimeout)
}

// Is reports whether target is context.DeadlineExceeded.
func (timeUpError) Is(target error) bool { return target == context.DeadlineExceeded }

// shareOf returns a context that ends after a share of limit, or when ctx ends.
func shareOf(ctx context.Context, limit time.Duration, share float64) (context.Context, context.CancelFunc) {
	length := time.Duration(share * float64(limit))
	return context.WithTimeoutCause(ctx, length, timeUpError(length))
}

// keepRest leaves the spans that the plugins have not got in the spool, or drops them
// if they are not in the spool.
func (h *Host) keepRest(list []*supervise.Plugin) {
	for _, x := range list {
		if spans := h.pipeline.Spool.Keep(x.Queue); spans > 0 {
			h.log.Info("spans stay in the spool for the next process", "plugin", x.Entry.Name, "spans", spans)
		}
		x.Queue.DropRest()
	}
	h.pipeline.Spool.Close()
}

// keepGrace bounds the time for which Shutdown waits until the reports of crashes are
// on disk.
const keepGrace = 500 * time.Millisecond
