package serveload

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// run measures one row once; with turns, beside the row that it is held against.
func (s scene) run(ctx context.Context, env *suite.Env, r row) (suite.Sample, error) {
	before, err := env.Sink.Counts(ctx)
	if err != nil {
		return nil, err
	}
	c := &contender{scene: s, row: r}
	both := []*contender{c}
	if s.inTurns() {
		both = append(both, &contender{scene: s, row: s.against(r)})
	}
	err = s.measure(ctx, env, both)
	for _, c := range both {
		err = errors.Join(err, c.stop())
	}
	if err != nil {
		return nil, err
	}
	sample := c.sample()
	if s.inTurns() {
		for metric, value := range both[1].sample() {
			switch metric {
			case suite.Requests, suite.RequestAllocs:
				sample[suite.Of(metric, "reference")] = value
			case suite.Of(suite.RequestCPU, "server"):
				sample[suite.Of(suite.RequestCPU, "reference")] = value
			}
		}
	}
	for _, c := range both {
		if c.row.ratio == "" || c.row.broken {
			continue // of the two, at most one has spans delivered
		}
		after, err := env.Sink.Counts(ctx)
		if err != nil {
			return nil, err
		}
		taken, b := after.Spans-before.Spans, c.servers[0].books
		if !r.broken {
			sample[suite.Of(suite.Spans, "ended")], sample[suite.Of(suite.Spans, "delivered")] = float64(b.Ended), float64(taken)
		}
		if err := s.audit(c.row, b, taken, c.requests); err != nil {
			return nil, err
		}
	}
	return sample, nil
}

// audit holds the books of a server whose plugin is whole against what the sink
// has counted, and against what the load has sent.
func (s scene) audit(r row, b books, taken, requests uint64) error {
	if b.Ended != b.Delivered || b.Delivered != taken {
		return fmt.Errorf("spans were lost: %d ended, %d delivered by the books, %d by the sink", b.Ended, b.Delivered, taken)
	}
	spans := s.spans
	if r.by == byOTel {
		spans = otelSpans(s.app)
	}
	want := requests * uint64(spans)
	switch {
	case s.load.fortio: // it sends some that it does not count
		return nil
	case r.ratio == "1" && b.Ended != want, r.ratio == "0" && b.Ended != 0, b.Ended > want:
		return fmt.Errorf("%d spans ended at ratio %s, and %d requests of %d each were sent", b.Ended, r.ratio, requests, spans)
	}
	return nil
}

// measure starts the contenders, warms each up, and has them take their turns.
func (s scene) measure(ctx context.Context, env *suite.Env, all []*contender) error {
	for _, c := range all {
		if err := c.start(ctx, env); err != nil {
			return err
		}
	}
	turns := s.turns
	if !s.inTurns() {
		turns.n, turns.length = 1, s.load.length
	}
	for turn := range turns.n {
		for _, c := range all {
			if err := c.turn(turns, turn == 0); err != nil {
				return err
			}
		}
	}
	for _, c := range all {
		if err := c.end(); err != nil {
			return err
		}
	}
	return nil
}

// contender is a row while it runs.
type contender struct {
	scene scene
	row   row

	servers   []*serverChild // the one under load first
	generator *child
	from, to  []spent // by the servers
	total     outcome // of the turns
	requests  uint64  // in all, those of the warm-up and of leads included
	warm      uint64  // those of the warm-up
	peak      int64   // bytes resident, of the server
}

// start starts the servers and the load generator, and warms them up.
func (c *contender) start(ctx context.Context, env *suite.Env) error {
	app := []string{"-app", c.scene.app}
	profile := env.Profile(Name, c.scene.name, c.row.name)
	if c.row.by == byProxy {
		backend, err := startServer(ctx, env, nil, append(app, "-by", byBare)...)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, backend)
		app = append(app, "-backend", backend.addr)
	}
	front, err := startServer(ctx, env, c.row.variables(env), append(app, "-by", c.row.by, "-profile", profile)...)
	if err != nil {
		return err
	}
	c.servers = append([]*serverChild{front}, c.servers...)
	if c.generator, err = c.scene.startLoad(ctx, env, front.addr); err != nil {
		return err
	}
	if _, err := c.send(order{For: c.scene.load.warmUp, Rate: c.scene.load.rate, Anew: true}); err != nil {
		return err
	}
	c.warm = c.requests
	c.from, err = spentBy(c.servers)
	return err
}

// send puts the server under load.
func (c *contender) send(o order) (out outcome, err error) {
	if err := c.generator.ask(o, &out); err != nil {
		return out, err
	}
	if out.Failed > 0 || out.Answered == 0 {
		return out, fmt.Errorf("%s: %d requests failed, %d did not: %s", c.row.name, out.Failed, out.Answered, out.Fault)
	}
	c.requests += out.Answered
	return out, nil
}

// turn is one of the contender's, of which what comes after its lead is counted.
func (c *contender) turn(t turns, first bool) error {
	if t.lead > 0 {
		if _, err := c.send(order{For: t.lead, Rate: c.scene.load.rate}); err != nil {
			return err
		}
	}
	out, err := c.send(order{For: t.length, Rate: c.scene.load.rate, Anew: first})
	if err != nil {
		return err
	}
	out.Answered += c.total.Answered
	out.Took += c.total.Took
	out.CPU += c.total.CPU
	c.total = out
	return nil
}

// end reads what the servers have used.
func (c *contender) end() (err error) {
	if c.to, err = spentBy(c.servers); err != nil {
		return err
	}
	c.peak, err = measure.PeakRSS(c.servers[0].cmd.Process.Pid)
	return err
}

// stop stops what was started, in the order of the requests' way.
func (c *contender) stop() error {
	var errs []error
	if c.generator != nil {
		errs = append(errs, c.generator.stop(nil))
	}
	for _, s := range c.servers {
		errs = append(errs, s.stop(&s.books))
	}
	return errors.Join(errs...)
}

// sample divides what the servers have used, since they were warm, by the requests.
func (c *contender) sample() suite.Sample {
	out := c.total
	each := func(used float64) float64 { return used / float64(c.requests-c.warm) }
	cpu := func(part string) string { return suite.Of(suite.RequestCPU, part) }
	used := c.to[0].less(c.from[0])
	sample := suite.Sample{
		suite.Requests:                     float64(out.Answered) / out.Took.Seconds(),
		suite.Of(suite.RequestCall, "p50"): float64(out.P50),
		suite.Of(suite.RequestCall, "p95"): float64(out.P95),
		suite.Of(suite.RequestCall, "p99"): float64(out.P99),
		cpu("server"):                      each(used.cpu),
		cpu("plugin"):                      each(used.plugins),
		cpu("load"):                        float64(out.CPU) / float64(out.Answered),
		suite.RequestBytes:                 each(used.bytes),
		suite.RequestAllocs:                each(used.allocs),
		suite.Of(suite.PeakRSS, "server"):  float64(c.peak) / (1 << 20),
	}
	total := used.cpu + used.plugins
	if len(c.to) > 1 {
		behind := c.to[1].less(c.from[1])
		sample[cpu("backend")] = each(behind.cpu)
		total += behind.cpu
	}
	sample[cpu("total")] = each(total)
	return sample
}

// variables are the settings of a row.
func (r row) variables(env *suite.Env) []string {
	list := []string{fmt.Sprintf("SERVE_ACCESS_LOG=%t", r.accessLog)}
	if r.ratio == "" {
		return list
	}
	list = append(list, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+env.Sink.HTTP)
	if r.by == byOTel {
		return append(list, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG="+r.ratio)
	}
	path := r.plugin
	if !filepath.IsAbs(path) {
		path = filepath.Join(env.Bin, path)
	}
	// One that delivers has time to, and nobody waits for another.
	stop := "20s"
	if r.broken {
		stop = "100ms"
	}
	return append(list, "SERVE_TRACING_EXPORTER_PLUGIN="+pluginName+"="+path, "SERVE_TRACING_SAMPLING_RATIO="+r.ratio,
		"SERVE_TRACING_STOP_TIMEOUT="+stop, "SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_PLUGIN_WRITABLE=allow")
}

// startLoad starts the load generator.
func (s scene) startLoad(ctx context.Context, env *suite.Env, addr string) (*child, error) {
	args := []string{"-addr", addr, "-connections", strconv.Itoa(s.load.connections), "-streams", strconv.Itoa(max(1, s.load.streams))}
	if !s.load.fortio {
		return startChild(ctx, env, nil, env.Self, append([]string{"child", RoleLoad, "-app", s.app}, args...)...)
	}
	switch s.app {
	case appChain:
		args = append(args, "-body", chainQuestion)
	case appEcho:
		args = append(args, "-method", echoMethod, "-body", echoQuestion())
	}
	return startChild(ctx, env, nil, filepath.Join(env.Bin, "fortio"), args...)
}
