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

// run measures one row once.
func (s scene) run(ctx context.Context, env *suite.Env, r row) (_ suite.Sample, err error) {
	args := []string{"-by", r.by, "-app", s.app}
	var servers []*serverChild // the one under load first
	if r.by == byProxy {
		backend, err := startServer(ctx, env, nil, "-by", byBare, "-app", s.app)
		if err != nil {
			return nil, err
		}
		servers = append(servers, backend)
		args = append(args, "-backend", backend.addr)
	}
	front, err := startServer(ctx, env, r.variables(env), args...)
	if err != nil {
		return nil, errors.Join(err, stopAll(servers))
	}
	servers = append([]*serverChild{front}, servers...)
	before, err := env.Sink.Counts(ctx)
	if err != nil {
		return nil, errors.Join(err, stopAll(servers))
	}
	sample, requests, err := s.underLoad(ctx, env, servers)
	if err = errors.Join(err, stopAll(servers)); err != nil {
		return nil, err
	}
	if r.plugin == "" || r.broken {
		return sample, nil
	}
	after, err := env.Sink.Counts(ctx)
	if err != nil {
		return nil, err
	}
	b := front.books
	sample[suite.Of(suite.Spans, "ended")] = float64(b.Ended)
	sample[suite.Of(suite.Spans, "delivered")] = float64(after.Spans - before.Spans)
	return sample, s.audit(r, b, after.Spans-before.Spans, requests)
}

// audit holds the books of a server whose plugin is whole against what the sink
// has counted, and against what the load has sent.
func (s scene) audit(r row, b books, taken, requests uint64) error {
	if b.Ended != b.Delivered || b.Delivered != taken {
		return fmt.Errorf("spans were lost: %d ended, %d delivered by the books, %d by the sink", b.Ended, b.Delivered, taken)
	}
	want := requests * uint64(s.spans)
	switch {
	case s.load.fortio: // it sends some that it does not count
		return nil
	case r.ratio == "1" && b.Ended != want, r.ratio == "0" && b.Ended != 0, b.Ended > want:
		return fmt.Errorf("%d spans ended at ratio %s, and %d requests of %d each were sent", b.Ended, r.ratio, requests, s.spans)
	}
	return nil
}

// variables are the settings of ours.
func (r row) variables(env *suite.Env) []string {
	list := []string{fmt.Sprintf("SERVE_ACCESS_LOG=%t", r.accessLog)}
	if r.plugin == "" {
		return list
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
		"SERVE_TRACING_STOP_TIMEOUT="+stop, "SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_PLUGIN_WRITABLE=allow",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+env.Sink.HTTP)
}

// underLoad warms the servers up and measures them. It also gives how many
// requests there were in all.
func (s scene) underLoad(ctx context.Context, env *suite.Env, servers []*serverChild) (_ suite.Sample, requests uint64, err error) {
	generator, err := s.startLoad(ctx, env, servers[0].addr)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, generator.stop(nil)) }()
	var warm, out outcome
	if err := generator.ask(order{For: s.load.warmUp, Rate: s.load.rate}, &warm); err != nil {
		return nil, 0, err
	}
	from, err := spentBy(servers)
	if err != nil {
		return nil, 0, err
	}
	if err := generator.ask(order{For: s.load.length, Rate: s.load.rate}, &out); err != nil {
		return nil, 0, err
	}
	to, err := spentBy(servers)
	if err != nil {
		return nil, 0, err
	}
	if failed := warm.Failed + out.Failed; failed > 0 || out.Answered == 0 {
		return nil, 0, fmt.Errorf("%d requests failed, %d did not: %s%s", failed, warm.Answered+out.Answered, warm.Fault, out.Fault)
	}
	sample := sampleOf(out, from, to)
	peak, err := measure.PeakRSS(servers[0].cmd.Process.Pid)
	sample[suite.Of(suite.PeakRSS, "server")] = float64(peak) / (1 << 20)
	return sample, warm.Answered + out.Answered, err
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

// sampleOf divides what the servers have used by the requests.
func sampleOf(out outcome, from, to []spent) suite.Sample {
	each := func(used float64) float64 { return used / float64(out.Answered) }
	used := to[0].less(from[0])
	cpu := func(part string) string { return suite.Of(suite.RequestCPU, part) }
	sample := suite.Sample{
		suite.Requests:                     float64(out.Answered) / out.Took.Seconds(),
		suite.Of(suite.RequestCall, "p50"): float64(out.P50),
		suite.Of(suite.RequestCall, "p95"): float64(out.P95),
		suite.Of(suite.RequestCall, "p99"): float64(out.P99),
		cpu("server"):                      each(used.cpu),
		cpu("plugin"):                      each(used.plugins),
		cpu("load"):                        each(float64(out.CPU)),
		suite.RequestBytes:                 each(used.bytes),
		suite.RequestAllocs:                each(used.allocs),
	}
	total := used.cpu + used.plugins
	if len(to) > 1 {
		behind := to[1].less(from[1])
		sample[cpu("backend")] = each(behind.cpu)
		total += behind.cpu
	}
	sample[cpu("total")] = each(total)
	return sample
}
