package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/supervise"
)

// Reload reads the folders of the list again. Plugins that have left the list send
// their spans and end, within Config.StopTimeout. Then the new plugins start. Meanwhile
// each other plugin is replaced by a new process with its present file and
// configuration, without a loss. The old process continues if the new one fails before
// it has delivered its first batches. A plugin that does not run is started at once.
// Attached plugins are not replaced.
//
// Reload blocks until all this is done, or ctx ends; a change that has begun continues
// after the end of ctx. If there is nothing to deliver for five seconds, the new process
// waits beside the old one for its first batches. Reload then returns, and the log
// reports the result. The error joins a *[PluginError] for each plugin that was not
// replaced or does not start. Reload returns an error if the Host is not started or is
// shut down. Safe for concurrent use.
func (h *Host) Reload(ctx context.Context) error {
	stay, changed, err := h.relist(ctx)
	if err != nil {
		return err
	}
	err = each(stay, func(x *supervise.Plugin) error { return x.Reload(ctx) })
	select {
	case failed := <-changed:
		return errors.Join(err, failed)
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("reload: %w", context.Cause(ctx)))
	}
}

// PluginError is Reload's error for one plugin. The Host has also logged it. Plugin is
// the plugin's name in the list. Op is the result: the plugin does not start, or is not
// replaced. Err is the reason. It is never nil, and Unwrap returns it.
type PluginError = supervise.PluginError

// relist reads the list again, and returns the plugins that stay. In the background,
// the other plugins end, and then the new plugins start. They start last because a new
// plugin may have the name of a plugin that ends. changed receives the error of the
// change.
func (h *Host) relist(ctx context.Context) (stay []*supervise.Plugin, changed <-chan error, err error) {
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

func entriesOf(plugins []*supervise.Plugin) []pluginlist.Entry {
	list := make([]pluginlist.Entry, len(plugins))
	for i, x := range plugins {
		list[i] = x.Entry
	}
	return list
}

// change replaces the list of the host, and returns the plugins that stay. The rest of
// the change runs in the background: it ends the plugins that left, and starts the new
// ones. The caller holds the semaphore reloading; the background goroutine releases it.
func (h *Host) change(list []pluginlist.Entry) (stay []*supervise.Plugin, changed <-chan error, err error) {
	defer h.pipeline.LogNotes()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started || h.stopped {
		return nil, nil, errors.New("reload: the tracing host was not started, or was shut down")
	}
	leave := h.leaveLocked(list)
	present := h.plugins
	h.chainLocked(list, leave)
	for _, x := range h.plugins {
		if slices.Contains(present, x) {
			stay = append(stay, x)
		}
	}
	seq, done := h.pipeline.Sealed(), make(chan error, 1)
	h.running.Go(func() { // ends within StopTimeout, or when the host stops
		defer func() { <-h.reloading }()
		err := each(leave, func(x *supervise.Plugin) error { return h.endPlugin(x, seq) })
		h.join(list)
		done <- err
	})
	return stay, done, nil
}

// leaveLocked removes the plugins that are no longer on the list, and returns them. If
// an exporter leaves, the processors of this exporter leave too. An exporter that
// leaves gets no batches that are sealed later.
func (h *Host) leaveLocked(list []pluginlist.Entry) (leave []*supervise.Plugin) {
	stays := func(x *supervise.Plugin) bool {
		return slices.ContainsFunc(list, func(e pluginlist.Entry) bool { return e == x.Entry || replaces(e, x) })
	}
	var stay []*supervise.Plugin
	for _, x := range h.plugins {
		exporter := slices.IndexFunc(h.plugins, func(other *supervise.Plugin) bool { return other.Entry.Name == x.Entry.Exporter })
		if stays(x) && (exporter < 0 || stays(h.plugins[exporter])) {
			stay = append(stay, x)
			continue
		}
		if !x.Entry.Processor {
			h.pipeline.Leave(x.Queue)
		}
		leave = append(leave, x)
	}
	h.plugins, h.gone = stay, slices.Concat(h.gone, leave)
	return leave
}

// replaces reports whether e and x are processors that all exporters share, with the
// same name, but with different entries, such as another executable.
func replaces(e pluginlist.Entry, x *supervise.Plugin) bool {
	return e.Processor && e.Exporter == "" && x.Entry.Processor && x.Entry.Exporter == "" && e.Name == x.Entry.Name && e != x.Entry
}

// chainLocked replaces the processors that all exporters share in one step, so that no
// span bypasses a processor. If a processor has got another executable, its new plugin
// takes over the queue.
func (h *Host) chainLocked(list []pluginlist.Entry, leave []*supervise.Plugin) {
	before := h.plugins
	var chain []*supervise.Plugin
	for _, e := range list {
		if !e.Processor || e.Exporter != "" {
			continue
		}
		at := slices.IndexFunc(before, func(x *supervise.Plugin) bool { return x.Entry == e || replaces(e, x) })
		switch {
		case at < 0:
			x := newPlugin(h, e, leave)
			h.running.Go(x.Run)
			chain = append(chain, x)
		case before[at].Entry == e:
			chain = append(chain, before[at])
		default:
			old, x := before[at], h.sup.Successor(e, before[at])
			x.Inherit(old)
			h.running.Go(func() {
				kill, cancel := shareOf(h.ends.kill, h.cfg.StopTimeout, pluginShare)
				defer cancel()
				old.Cede(kill)
				x.Run()
			})
			chain = append(chain, x)
		}
	}
	h.pipeline.SetProcessors(processorsOf(chain, ""))
	for _, x := range before {
		if !x.Entry.Processor || x.Entry.Exporter != "" {
			chain = append(chain, x)
		}
	}
	h.plugins = chain
}

// newPlugin returns a plugin that does not run yet. If a plugin of the same name has
// left the list before, the new plugin continues its statistics. leaving are the
// plugins that are leaving now, which keep their own. The caller holds mu.
func newPlugin(h *Host, e pluginlist.Entry, leaving []*supervise.Plugin) *supervise.Plugin {
	x := h.sup.Plugin(e)
	at := slices.IndexFunc(h.gone, func(other *supervise.Plugin) bool {
		return other.Entry.Name == e.Name && !slices.Contains(leaving, other)
	})
	if at >= 0 {
		x.Inherit(h.gone[at])
		pipeline.Inherit(x.Queue, h.gone[at].Queue)
		h.gone = slices.Delete(slices.Clone(h.gone), at, at+1)
	}
	return x
}

// join adds and starts the new exporters of the list, with their processors.
func (h *Host) join(list []pluginlist.Entry) {
	defer h.pipeline.LogNotes()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return
	}
	plugins := make([]*supervise.Plugin, 0, len(list))
	for _, e := range list {
		at := slices.IndexFunc(h.plugins, func(x *supervise.Plugin) bool { return x.Entry == e })
		if at >= 0 {
			plugins = append(plugins, h.plugins[at])
			continue
		}
		x := newPlugin(h, e, nil)
		plugins = append(plugins, x)
		if !e.Processor {
			h.pipeline.Join(x.Queue, processorsOf(plugins, e.Name)...)
		}
		h.running.Go(x.Run)
	}
	h.plugins = plugins
}

// endPlugin sends the batches of a plugin that has left the list, up to the batch seq, and
// stops the plugin. It takes at most Config.StopTimeout, or less if the host shuts
// down.
func (h *Host) endPlugin(x *supervise.Plugin, seq uint64) error {
	flush, cancelFlush := shareOf(h.ends.flush, h.cfg.StopTimeout, flushShare)
	defer cancelFlush()
	kill, cancelKill := shareOf(h.ends.kill, h.cfg.StopTimeout, pluginShare)
	defer cancelKill()
	return x.Leave(flush, kill, seq)
}
