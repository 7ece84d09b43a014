package serveload

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
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
	for _, name := range names {
		all = append(all, &contender{name: name, row: rows[name]})
	}
	err = s.measure(ctx, env, all)
	for _, c := range all {
		err = errors.Join(err, c.stop())
	}
	if err != nil {
		return nil, err
	}
	after, err := env.Sink.Spans(ctx)
	if err != nil {
		return nil, err
	}
	round := suite.Round{}
	for _, c := range all {
		round[c.name] = c.sample()
	}
	return round, audit(all, after-before)
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
		b, want := c.account, c.requests*spansOfRequest
		if c.row.by == byThreeSpans { // it has no account
			b = account{want, want}
		}
		delivered += b.Delivered
		switch {
		case b.Ended != b.Delivered:
			return fmt.Errorf("%s: spans were lost: %d ended, %d counted as delivered", c.name, b.Ended, b.Delivered)
		case c.row.ratio == "1" && b.Ended != want, (c.row.ratio == "0" || c.row.ratio == "") && b.Ended != 0, b.Ended > want:
			return fmt.Errorf("%s: %d spans ended at ratio %q, and %d requests of %d each were sent", c.name, b.Ended, c.row.ratio, c.requests, spansOfRequest)
		}
	}
	if !broken && delivered != taken {
		return fmt.Errorf("spans were lost: %d counted as delivered, %d received by the sink", delivered, taken)
	}
	return nil
}

// measure starts the contenders, warms them up, and runs their turns.
func (s scene) measure(ctx context.Context, env *suite.Env, all []*contender) error {
	for _, c := range all {
		if err := c.start(ctx, env, s); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for range s.n {
		for _, c := range all {
			if err := c.turn(s.turns); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	for _, c := range all {
		var err error
		if c.to, err = c.usage(); err != nil {
			return err
		}
	}
	return nil
}

// contender is a row in progress.
type contender struct {
	name string
	row  row

	server   *child.Child
	load     *load
	from, to usage  // after the warm-up, and at the end
	warm     uint64 // requests of the warm-up
	requests uint64 // in all, with warm-up and leads
	answered uint64 // in the turns without their leads, which took so long:
	took     time.Duration
	account  account // after the stop
}

// usage is the usage of a server and its plugin since their start. CPU and Plugin are
// user and system time, Objects are the server's allocations.
type usage struct {
	CPU, Plugin time.Duration
	Objects     float64
}

// start starts the server, connects to it, and warms it up.
func (c *contender) start(ctx context.Context, env *suite.Env, s scene) error {
	var err error
	if c.server, err = child.Start(ctx, c.row.variables(env), roleServer, c.row.by, s.app); err != nil {
		return err
	}
	var addr string
	if err = c.server.Read(&addr); err != nil {
		return err
	}
	if c.load, err = dial(ctx, s.app, addr, connections); err != nil {
		return err
	}
	if c.requests, _, err = c.load.run(s.warmUp); err != nil {
		return err
	}
	c.warm = c.requests
	c.from, err = c.usage()
	return err
}

// turn runs a turn of the contender, and counts it without its lead.
func (c *contender) turn(t turns) error {
	lead, _, err := c.load.run(t.lead)
	if err != nil {
		return err
	}
	answered, took, err := c.load.run(t.length)
	c.requests += lead + answered
	c.answered += answered
	c.took += took
	return err
}

// usage returns the usage so far.
func (c *contender) usage() (u usage, err error) {
	if err := c.server.Ask(struct{}{}, &u.Objects); err != nil {
		return u, err
	}
	u.Plugin = measure.ChildrenCPU(c.server.PID)
	u.CPU, err = measure.ProcessCPU(c.server.PID)
	return u, err
}

// stop closes the connections, and stops the server.
func (c *contender) stop() error {
	if c.load != nil {
		c.load.close()
	}
	if c.server == nil {
		return nil
	}
	return c.server.Stop(&c.account)
}

// sample divides the usage of the server after its warm-up by the requests.
func (c *contender) sample() suite.Sample {
	n := float64(c.requests - c.warm)
	server, plugin := float64(c.to.CPU-c.from.CPU)/n, float64(c.to.Plugin-c.from.Plugin)/n
	s := suite.Sample{
		requests:  float64(c.answered) / c.took.Seconds(),
		cpuServer: server,
		allocs:    (c.to.Objects - c.from.Objects) / n,
	}
	if c.row.broken == "" {
		s[cpuPlugin], s[cpuTotal] = plugin, server+plugin
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
