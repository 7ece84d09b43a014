package serveload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// roleLoad is the role of a load generator.
const roleLoad = "load"

// order is a run of the load. Each connection sends a request after each answer.
type order struct {
	For time.Duration `json:"for_ns"`
	// Anew resets the percentiles. Otherwise they include the orders before.
	Anew bool `json:"anew,omitempty"`
}

// outcome is the result of an order.
type outcome struct {
	Answered uint64        `json:"answered"`
	Failed   uint64        `json:"failed"`
	Fault    string        `json:"fault,omitempty"` // the first
	Took     time.Duration `json:"took_ns"`
	P50      time.Duration `json:"p50_ns"`
	P95      time.Duration `json:"p95_ns"`
	P99      time.Duration `json:"p99_ns"`
	CPU      time.Duration `json:"cpu_ns"` // of this process
}

// client is one connection.
type client interface {
	// run sends requests until the clock ends, and returns after the last answer. After
	// an error the connection is unusable.
	run(*clock) error
	io.Closer
}

// runLoad is the process of a load generator. It runs an order for each line of in,
// and writes its outcome. The connections stay open, without a request in flight
// between two orders. They close when ctx ends.
func runLoad(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet(roleLoad, flag.ContinueOnError)
	addr := flags.String("addr", "", "`address` of the server")
	app := flags.String("app", appHello, "what it serves: `hello` or echo")
	conns := flags.Int("connections", 32, "how many")
	streams := flags.Int("streams", 1, "calls at a time on each, with gRPC")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var clients []client
	hangUp := func() {
		for _, c := range clients {
			_ = c.Close() // the load is over
		}
	}
	defer hangUp()
	for range *conns {
		c, err := dial(ctx, *app, *addr, *streams)
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	defer context.AfterFunc(ctx, hangUp)()
	enc := json.NewEncoder(out)
	latency := measure.NewHistogram()
	clocks := newClocks(len(clients))
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		if o.Anew {
			latency.Reset()
		}
		if err := enc.Encode(runOrder(clients, clocks, o, latency)); err != nil {
			return err
		}
	}
	return nil
}

func dial(ctx context.Context, app, addr string, streams int) (client, error) {
	switch app {
	case appHello:
		return dialHTTP(ctx, addr, getRequest(addr), helloBody)
	case appEcho:
		return dialGRPC(ctx, addr, streams)
	}
	return nil, errUnknownApp(app)
}

// runOrder runs all clients concurrently, and adds their times to latency.
func runOrder(clients []client, clocks []*clock, o order, latency *hdrhistogram.Histogram) outcome {
	start := time.Now()
	faults := make([]error, len(clients))
	before := measure.SelfCPU()
	var all sync.WaitGroup
	for i, c := range clients {
		clocks[i].reset(start.Add(o.For))
		all.Go(func() { faults[i] = c.run(clocks[i]) })
	}
	all.Wait()
	out := outcome{Took: time.Since(start), CPU: measure.SelfCPU() - before}
	for i, c := range clocks {
		latency.Merge(c.latency)
		out.Answered += uint64(c.latency.TotalCount()) //nolint:gosec // a count
		out.Failed += c.failed
		if err := errors.Join(faults[i], c.fault); err != nil && out.Fault == "" {
			out.Fault = err.Error()
		}
		if faults[i] != nil {
			out.Failed++
		}
	}
	at := func(percentile float64) time.Duration { return time.Duration(latency.ValueAtPercentile(percentile)) }
	out.P50, out.P95, out.P99 = at(50), at(95), at(99)
	return out
}

// clock tells a client when to send, and keeps its measurements.
type clock struct {
	end     time.Time // of the order
	latency *hdrhistogram.Histogram
	failed  uint64
	fault   error // the first
	begun   bool
}

func newClocks(n int) []*clock {
	clocks := make([]*clock, n)
	for i := range clocks {
		clocks[i] = &clock{latency: measure.NewHistogram()}
	}
	return clocks
}

func (c *clock) reset(end time.Time) {
	c.latency.Reset()
	*c = clock{end: end, latency: c.latency}
}

// begin returns the time, and whether the client must send another request. A client
// sends at least one request, even if it is late.
func (c *clock) begin() (time.Time, bool) {
	now := time.Now()
	more := now.Before(c.end) || !c.begun
	c.begun = true
	return now, more
}

// answered counts the answer to a request that began at the given time.
func (c *clock) answered(began time.Time) {
	_ = c.latency.RecordValue(int64(time.Since(began))) // no request takes as long as the limit
}

// wrong counts a wrong answer.
func (c *clock) wrong(format string, args ...any) {
	c.failed++
	if c.fault == nil {
		c.fault = fmt.Errorf(format, args...)
	}
}
