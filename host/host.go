package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// Host feeds exporter plugins. It is safe for concurrent use.
type Host struct {
	cfg      Config
	log      *slog.Logger
	connect  connector
	instance string // drawn once: the first half of every batch's id
	mem      *memory
	intake   *intake
	drain    *drain
	keeper   *keeper
	enabled  bool // the list names something, if only an empty folder

	ctx     context.Context // ends when Shutdown begins
	stop    context.CancelFunc
	running sync.WaitGroup
	shut    sync.Once
	shutErr error // written in shut
	// flushOver and endOver end when Shutdown has no more time for sending, and
	// for ending plugins.
	flushOver, endOver         context.Context
	cancelFlush, cancelEndings context.CancelFunc

	// reloading has room for one: who reads the list anew.
	reloading chan struct{}

	// mu guards all queues and ledgers: what is done under it is done per
	// batch, never per span. Lock order: drain.mu, mu, the intake's shards.
	mu sync.Mutex
	// exporters are in the order of the list; gone are those that have left it,
	// and may still send what they have. The slices are replaced, never changed.
	exporters, gone []*exporter
	seq             uint64 // batches sealed so far
	started         bool
	stopped         bool
}

var _ sdktrace.SpanProcessor = (*Host)(nil)

// Option changes a Host at its making.
type Option interface{ apply(*Host) }

type optionFunc func(*Host)

func (f optionFunc) apply(h *Host) { f(h) }

// WithLogger has the Host log to l, also what its plugins print. Default:
// slog.Default().
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(h *Host) { h.log = l })
}

// New makes a Host that is not started: it starts no process, and of files it
// only looks at what the folders of the list have, which may be nothing. The
// error is that of cfg.Validate, or names what can not be right of the folders:
// two plugins of a name.
func New(cfg Config, opts ...Option) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("tracing settings: %w", err)
	}
	cfg = cfg.withDefaults()
	cfg.copyMaps()
	h := &Host{
		cfg:       cfg,
		log:       slog.Default(),
		connect:   connect,
		instance:  newInstance(),
		enabled:   strings.TrimSpace(cfg.Plugins) != "",
		mem:       newMemory(cfg.QueueBytes),
		reloading: make(chan struct{}, 1),
	}
	for _, opt := range opts {
		opt.apply(h)
	}
	h.intake = newIntake(cfg, h.mem)
	h.drain = &drain{host: h}
	h.keeper = newKeeper(&h.cfg, h.mem, h.log)
	list, err := h.expand(nil)
	if err != nil {
		return nil, fmt.Errorf("tracing settings: %w", err)
	}
	for _, e := range list {
		h.exporters = append(h.exporters, newExporter(h, e))
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.flushOver, h.cancelFlush = context.WithCancel(context.Background())
	h.endOver, h.cancelEndings = context.WithCancel(context.Background())
	return h, nil
}

func newInstance() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	return hex.EncodeToString(id[:])
}

// Enabled tells whether there is any plugin to feed, or a folder that may bring
// one. A Host that is not enabled takes no span and costs nothing.
func (h *Host) Enabled() bool { return h.enabled }

// Start starts the plugins in the background and returns at once; ctx is not
// used beyond the call. Spans may end before, meanwhile and after: they wait.
// Starting twice, or after Shutdown, is an error.
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
	h.running.Go(func() { h.drain.run(h.ctx.Done()) })
	h.running.Go(h.sweep)
	for _, x := range h.exporters {
		h.running.Go(x.run)
	}
	return nil
}

// OnStart does nothing.
func (h *Host) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd takes a sampled span in, or refuses and counts it. It never blocks and
// does not allocate. A span that is not sampled is none of the Host's.
func (h *Host) OnEnd(s sdktrace.ReadOnlySpan) {
	if !h.enabled {
		return
	}
	if g, ok := sdkspan.GistOf(s); ok {
		h.intake.add(s, g)
	}
}

// enqueue gives a sealed batch to every exporter and makes room if the backlog
// has become too large. The caller's reference goes with it. It is called under
// the drain's mutex.
func (h *Host) enqueue(b *batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	now := time.Now()
	for _, x := range h.exporters {
		b.retain()
		x.putLocked(b, h.seq, now)
	}
	b.release()
	h.makeRoomLocked(now)
}

// makeRoomLocked keeps the backlog within its share: the exporter that holds
// most loses its oldest batch, until there is room. What is in flight stays.
func (h *Host) makeRoomLocked(now time.Time) {
	for h.mem.encoded.Load() > h.mem.backlog {
		var fattest *exporter
		for _, x := range h.allLocked() {
			if !x.queue.empty() && (fattest == nil || x.held > fattest.held) {
				fattest = x
			}
		}
		if fattest == nil {
			return
		}
		fattest.dropOldestLocked(now, reasonQueueFull)
	}
}

// dropEverywhere counts spans that were accepted and never reached a batch.
func (h *Host) dropEverywhere(spans uint64, why reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, x := range h.exporters {
		x.droppedLocked(now, spans, why)
	}
}

// all are the exporters, those that have left the list behind the others.
func (h *Host) all() []*exporter {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.allLocked()
}

func (h *Host) allLocked() []*exporter {
	if len(h.gone) == 0 {
		return h.exporters
	}
	return slices.Concat(h.exporters, h.gone)
}

// listed are the exporters of the list.
func (h *Host) listed() []*exporter {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.exporters
}

// shareLocked is what each exporter may keep in flight, or with gRPC. One that
// has left the list has a share until its plugin has ended.
func (h *Host) shareLocked() int64 {
	sharers := len(h.exporters)
	for _, x := range h.gone {
		if len(x.links) > 0 {
			sharers++
		}
	}
	return h.mem.backlog / int64(max(1, sharers))
}

func (h *Host) share() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shareLocked()
}

// tellAll logs what was noted under the mutex.
func (h *Host) tellAll() {
	for _, x := range h.all() {
		x.tell()
	}
}

// ForceFlush sends everything that has ended and blocks until each plugin has
// answered for it, or it is dropped, or ctx ends; then it has each plugin
// deliver what it holds. At the end of ctx the error says how many spans are
// left. It is nil for a Host that is not enabled or was never started.
func (h *Host) ForceFlush(ctx context.Context) error {
	h.mu.Lock()
	idle := !h.started || h.stopped
	h.mu.Unlock()
	if idle || !h.Enabled() {
		return nil
	}
	h.drain.cycle(true)
	h.mu.Lock()
	seq := h.seq
	h.mu.Unlock()
	return each(h.listed(), func(x *exporter) error {
		if err := x.waitSettled(ctx, seq); err != nil {
			return err
		}
		return x.flushPlugin(ctx)
	})
}

// each runs f for all of a list at once and joins the errors.
func each(list []*exporter, f func(*exporter) error) error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, x := range list {
		all.Go(func() { errs[i] = f(x) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Shutdown refuses further spans, sends those that have ended, ends the
// plugins and counts what could not be sent as dropped. It returns by the end
// of ctx or of Config.StopTimeout, whichever is first, give or take a moment:
// by then every plugin has ended or was killed. The error says how many spans
// were lost, and to which plugin. A second call waits for the first and
// returns the same.
func (h *Host) Shutdown(ctx context.Context) error {
	h.shut.Do(func() { h.shutErr = h.shutdown(ctx) })
	return h.shutErr
}

// Shares of the time to stop: for sending what is left, and then for the
// plugins' own end. The rest is for killing them.
const (
	flushShare  = 0.6
	pluginShare = 0.9
)

// timeUpError is the end of a share of the time to stop, in words for an operator. It
// is a deadline as well.
type timeUpError time.Duration

func (t timeUpError) Error() string {
	return fmt.Sprintf("no time is left: it had %v, a part of %s", time.Duration(t), EnvStopTimeout)
}

// Is reports whether target is context.DeadlineExceeded.
func (timeUpError) Is(target error) bool { return target == context.DeadlineExceeded }

func (h *Host) shutdown(ctx context.Context) error {
	h.intake.close()
	h.mu.Lock()
	started := h.started
	h.stopped = true
	h.mu.Unlock()
	if !started || !h.Enabled() {
		h.drain.cycle(true)
		for _, x := range h.listed() {
			x.dropRest()
		}
		return nil
	}
	now := time.Now()
	limit := h.cfg.StopTimeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(0, min(limit, deadline.Sub(now)))
	}
	share := func(part float64) (context.Context, context.CancelFunc) {
		length := time.Duration(part * float64(limit))
		return context.WithDeadlineCause(ctx, now.Add(length), timeUpError(length))
	}
	flush, cancelFlush := share(flushShare)
	defer cancelFlush()
	end, cancelEnd := share(pluginShare)
	defer cancelEnd()

	defer context.AfterFunc(flush, h.cancelFlush)()
	defer context.AfterFunc(end, h.cancelEndings)()
	h.stop()
	h.drain.cycle(true)
	h.mu.Lock()
	seq := h.seq
	h.mu.Unlock()
	err := each(h.listed(), func(x *exporter) error { return x.shutdown(flush, end, seq) })
	h.running.Wait()
	for _, x := range h.all() {
		x.dropRest()
	}
	h.keepLast(ctx)
	return err
}

// keepGrace is how long the end waits for files about crashes.
const keepGrace = 500 * time.Millisecond

func (h *Host) keepLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, keepGrace)
	defer cancel()
	h.keeper.wait(ctx)
}

// shutdown sends what was sealed up to seq until flush ends, then stops the
// plugin, which may take until end.
func (x *exporter) shutdown(flush, end context.Context, seq uint64) error {
	x.setState(StateDraining, "")
	err := x.waitSettled(flush, seq)
	x.endBy = end
	x.stop(errors.New("the host shuts down"))
	return err
}
