// Package spanpath measures the cost of a span on its way from a program to a back
// end, for our host and for its peers.
//
// A row is a way (rows.go), a shape is a load (cases.go, drive.go). Each row is
// measured in a child process, which is the process "host" of the figures:
//
//  1. The child opens the row and keeps 64 MiB alive. It drives the shape for a
//     moment, waits until all spans are delivered, and uses the heap up to the garbage
//     collector's goal.
//  2. In each turn, it reads the clocks, drives the shape, flushes, and reads the
//     clocks again. So the CPU time has the making, encoding and delivery of the same
//     spans. If a shape has several turns, its rows alternate.
//  3. It compares the number of spans with the sink's count and with the delivery accounting
//     of our host. Except in lossy shapes, a lost or repeated span is an error.
//
// No load exceeds its row: the SDK's batch processor runs with WithBlocking. Our host
// never blocks, so the load reads its statistics, and waits if too many spans wait.
// The figures include this.
//
// soak.go watches memory while the sink is down.
package spanpath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/host"
)

// order is the row and the shape of a child. Path is a prefix of the sink's paths for
// our plugins.
type order struct {
	Row, Shape, Bin, Path, Collector string
	Sink                             sink.Addresses
}

// runOrder is the process of a row. Its argument is an order as JSON. It writes true when
// the row is open. For each value that it reads it measures the row once, and writes the
// sample.
func runOrder(args []string, in io.Reader, out io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	row, known := rows[o.Row]
	i := slices.IndexFunc(shapes, func(s shape) bool { return s.Name == o.Shape })
	ctx := context.Background()
	switch {
	case o.Shape == shapeEncode:
		return child.Answer(in, out, true, func(bool) (any, error) { return measureEncoding(ctx, o) })
	case !known || i < 0:
		return fmt.Errorf("no row %q in a shape %q", o.Row, o.Shape)
	}
	m, err := open(ctx, o, row, shapes[i])
	if err == nil {
		err = child.Answer(in, out, true, func(bool) (any, error) { return m.measure(ctx) })
		err = errors.Join(err, m.close(ctx))
	}
	return err
}

// warmUp is the time of the load before the measurement.
const warmUp = 300 * time.Millisecond

// open opens the row and warms it up.
func open(ctx context.Context, o order, row row, shape shape) (*measurement, error) {
	measure.KeepLiveHeap()
	m := &measurement{order: o, row: row, shape: shape, onEnds: hdrhistogram.New(1, int64(time.Minute), 2)}
	var err error
	if m.way, err = row.open(ctx, o); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if shape.timed {
		provider := newProvider(timed{m.way.processor, m.onEnds})
		m.way.produce = func() func(int) { return produceWith(provider) }
	}
	if err := m.warmUp(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("warm-up: %w", err), m.close(ctx))
	}
	return m, nil
}

// close closes the row.
func (c *measurement) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 6*time.Second)
	defer cancel()
	if err := c.way.close(ctx); err != nil && !c.shape.lossy {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// timed records the time of each OnEnd. It is for one producer.
type timed struct {
	sdktrace.SpanProcessor

	to *hdrhistogram.Histogram
}

func (t timed) OnEnd(s sdktrace.ReadOnlySpan) {
	from := time.Now()
	t.SpanProcessor.OnEnd(s)
	_ = t.to.RecordValue(int64(time.Since(from))) // no call takes as long as the limit
}

// measurement is a row in progress.
type measurement struct {
	order  order
	row    row
	shape  shape
	way    *way
	onEnds *hdrhistogram.Histogram // in nanoseconds
}

// reading has the clocks and counters at a moment.
type reading struct {
	at      time.Time
	host    time.Duration // or the relay with its plugin
	plugins []time.Duration

	objects, bytes float64 // allocated by the host

	taken   uint64 // by the sink
	account host.Stats
}

// warmUp drives the shape without measuring it, and uses the rest of the heap.
func (c *measurement) warmUp(ctx context.Context) error {
	before, err := c.read(ctx)
	if err != nil {
		return err
	}
	_, _, err = c.drive(ctx, before, min(warmUp, c.shape.length))
	c.onEnds.Reset()
	measure.UseHeap()
	runtime.GC()
	return err
}

// measure drives the shape once.
func (c *measurement) measure(ctx context.Context) (suite.Sample, error) {
	before, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	if c.shape.kill {
		pid := c.way.plugins()[0].PID
		killer := time.AfterFunc(c.shape.length/2, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		defer killer.Stop()
	}
	made, after, err := c.drive(ctx, before, c.shape.length)
	if err != nil {
		return nil, err
	}
	return c.sample(made, before, after)
}

// flushTime bounds a flush, which may include a restart of the plugin.
const flushTime = 20 * time.Second

// drive makes spans, flushes, and reads the clocks. The sink counts spans before it
// answers, so it has all spans after a flush.
func (c *measurement) drive(ctx context.Context, before reading, length time.Duration) (made uint64, after reading, err error) {
	made = c.shape.drive(c.way, length) * max(1, c.way.batch)
	flushing, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := c.way.flush(flushing, before.taken+made); err != nil && !c.shape.lossy {
		return made, after, fmt.Errorf("flush: %w", err)
	}
	after, err = c.read(ctx)
	return made, after, err
}

func (c *measurement) read(ctx context.Context) (r reading, err error) {
	r.at, r.host = time.Now(), measure.SelfCPU()
	if c.way.relay != 0 {
		if r.host, err = measure.ProcessCPU(c.way.relay); err != nil {
			return r, err
		}
		r.host += measure.ChildrenCPU(c.way.relay)
	}
	r.objects, r.bytes = measure.HeapAllocs()
	if c.way.host != nil {
		r.account = c.way.host.Stats()
		if err := r.account.Check(); err != nil {
			return r, fmt.Errorf("delivery accounting: %w", err)
		}
	}
	for _, x := range r.account.Plugins() {
		cpu, err := measure.ProcessCPU(x.PID)
		if err != nil && !c.shape.kill {
			return r, err
		}
		r.plugins = append(r.plugins, cpu)
	}
	r.taken, err = c.order.Sink.Spans(ctx)
	return r, err
}

// delivered returns the number of spans that each plugin, or the row, has delivered, or
// an error if spans are missing.
func (c *measurement) delivered(made uint64, before, after reading) (uint64, error) {
	taken := after.taken - before.taken
	switch {
	case made == 0:
		return 0, errors.New("no spans were made")
	case c.row.nowhere && c.way.host == nil:
		return made, nil
	case c.way.host == nil:
		if taken != made && !c.shape.lossy {
			return 0, fmt.Errorf("%d spans were made, and the sink has received %d: their cost is unknown", made, taken)
		}
		return min(made, taken), nil
	}
	if ended := after.account.Ended - before.account.Ended; ended != made {
		return 0, fmt.Errorf("%d spans were made, but the delivery accounting has %d", made, ended)
	}
	least, sum := made, uint64(0)
	for i, x := range after.account.Exporters {
		n := x.Delivered - before.account.Exporters[i].Delivered
		sum += n
		if least = min(least, n); least < made && !c.shape.lossy {
			return 0, fmt.Errorf("%d spans were made, and %q has delivered %d: their cost is unknown (refused %v, dropped %v, rejected %v, waiting %d, last error %q)",
				made, x.Name, n, after.account.Refused, x.Dropped, x.Rejected, x.Waiting, x.LastError)
		}
	}
	if !c.row.nowhere && (taken < sum || taken > sum && !c.shape.lossy) {
		return 0, fmt.Errorf("%d spans are counted as delivered, but the sink has received %d", sum, taken)
	}
	return least, nil
}

// sample returns the figures, or an error if spans are missing.
func (c *measurement) sample(made uint64, before, after reading) (suite.Sample, error) {
	delivered, err := c.delivered(made, before, after)
	if err != nil {
		return nil, err
	}
	n := float64(max(1, delivered))
	each := func(d time.Duration) float64 { return float64(d) / n }
	total := after.host - before.host
	s := suite.Sample{rate: float64(delivered) / after.at.Sub(before.at).Seconds(), lost: float64(made - delivered)}
	if c.way.relay != 0 {
		s[cpuRelay], s[rate] = each(total), float64(made)/c.shape.length.Seconds()
		return s, nil
	}
	s[cpuHost], s[cpuTotal] = each(total), each(total)
	s[heapBytes], s[allocs] = (after.bytes-before.bytes)/n, (after.objects-before.objects)/n
	for i, x := range after.account.Plugins() {
		if m, err := measure.Memory(x.PID); err == nil {
			s[pluginRSS] = max(s[pluginRSS], float64(m.VmHWM)/(1<<20))
		}
		if !c.shape.kill { // the clock of a killed plugin is lost
			cpu := after.plugins[i] - before.plugins[i]
			total += cpu
			s[cpuOf(x.Name)], s[cpuTotal] = each(cpu), each(total)
		}
	}
	if c.shape.timed {
		s[onEndP50], s[onEndP99] = float64(c.onEnds.ValueAtQuantile(50)), float64(c.onEnds.ValueAtQuantile(99))
	}
	return s, nil
}
