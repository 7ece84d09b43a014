package host

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/servetrace/servetrace/internal/launch"
)

// Reload reads the folders of the list anew: plugins that have come are started,
// and those that have gone send what they have and end, within
// Config.StopTimeout. Then each plugin that stays and that this host starts is
// replaced by a new process of what its file and its document are now, without a
// loss: the old one goes on if the new one fails, which it may do until it has
// delivered its first batches. One that does not run is tried at once. Reload
// blocks until all that is done, or ctx ends; what has begun goes on then. The
// error says which plugins stay as they were, or do not start, and why. Reloading
// a Host that is not started, or is shut down, is an error. Safe for concurrent
// use.
func (h *Host) Reload(ctx context.Context) error {
	stay, err := h.relist()
	return errors.Join(err, each(stay, func(x *exporter) error { return x.askReload(ctx) }))
}

// relist takes over what the list is now, and gives the exporters that stay.
// Those that leave have ended when it returns.
func (h *Host) relist() (stay []*exporter, err error) {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	if !h.isOn() {
		return nil, errors.New("reload: the tracing host was not started, or was shut down")
	}
	before := h.listed()
	running := make([]entry, len(before))
	for i, x := range before {
		running[i] = x.entry
	}
	list, err := h.expand(running)
	if err != nil {
		return before, err
	}
	var leave []*exporter
	for _, x := range before {
		if slices.Contains(list, x.entry) {
			stay = append(stay, x)
		} else {
			leave = append(leave, x)
		}
	}
	h.drain.cycle(true) // what has ended so far is for those that leave too
	seq := h.leave(leave)
	err = each(leave, func(x *exporter) error { return h.end(x, seq) })
	h.join(list)
	return stay, err
}

func (h *Host) isOn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.started && !h.stopped
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
// span and the next. It gives the spans accepted so far that have come to the
// exporters; the others are still to come, to those that are there then.
func (h *Host) lockBooks() (arrived uint64) {
	h.drain.mu.Lock()
	h.mu.Lock()
	h.intake.lock()
	return h.intakeStatsLocked(&Stats{Refused: map[string]uint64{}})
}

func (h *Host) unlockBooks() {
	h.intake.unlock()
	h.mu.Unlock()
	h.drain.mu.Unlock()
}

// leave takes exporters off the list: what is sealed from now on is not theirs.
// What was, is up to seq.
func (h *Host) leave(list []*exporter) (seq uint64) {
	arrived := h.lockBooks()
	defer h.unlockBooks()
	if h.stopped || len(list) == 0 {
		return h.seq
	}
	h.exporters = slices.DeleteFunc(slices.Clone(h.exporters), func(x *exporter) bool { return slices.Contains(list, x) })
	h.gone = slices.Concat(h.gone, list)
	for _, x := range list {
		x.left, x.had = true, arrived-x.base
	}
	return h.seq
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
	x.plugin.lastError, x.plugin.lastSuccess = before.plugin.lastError, before.plugin.lastSuccess
}

// end sends what an exporter that has left the list was given up to seq, and
// ends its plugin. Config.StopTimeout bounds it, and so does the host's end.
func (h *Host) end(x *exporter, seq uint64) error {
	if !x.hasLeft() { // the host shuts down, and ends it
		return nil
	}
	share := func(parent context.Context, part float64) (context.Context, context.CancelFunc) {
		return context.WithTimeout(parent, time.Duration(part*float64(h.cfg.StopTimeout)))
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

func (x *exporter) hasLeft() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.left
}

// sweep removes what hosts that are dead have left.
func (h *Host) sweep() {
	launch.Sweep(h.ctx, runtimeDirs(h.cfg.Environ), h.log)
}
