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

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// order is what the parent tells a child.
type order struct {
	Row   string         `json:"row"`
	Shape string         `json:"shape"`
	Bin   string         `json:"bin"`
	Sink  sink.Addresses `json:"sink"`
	// Profile is what files of profiles begin with; empty: none are taken.
	Profile string `json:"profile,omitempty"`
}

// Child is the process of a case: it reads an order and writes a sample.
func Child(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var o order
	if err := json.NewDecoder(stdin).Decode(&o); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	var sample suite.Sample
	var err error
	if o.Shape == shapeEncode {
		sample, err = measureEncoding(ctx, o.Row)
	} else {
		sample, err = measureWay(ctx, o)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(sample)
}

// liveBytes stay allocated, in blocks without pointers: what they do is set the
// collector's pace.
const liveBytes = 64 << 20

func liveHeap() [][]byte {
	blocks := make([][]byte, liveBytes>>20)
	for i := range blocks {
		blocks[i] = make([]byte, 1<<20)
	}
	return blocks
}

// warmUp is for how long spans are made before anything counts.
const warmUp = 300 * time.Millisecond

func measureWay(ctx context.Context, o order) (suite.Sample, error) {
	row, err := findRow(o.Row)
	if err != nil {
		return nil, err
	}
	shape, err := findShape(o.Shape)
	if err != nil {
		return nil, err
	}
	return measureRow(ctx, o, row, shape)
}

// measureRow opens the row, drives the shape and closes it again, whatever
// happens in between.
func measureRow(ctx context.Context, o order, row row, shape shape) (sample suite.Sample, err error) {
	r := rig{sink: o.Sink, bin: o.Bin, lossy: shape.lossy}
	live := liveHeap()
	defer runtime.KeepAlive(live)
	w, err := row.open(ctx, r)
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
	c := &child{order: o, row: row, shape: shape, way: w, driver: &driver{way: w}}
	if shape.timed {
		provider := newProvider(timed{w.processor, &c.driver.inOnEnd})
		w.produce = func() func(int) { return produceWith(provider) }
	}
	return c.measure(ctx)
}

// child is a case under way.
type child struct {
	order  order
	row    row
	shape  shape
	way    *way
	driver *driver
}

// reading is what the clocks and counters say at a moment.
type reading struct {
	at                 time.Time
	host, plugin, sink time.Duration
	heap               measure.Heap
	taken              sink.Counts
	ended, delivered   uint64 // by the books; delivered by each exporter
}

func (c *child) measure(ctx context.Context) (suite.Sample, error) {
	if err := c.order.Sink.SetLatency(ctx, 0); err != nil {
		return nil, err
	}
	before, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.settle(ctx, c.shape.drive(ctx, c.driver, min(warmUp, c.shape.length)), before); err != nil {
		return nil, fmt.Errorf("warm-up: %w", err)
	}
	if err := c.order.Sink.SetLatency(ctx, c.shape.latency); err != nil {
		return nil, err
	}
	c.driver.calls, c.driver.onEnds = measure.Histogram{}, measure.Histogram{}
	runtime.GC()
	if before, err = c.read(ctx); err != nil {
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
	after, err := c.settle(ctx, made, before)
	if err := errors.Join(err, stopProfile()); err != nil {
		return nil, err
	}
	return c.sample(made, before, after)
}

// Bounds of what follows the driving: for flushing, which takes the time of a
// plugin's restart at most, and for spans that are under way without anybody
// knowing of them.
const (
	flushTime    = 20 * time.Second
	sinkPatience = 500 * time.Millisecond
)

// settle waits until all that was made is delivered, and reads the clocks. Where
// spans may be lost, it waits until no more come.
func (c *child) settle(ctx context.Context, made uint64, before reading) (reading, error) {
	if c.driver.err != nil {
		return reading{}, c.driver.err
	}
	flushing, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := c.way.flush(flushing); err != nil && !c.shape.lossy {
		return reading{}, fmt.Errorf("flush: %w", err)
	}
	if !c.row.nowhere && !c.shape.lossy {
		if _, err := c.order.Sink.AwaitSpans(ctx, before.taken.Spans+made, sinkPatience); err != nil {
			return reading{}, err
		}
	}
	return c.read(ctx)
}

func (c *child) read(ctx context.Context) (r reading, err error) {
	r.at = time.Now()
	r.host = measure.SelfCPU()
	r.heap = measure.ReadHeap()
	if c.way.plugins != nil && !c.shape.kill { // one that was killed has taken its clock with it
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
			return r, fmt.Errorf("books: %w", err)
		}
		r.ended = s.Ended
		for _, x := range s.Exporters {
			r.delivered += x.Delivered
		}
	}
	r.taken, err = c.order.Sink.Counts(ctx)
	return r, err
}

// sample makes the figures, and refuses to where spans are missing.
func (c *child) sample(made uint64, before, after reading) (suite.Sample, error) {
	taken := after.taken.Spans - before.taken.Spans
	delivered := taken
	twice := uint64(0)
	if c.row.nowhere {
		delivered = made
	}
	if c.way.host != nil {
		ended := after.ended - before.ended
		if ended != made {
			return nil, fmt.Errorf("%d spans were made, but the books know of %d", made, ended)
		}
		delivered = after.delivered - before.delivered
		if c.row.nowhere {
			taken = delivered
		}
		if taken < delivered {
			return nil, fmt.Errorf("by the books %d spans were delivered, but the sink has taken %d", delivered, taken)
		}
		twice = taken - delivered
	}
	if !c.shape.lossy && (delivered != made || twice != 0) {
		return nil, fmt.Errorf("%d spans were made, %d delivered, and %d more than once: nothing can be said of their cost%s", made, delivered, twice, c.books())
	}
	s := suite.Sample{
		suite.Of(suite.Spans, "ended"):     float64(made),
		suite.Of(suite.Spans, "delivered"): float64(delivered),
		suite.Of(suite.Spans, "lost"):      float64(made - min(made, delivered)),
	}
	if twice > 0 || c.shape.kill {
		s[suite.Of(suite.Spans, "twice")] = float64(twice)
	}
	c.addLatencies(s)
	c.addCosts(s, float64(max(1, delivered)), before, after)
	return s, nil
}

// books says what our host knows of spans that are missing.
func (c *child) books() string {
	if c.way.host == nil {
		return ""
	}
	s := c.way.host.Stats()
	x := s.Exporters[0]
	return fmt.Sprintf(" (books: refused %v, dropped %v, rejected %v, waiting %d, last error %q)", s.Refused, x.Dropped, x.Rejected, x.Waiting, x.LastError)
}

func (c *child) addLatencies(s suite.Sample) {
	for metric, h := range map[string]*measure.Histogram{suite.Call: &c.driver.calls, suite.OnEnd: &c.driver.onEnds} {
		if h.Count() > 0 {
			s[suite.Of(metric, "p50")] = float64(h.Quantile(0.5))
			s[suite.Of(metric, "p99")] = float64(h.Quantile(0.99))
		}
	}
}

// addCosts adds the costs of a delivered span.
func (c *child) addCosts(s suite.Sample, delivered float64, before, after reading) {
	per := delivered
	host, plugin := after.host-before.host, after.plugin-before.plugin
	s[suite.Of(suite.CPU, "host")] = float64(host) / per
	s[suite.Of(suite.CPU, "total")] = float64(host) / per
	s[suite.Of(suite.CPU, "sink")] = float64(after.sink-before.sink) / per
	heap := after.heap.Sub(before.heap)
	s[suite.Bytes] = float64(heap.Bytes) / per
	s[suite.Allocs] = float64(heap.Objects) / per
	s[suite.Rate] = delivered / after.at.Sub(before.at).Seconds()
	if rss, err := measure.PeakRSS(os.Getpid()); err == nil {
		s[suite.Of(suite.PeakRSS, "host")] = float64(rss) / (1 << 20)
	}
	if c.way.plugins == nil {
		return
	}
	for _, pid := range c.way.plugins() {
		if rss, err := measure.PeakRSS(pid); err == nil {
			s[suite.Of(suite.PeakRSS, "plugin")] = max(s[suite.Of(suite.PeakRSS, "plugin")], float64(rss)/(1<<20))
		}
	}
	if c.shape.kill { // the first plugin's clock is gone
		return
	}
	s[suite.Of(suite.CPU, "plugin")] = float64(plugin) / per
	s[suite.Of(suite.CPU, "total")] = float64(host+plugin) / per
}
