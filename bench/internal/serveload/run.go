package serveload

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// run measures a row once, in turns with the row beside it if the scene has turns.
func (s scene) run(ctx context.Context, env *suite.Env, r row) (suite.Sample, error) {
	before, err := env.Sink.Spans(ctx)
	if err != nil {
		return nil, err
	}
	all := []*contender{{scene: s, row: r}}
	if s.inTurns() {
		all = append(all, &contender{scene: s, row: findRow(s.beside)})
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
	if err := audit(all, after-before); err != nil {
		return nil, err
	}
	sample := all[0].sample()
	if s.inTurns() {
		of := all[1].sample()
		for _, metric := range []string{suite.Requests, suite.Of(suite.RequestCPU, "server"), suite.Of(suite.RequestCPU, "total")} {
			sample[reference(metric)] = of[metric]
		}
	}
	return sample, nil
}

// reference returns the name of a metric of the row beside.
func reference(metric string) string {
	base, part, has := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
	if !has {
		return suite.Of(base, "reference")
	}
	return suite.Of(base, part+" of reference")
}

// spansOfRequest is the number of spans of a sampled request.
const spansOfRequest = 3

// audit compares the span accounts of the servers, except with a broken plugin, with
// the sink's count and with the load. Lost spans are an error.
func audit(all []*contender, taken uint64) error {
	delivered, broken := uint64(0), false
	for _, c := range all {
		if c.row.broken {
			broken = true
			continue
		}
		b, want := c.server.account, c.requests*spansOfRequest
		delivered += b.Delivered
		switch {
		case b.Ended != b.Delivered:
			return fmt.Errorf("%s: spans were lost: %d ended, %d delivered by the span account", c.row.name, b.Ended, b.Delivered)
		case c.row.ratio == "1" && b.Ended != want, (c.row.ratio == "0" || c.row.ratio == "") && b.Ended != 0, b.Ended > want:
			return fmt.Errorf("%s: %d spans ended at ratio %q, and %d requests of %d each were sent", c.row.name, b.Ended, c.row.ratio, c.requests, spansOfRequest)
		}
	}
	if !broken && delivered != taken {
		return fmt.Errorf("spans were lost: %d delivered by the span account, %d received by the sink", delivered, taken)
	}
	return nil
}

// measure starts the contenders, warms them up, and runs their turns.
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

// contender is a row in progress.
type contender struct {
	scene scene
	row   row

	server    *serverChild
	generator *child.Child
	from, to  usage   // by the server
	total     outcome // of the turns
	requests  uint64  // in all, with warm-up and leads
	warm      uint64  // requests of the warm-up
	peak      uint64  // RSS of the server in bytes
}

// start starts the server and the load generator, and warms the server up.
func (c *contender) start(ctx context.Context, env *suite.Env) error {
	profile := env.Profile(Name, c.scene.name, c.row.name)
	var err error
	if c.server, err = startServer(ctx, c.row.variables(env), "-app", c.scene.app, "-by", c.row.by, "-profile", profile); err != nil {
		return err
	}
	if c.generator, err = c.scene.startLoad(ctx, c.server.addr); err != nil {
		return err
	}
	if _, err := c.send(order{For: c.scene.load.warmUp, Anew: true}); err != nil {
		return err
	}
	c.warm = c.requests
	c.from, err = c.server.usage()
	return err
}

// send puts the server under load.
func (c *contender) send(o order) (out outcome, err error) {
	if err := c.generator.Ask(o, &out); err != nil {
		return out, err
	}
	if out.Failed > 0 || out.Answered == 0 {
		return out, fmt.Errorf("%s: %d requests failed, %d did not: %s", c.row.name, out.Failed, out.Answered, out.Fault)
	}
	c.requests += out.Answered
	return out, nil
}

// turn runs a turn of the contender, and counts it without its lead.
func (c *contender) turn(t turns, first bool) error {
	if t.lead > 0 {
		if _, err := c.send(order{For: t.lead}); err != nil {
			return err
		}
	}
	out, err := c.send(order{For: t.length, Anew: first})
	if err != nil {
		return err
	}
	out.Answered += c.total.Answered
	out.Took += c.total.Took
	out.CPU += c.total.CPU
	c.total = out
	return nil
}

// end reads the usage of the server.
func (c *contender) end() (err error) {
	if c.to, err = c.server.usage(); err != nil {
		return err
	}
	memory, err := measure.Memory(c.server.PID)
	c.peak = memory.VmHWM
	return err
}

// stop stops the load generator, then the server.
func (c *contender) stop() error {
	var errs []error
	if c.generator != nil {
		errs = append(errs, c.generator.Stop(nil))
	}
	if c.server != nil {
		errs = append(errs, c.server.Stop(&c.server.account))
	}
	return errors.Join(errs...)
}

// sample divides the usage of the server after its warm-up by the requests.
func (c *contender) sample() suite.Sample {
	out := c.total
	each := func(used float64) float64 { return used / float64(c.requests-c.warm) }
	cpu := func(part string) string { return suite.Of(suite.RequestCPU, part) }
	used := c.to.sub(c.from)
	return suite.Sample{
		suite.Requests:                     float64(out.Answered) / out.Took.Seconds(),
		suite.Of(suite.RequestCall, "p50"): float64(out.P50),
		suite.Of(suite.RequestCall, "p95"): float64(out.P95),
		suite.Of(suite.RequestCall, "p99"): float64(out.P99),
		cpu("server"):                      each(used.CPU),
		cpu("plugin"):                      each(used.Plugins),
		cpu("total"):                       each(used.CPU + used.Plugins),
		cpu("load"):                        float64(out.CPU) / float64(out.Answered),
		suite.RequestBytes:                 each(used.Bytes),
		suite.RequestAllocs:                each(used.Objects),
		suite.Of(suite.PeakRSS, "server"):  float64(c.peak) / (1 << 20),
	}
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
	path := r.plugin
	if !filepath.IsAbs(path) {
		path = filepath.Join(env.Bin, path)
	}
	// A broken plugin delivers nothing at the stop.
	stop := "20s"
	if r.broken {
		stop = "100ms"
	}
	return append(list, "SERVE_TRACING_EXPORTER_PLUGIN="+pluginName+"="+path, "SERVE_TRACING_SAMPLING_RATIO="+r.ratio,
		"SERVE_TRACING_STOP_TIMEOUT="+stop, "SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_PLUGIN_WRITABLE=allow")
}

// startLoad starts the load generator.
func (s scene) startLoad(ctx context.Context, addr string) (*child.Child, error) {
	return child.Start(ctx, nil, roleLoad, "-app", s.app, "-addr", addr,
		"-connections", strconv.Itoa(s.load.connections), "-streams", strconv.Itoa(max(1, s.load.streams)))
}
