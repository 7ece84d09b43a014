package serveload

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// run measures rows once, in turns.
func (s scene) run(ctx context.Context, env *suite.Env, names []string) (suite.Round, error) {
	before, err := env.Sink.Spans(ctx)
	if err != nil {
		return nil, err
	}
	var all []*contender
	round, err := suite.Alternate(ctx, s.n, names, func(name string) (suite.Contender, error) {
		c := &contender{scene: s, name: name, row: rows[name]}
		all = append(all, c)
		return c, c.start(ctx, env)
	})
	if err != nil {
		return nil, err
	}
	after, err := env.Sink.Spans(ctx)
	return round, errors.Join(err, audit(all, after-before))
}

// spansOfRequest is the number of spans of a sampled request.
const spansOfRequest = 3

// audit compares the delivery accounting of the servers, except with a broken plugin, with
// the sink's count and with the load. Lost spans are an error.
func audit(all []*contender, taken uint64) error {
	delivered, broken := uint64(0), false
	for _, c := range all {
		if c.row.broken != "" {
			broken = true
			continue
		}
		b, want := c.account, c.made.All*spansOfRequest
		if c.row.by == byThreeSpans { // it has no account
			b = account{want, want}
		}
		delivered += b.Delivered
		switch {
		case b.Ended != b.Delivered:
			return fmt.Errorf("%s: spans were lost: %d ended, %d counted as delivered", c.name, b.Ended, b.Delivered)
		case c.row.ratio == "1" && b.Ended != want, (c.row.ratio == "0" || c.row.ratio == "") && b.Ended != 0, b.Ended > want:
			return fmt.Errorf("%s: %d spans ended at ratio %q, and %d requests of %d each were sent", c.name, b.Ended, c.row.ratio, c.made.All, spansOfRequest)
		}
	}
	if !broken && delivered != taken {
		return fmt.Errorf("spans were lost: %d counted as delivered, %d received by the sink", delivered, taken)
	}
	return nil
}

// contender is a row in progress.
type contender struct {
	scene
	name string
	row  row

	servers, load *child.Child   // servers are nil for calls in one process
	measured      []*child.Child // in a scene of calls both, otherwise the servers
	warm          uint64         // requests of the warm-up
	made          made           // so far
	last, used    usage          // used is after the warm-up
	account       account        // after the stop
}

// usage is the usage of the measured processes, and of their plugin.
type usage struct {
	cpu, plugin time.Duration // user and system time
	objects     float64       // allocations
}

// start starts the processes, and warms them up.
func (c *contender) start(ctx context.Context, env *suite.Env) (err error) {
	var addrs []string
	if !c.row.local {
		if c.servers, err = child.Start(ctx, c.row.variables(env), roleServers, c.row.by, c.app, strconv.Itoa(max(1, c.row.servers))); err != nil {
			return err
		}
		if err := c.servers.Read(&addrs); err != nil {
			return err
		}
		c.measured = append(c.measured, c.servers)
	}
	addrs = slices.Repeat(addrs, max(1, c.connections))
	if c.load, err = child.Start(ctx, nil, roleCallers, c.row.by, c.app, strconv.Itoa(c.callers), strings.Join(addrs, ",")); err != nil {
		return err
	}
	if c.calls {
		c.measured = append(c.measured, c.load)
	}
	if err := errors.Join(c.load.Read(new(bool)), c.load.Ask(order{Length: c.warmUp, Uncounted: true}, &c.made)); err != nil {
		return err
	}
	c.warm = c.made.All
	return c.read(false)
}

// Turn runs a turn, whose lead does not count. In a scene of calls, the usage between turns
// does not count: 64 idle servers cost something, too.
func (c *contender) Turn(context.Context) error {
	if err := c.read(!c.calls); err != nil {
		return err
	}
	for _, o := range []order{{Length: c.lead, Uncounted: true}, {Length: c.length}} {
		if err := c.load.Ask(o, &c.made); err != nil {
			return err
		}
	}
	return c.read(true)
}

// read reads the usage. If it counts, it is added to what was used before.
func (c *contender) read(counts bool) error {
	var now usage
	for _, p := range c.measured {
		var m made
		if err := p.Ask(order{Uncounted: true}, &m); err != nil {
			return err
		}
		cpu, err := measure.ProcessCPU(p.PID)
		if err != nil {
			return err
		}
		now.cpu += cpu
		now.plugin += measure.ChildrenCPU(p.PID)
		now.objects += m.Objects
	}
	if counts {
		c.used.cpu += now.cpu - c.last.cpu
		c.used.plugin += now.plugin - c.last.plugin
		c.used.objects += now.objects - c.last.objects
	}
	c.last = now
	return nil
}

// Stop stops the processes, the callers first.
func (c *contender) Stop() (err error) {
	if c.load != nil {
		err = c.load.Stop(nil)
	}
	if c.servers != nil {
		err = errors.Join(err, c.servers.Stop(&c.account))
	}
	return err
}

// Sample divides the usage by the requests or calls.
func (c *contender) Sample() suite.Sample {
	n := float64(c.made.All - c.warm)
	cpu, plugin := float64(c.used.cpu)/n, float64(c.used.plugin)/n
	rate := float64(c.made.Calls) / c.made.Took.Seconds()
	if c.calls {
		return suite.Sample{
			calls: rate, cpuCall: cpu, allocsCall: c.used.objects / n,
			p50: 1000 * c.made.P50.Seconds(), p99: 1000 * c.made.P99.Seconds(),
		}
	}
	s := suite.Sample{requests: rate, cpuServer: cpu, allocs: c.used.objects / n}
	if c.row.broken == "" {
		s[cpuPlugin], s[cpuTotal] = plugin, cpu+plugin
	}
	return s
}

// variables are the settings of a row.
func (r row) variables(env *suite.Env) []string {
	list := []string{fmt.Sprintf("SERVE_ACCESS_LOG=%t", r.accessLog)}
	if r.ratio == "" {
		return list
	}
	list = append(list, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+env.Sink.HTTP)
	if r.by != byOurs {
		return list
	}
	path, stop := filepath.Join(env.Bin, "plugins", "otlp"), "20s"
	if r.broken != "" {
		path, stop = filepath.Join(env.Bin, "plugins", "benchplugin"), "100ms"
	}
	if r.broken == pluginDead {
		path = "/bin/false"
	}
	return append(list, "SERVE_TRACING_EXPORTER_PLUGIN="+pluginName+"="+path, "SERVE_TRACING_SAMPLING_RATIO="+r.ratio, "BENCH_PLUGIN="+r.broken,
		"SERVE_TRACING_STOP_TIMEOUT="+stop, "SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_PLUGIN_WRITABLE=allow")
}
