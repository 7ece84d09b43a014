package supervise

import (
	"context"
	"errors"
	"time"
)

// EndTimeout bounds the end of a plugin that is no longer used.
const EndTimeout = time.Second

// Plan returns the plan of the plugin. With an error, the plan has the parts that
// could be found.
func (x *Plugin) Plan() (Plan, error) { return x.sup.cfg.plan(x.Entry) }

// Connect starts the plugin of a plan, or attaches to it, without supervision. It asks
// for the description. If configured is set, it also configures the plugin. It blocks
// until that is done, at most Settings.StartTimeout. After an error the process has
// ended, and the description may be incomplete.
func (x *Plugin) Connect(ctx context.Context, plan *Plan, configured bool) (p Peer, d Description, err error) {
	cfg := &x.sup.cfg
	ctx, cancel := cfg.startContext(ctx)
	defer cancel()
	for {
		if p, err = x.sup.Connect(ctx, cfg, *plan, x.log); err != nil {
			return nil, d, cfg.startError(ctx, err)
		}
		if configured {
			d, err = introduce(ctx, cfg, x.log, p.Conn(), plan)
		} else {
			d, err = describe(ctx, cfg.List, *plan, p.Conn())
		}
		if err == nil {
			return p, d, nil
		}
		ended := x.HangUp(p, EndTimeout)
		if !errors.Is(err, errStartAgain) || ended != nil {
			return nil, d, errors.Join(cfg.startError(ctx, err), ended)
		}
	}
}

// HangUp ends a process, or a connection, and frees it. It kills a process that does
// not end by itself in time.
func (x *Plugin) HangUp(p Peer, timeout time.Duration) error {
	ctx, cancel := x.ending(timeout)
	defer cancel()
	return p.Stop(ctx)
}
