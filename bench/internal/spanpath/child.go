// Package spanpath measures the cost of a span on its way from a program to a back
// end, for our host and for its peers.
//
// A row is a way (rows.go), a shape is a load (cases.go, drive.go). Each case runs in
// a child process, which is the process "host" of the figures:
//
//  1. The child opens the row and keeps 64 MiB alive. It drives the shape for a
//     moment, and waits until all spans are delivered.
//  2. It reads the clocks, drives the shape, flushes, and reads the clocks again. So the CPU time has the making, encoding and
//     delivery of the same spans.
//  3. It compares the number of spans with the sink's count and with the span account
//     of our host. Except in lossy shapes, a lost or repeated span is an error.
//
// No load exceeds its row: the SDK's batch processor runs with WithBlocking. Our host
// never blocks, so the load reads its statistics, and waits if too many spans wait.
// The figures include this.
package spanpath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// order is the case of a child.
type order struct {
	Row   string         `json:"row"`
	Shape string         `json:"shape"`
	Bin   string         `json:"bin"`
	Sink  sink.Addresses `json:"sink"`
	// Profile is the prefix of profiles. If it is empty, none are taken.
	Profile string `json:"profile,omitempty"`
}

// runCase is the process of a case. It reads an order and writes a sample.
func runCase(ctx context.Context, _ []string, in io.Reader, out io.Writer) error {
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	measureCase := measureWay
	if o.Shape == shapeEncode {
		measureCase = measureEncoding
	}
	sample, err := measureCase(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(sample)
}

// warmUp is the time of the load before the measurement.
const warmUp = 300 * time.Millisecond

func measureWay(ctx context.Context, o order) (suite.Sample, error) {
	row, err1 := findRow(o.Row)
	shape, err2 := findShape(o.Shape)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return measureRow(ctx, o, row, shape)
}

// measureRow opens the row, drives the shape and closes the row.
func measureRow(ctx context.Context, o order, row row, shape shape) (sample suite.Sample, err error) {
	live := measure.LiveHeap()
	defer runtime.KeepAlive(live)
	w, err := row.open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 6*time.Second)
		defer cancel()
		if closed := w.close(closing); closed != nil && !shape.lossy {
			err = errors.Join(err, fmt.Errorf("close: %w", closed))
		}
	}()
	c := &measurement{order: o, row: row, shape: shape, way: w, driver: newDriver(w)}
	if shape.timed {
		provider := newProvider(timed{w.processor, &c.driver.inOnEnd})
		w.produce = func() func(int) { return produceWith(provider) }
	}
	return c.measure(ctx)
}

// measurement is a case in progress.
type measurement struct {
	order  order
	row    row
	shape  shape
	way    *way
	driver *driver
}

// reading has the clocks and counters at a moment.
type reading struct {
	at                 time.Time
	host, plugin, sink time.Duration
	heap               measure.Heap
	taken              uint64 // by the sink
	ended, delivered   uint64 // by the span account
}

func (c *measurement) measure(ctx context.Context) (suite.Sample, error) {
	if err := c.order.Sink.SetLatency(ctx, 0); err != nil {
		return nil, err
	}
	c.shape.drive(ctx, c.driver, min(warmUp, c.shape.length))
	if _, err := c.settle(ctx); err != nil {
		return nil, fmt.Errorf("warm-up: %w", err)
	}
	if err := c.order.Sink.SetLatency(ctx, c.shape.latency); err != nil {
		return nil, err
	}
	c.driver.calls.Reset()
	c.driver.onEnds.Reset()
	runtime.GC()
	before, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	if c.shape.kill {
		pid := c.way.plugins()[0]
		killer := time.AfterFunc(c.shape.length/2, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		defer killer.Stop()
	}
	stopProfile, err := measure.Profile(c.order.Profile)
	if err != nil {
		return nil, err
	}
	made := c.shape.drive(ctx, c.driver, c.shape.length)
	after, err := c.settle(ctx)
	if err := errors.Join(err, stopProfile()); err != nil {
		return nil, err
	}
	return c.sample(made, before, after)
}

// flushTime bounds a flush, which may include a restart of the plugin.
const flushTime = 20 * time.Second

// settle flushes, and reads the clocks. The sink counts spans before it answers, so it
// has all spans after a flush.
func (c *measurement) settle(ctx context.Context) (reading, error) {
	if c.driver.err != nil {
		return reading{}, c.driver.err
	}
	flushing, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := c.way.flush(flushing); err != nil && !c.shape.lossy {
		return reading{}, fmt.Errorf("flush: %w", err)
	}
	return c.read(ctx)
}

func (c *measurement) read(ctx context.Context) (r reading, err error) {
	r.at = time.Now()
	r.host = measure.SelfCPU()
	r.heap = measure.ReadHeap()
	if !c.shape.kill { // the clock of a killed plugin is lost
		for _, pid := range c.way.plugins() {
			cpu, err := measure.ProcessCPU(pid)
			if err != nil {
				return r, err
			}
			r.plugin += cpu
		}
	}
	if r.sink, err = c.order.Sink.CPU(); err != nil {
		return r, err
	}
	if c.way.host != nil {
		s := c.way.host.Stats()
		if err := s.Check(); err != nil {
			return r, fmt.Errorf("span account: %w", err)
		}
		r.ended = s.Ended
		for _, x := range s.Exporters {
			r.delivered += x.Delivered
		}
	}
	r.taken, err = c.order.Sink.Spans(ctx)
	return r, err
}

// sample returns the figures, or an error if spans are missing.
func (c *measurement) sample(made uint64, before, after reading) (suite.Sample, error) {
	taken := after.taken - before.taken
	delivered, twice := taken, uint64(0)
	if c.row.nowhere {
		delivered = made
	}
	if c.way.host != nil {
		if ended := after.ended - before.ended; ended != made {
			return nil, fmt.Errorf("%d spans were made, but the span account has %d", made, ended)
		}
		delivered = after.delivered - before.delivered
		if c.row.nowhere {
			taken = delivered
		}
		if taken < delivered {
			return nil, fmt.Errorf("by the span account %d spans were delivered, but the sink has received %d", delivered, taken)
		}
		twice = taken - delivered
	}
	if !c.shape.lossy && (delivered != made || twice != 0) {
		return nil, fmt.Errorf("%d spans were made, %d delivered, and %d more than once: their cost is unknown%s", made, delivered, twice, c.account())
	}
	s := suite.Sample{
		suite.Of(suite.Spans, "ended"):     float64(made),
		suite.Of(suite.Spans, "delivered"): float64(delivered),
		suite.Of(suite.Spans, "lost"):      float64(made - min(made, delivered)),
	}
	if twice > 0 || c.shape.kill {
		s[suite.Of(suite.Spans, "twice")] = float64(twice)
	}
	for metric, h := range map[string]*hdrhistogram.Histogram{suite.Call: c.driver.calls, suite.OnEnd: c.driver.onEnds} {
		if h.TotalCount() > 0 {
			s[suite.Of(metric, "p50")] = float64(h.ValueAtQuantile(50))
			s[suite.Of(metric, "p99")] = float64(h.ValueAtQuantile(99))
		}
	}
	c.addCosts(s, float64(max(1, delivered)), before, after)
	return s, nil
}

// account describes the missing spans by the account of our host.
func (c *measurement) account() string {
	if c.way.host == nil {
		return ""
	}
	s := c.way.host.Stats()
	x := s.Exporters[0]
	return fmt.Sprintf(" (span account: refused %v, dropped %v, rejected %v, waiting %d, last error %q)", s.Refused, x.Dropped, x.Rejected, x.Waiting, x.LastError)
}

// addCosts adds the costs of a delivered span.
func (c *measurement) addCosts(s suite.Sample, delivered float64, before, after reading) {
	host, plugin := float64(after.host-before.host), float64(after.plugin-before.plugin)
	heap := after.heap.Sub(before.heap)
	s[suite.Of(suite.CPU, "host")] = host / delivered
	s[suite.Of(suite.CPU, "total")] = (host + plugin) / delivered
	s[suite.Of(suite.CPU, "sink")] = float64(after.sink-before.sink) / delivered
	s[suite.Bytes] = float64(heap.Bytes) / delivered
	s[suite.Allocs] = float64(heap.Objects) / delivered
	s[suite.Rate] = delivered / after.at.Sub(before.at).Seconds()
	peak := func(part string, pid int) {
		if m, err := measure.Memory(pid); err == nil {
			s[suite.Of(suite.PeakRSS, part)] = max(s[suite.Of(suite.PeakRSS, part)], float64(m.VmHWM)/(1<<20))
		}
	}
	peak("host", os.Getpid())
	for _, pid := range c.way.plugins() {
		peak("plugin", pid)
	}
	if c.way.host != nil && !c.shape.kill {
		s[suite.Of(suite.CPU, "plugin")] = plugin / delivered
	}
}
