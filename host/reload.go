package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/servetrace/servetrace/internal/launch"
)

// Reload reads the folders of the list anew: plugins that have gone send what
// they have and end, within Config.StopTimeout, and then those that have come
// are started. Meanwhile each plugin that stays and that this host starts is
// replaced by a new process of what its file and its document are now, without a
// loss: the old one goes on if the new one fails, which it may do until it has
// delivered its first batches. One that does not run is tried at once. Reload
// blocks until all that is done, or ctx ends; what has begun goes on then. It
// does not wait for a new process that has had nothing to deliver for five
// seconds: that waits beside the old one, and the log tells what becomes of it. The
// error says which plugins stay as they were, or do not start, and why: of each
// it joins a *[PluginError]. Reloading a Host that is not started, or is shut
// down, is an error. Safe for concurrent use.
func (h *Host) Reload(ctx context.Context) error {
	stay, changed, err := h.relist(ctx)
	if err != nil {
		return err
	}
	err = each(stay, func(x *exporter) error { return x.askReload(ctx) })
	select {
	case failed := <-changed:
		return errors.Join(err, failed)
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("reload: %w", context.Cause(ctx)))
	}
}

// PluginError is what Reload says of one plugin. The Host has logged it.
type PluginError struct {
	// Plugin is its name in the list.
	Plugin string
	// Op is what became of it: that it does not start, or is not replaced.
	Op string
	// Err is why. It is never nil.
	Err error
}

// Error names the plugin, what became of it, and why.
func (e *PluginError) Error() string { return fmt.Sprintf("plugin %q %s: %v", e.Plugin, e.Op, e.Err) }

// Unwrap gives Err.
func (e *PluginError) Unwrap() error { return e.Err }

// relist takes over what the list is now, and gives the exporters that stay.
// The others end in the background, and when they have, which changed tells,
// those that are new begin: one may have the name of one that ends.
func (h *Host) relist(ctx context.Context) (stay []*exporter, changed <-chan error, err error) {
	select {
	case h.reloading <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("reload: %w", context.Cause(ctx))
	}
	list, err := h.expand(entriesOf(h.listed()))
	if err == nil {
		stay, changed, err = h.change(list)
	}
	if err != nil {
		<-h.reloading
	}
	return stay, changed, err
}

func entriesOf(exporters []*exporter) []entry {
	list := make([]entry, len(exporters))
	for i, x := range exporters {
		list[i] = x.entry
	}
	return list
}

// change makes the list that of relist, who holds reloading until it is done.
func (h *Host) change(list []entry) (stay []*exporter, changed <-chan error, err error) {
	arrived := h.lockBooks()
	defer h.unlockBooks()
	if !h.started || h.stopped {
		return nil, nil, errors.New("reload: the tracing host was not started, or was shut down")
	}
	leave := h.leaveLocked(list, arrived)
	stay = h.exporters
	seq, done := h.seq, make(chan error, 1)
	h.running.Go(func() { // ends by StopTimeout, or as the host's end says
		defer func() { <-h.reloading }()
		err := each(leave, func(x *exporter) error { return h.end(x, seq) })
		h.join(list)
		done <- err
	})
	return stay, done, nil
}

// expand reads the list and the folders in it. running are the plugins that
// there are, nil: none yet.
func (h *Host) expand(running []entry) ([]entry, error) {
	list, warnings, err := h.cfg.expand(running)
	for _, text := range warnings {
		h.log.Warn("setting of plugins", "text", text)
	}
	return list, err
}

// lockBooks stops all that moves spans, so that the list can change between one
// span and the next. Spans that anybody may have seen in the books have come to
// the exporters then: it gives the number of those that have. The others are
// still to come, to those that are there then.
func (h *Host) lockBooks() (arrived uint64) {
	h.drain.mu.Lock()
	h.drain.cycleLocked(true)
	h.mu.Lock()
	h.intake.lock()
	return h.intakeStatsLocked(&Stats{Refused: map[string]uint64{}})
}

func (h *Host) unlockBooks() {
	h.intake.unlock()
	h.mu.Unlock()
	h.drain.mu.Unlock()
	h.tellAll()
}

// leaveLocked takes exporters off that are not on the list, and gives them: what
// is sealed from now on is not theirs.
func (h *Host) leaveLocked(list []entry, arrived uint64) (leave []*exporter) {
	var stay []*exporter
	for _, x := range h.exporters {
		if slices.Contains(list, x.entry) {
			stay = append(stay, x)
			continue
		}
		x.left, x.had = true, arrived-x.base
		leave = append(leave, x)
	}
	h.exporters, h.gone = stay, slices.Concat(h.gone, leave)
	return leave
}

// join puts those of the list that are not there yet beside the others, and
// starts them. One whose name was there before goes on with its books.
func (h *Host) join(list []entry) {
	arrived := h.lockBooks()
	defer h.unlockBooks()
	if h.stopped {
		return
	}
	exporters := make([]*exporter, 0, len(list))
	for _, e := range list {
		at := slices.IndexFunc(h.exporters, func(x *exporter) bool { return x.entry == e })
		if at >= 0 {
			exporters = append(exporters, h.exporters[at])
			continue
		}
		x := newExporter(h, e)
		x.base = arrived
		at = slices.IndexFunc(h.gone, func(other *exporter) bool { return other.entry.name == e.name })
		if at >= 0 {
			x.inheritLocked(h.gone[at])
			h.gone = slices.Delete(slices.Clone(h.gone), at, at+1)
		}
		exporters = append(exporters, x)
		h.running.Go(x.run)
	}
	h.exporters = exporters
}

// inheritLocked takes over the books of an exporter of the same name that has
// ended. Nothing waits there.
func (x *exporter) inheritLocked(before *exporter) {
	x.base -= before.had // below zero or not: what it gives is the difference
	x.books, x.calls, x.suppressed = before.books, before.calls, before.suppressed
	x.plugin.starts, x.plugin.crashes, x.plugin.lastCrash = before.plugin.starts, before.plugin.crashes, before.plugin.lastCrash
	x.plugin.lastError, x.plugin.lastErrorAt = before.plugin.lastError, before.plugin.lastErrorAt
	x.plugin.failures, x.plugin.lastSuccess = before.plugin.failures, before.plugin.lastSuccess
}

// end sends what an exporter that has left the list was given up to seq, and
// ends its plugin. Config.StopTimeout bounds it, and so does the host's end.
func (h *Host) end(x *exporter, seq uint64) error {
	share := func(parent context.Context, part float64) (context.Context, context.CancelFunc) {
		length := time.Duration(part * float64(h.cfg.StopTimeout))
		return context.WithTimeoutCause(parent, length, timeUpError(length))
	}
	flush, cancelFlush := share(h.flushOver, flushShare)
	defer cancelFlush()
	end, cancelEnd := share(h.endOver, pluginShare)
	defer cancelEnd()
	x.log.Info("plugin has left the list: it sends what it has and ends")
	err := x.shutdown(flush, end, seq)
	<-x.ended
	x.dropRest()
	return err
}

// sweep removes what hosts that are dead have left.
func (h *Host) sweep() {
	launch.Sweep(h.ctx, runtimeDirs(h.cfg.Environ), h.log)
}
