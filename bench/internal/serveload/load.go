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

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// RoleLoad is the argument that makes the program a load generator.
const RoleLoad = "load"

// order is one run of load. Each connection sends a request as soon as it has the
// answer to the one before.
type order struct {
	For time.Duration `json:"for_ns"`
	// Anew: percentiles are of this order; else also of those before it.
	Anew bool `json:"anew,omitempty"`
}

// outcome is what came of it.
type outcome struct {
	Answered uint64        `json:"answered"`
	Failed   uint64        `json:"failed"`
	Fault    string        `json:"fault,omitempty"` // of the first that failed
	Took     time.Duration `json:"took_ns"`
	P50      time.Duration `json:"p50_ns"`
	P95      time.Duration `json:"p95_ns"`
	P99      time.Duration `json:"p99_ns"`
	CPU      time.Duration `json:"cpu_ns"` // of this process
}

// client is one connection.
type client interface {
	// run sends requests until the clock says stop, and returns when every answer
	// is in. After an error the connection is of no use.
	run(*clock) error
	io.Closer
}

// RunLoad is a process that makes load: it runs an order for each line of in and
// writes its outcome. The connections stay open from one order to the next;
// between two none has a request in flight. They close when ctx ends.
func RunLoad(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet(RoleLoad, flag.ContinueOnError)
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
	var latency measure.Histogram
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		if o.Anew {
			latency = measure.Histogram{}
		}
		if err := enc.Encode(runLoad(clients, o, &latency)); err != nil {
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

// runLoad has all clients send at a time, and adds to latency.
func runLoad(clients []client, o order, latency *measure.Histogram) outcome {
	start := time.Now()
	clocks := make([]clock, len(clients))
	faults := make([]error, len(clients))
	before := measure.SelfCPU()
	var all sync.WaitGroup
	for i, c := range clients {
		clocks[i].end = start.Add(o.For)
		all.Go(func() { faults[i] = c.run(&clocks[i]) })
	}
	all.Wait()
	out := outcome{Took: time.Since(start), CPU: measure.SelfCPU() - before}
	for i := range clocks {
		latency.Merge(&clocks[i].latency)
		out.Answered += clocks[i].latency.Count()
		out.Failed += clocks[i].failed
		if err := errors.Join(faults[i], clocks[i].fault); err != nil && out.Fault == "" {
			out.Fault = err.Error()
		}
		if faults[i] != nil {
			out.Failed++
		}
	}
	out.P50, out.P95, out.P99 = latency.Quantile(0.50), latency.Quantile(0.95), latency.Quantile(0.99)
	return out
}

// clock is a client's: it tells the client when to send, and keeps what the client
// measured.
type clock struct {
	end     time.Time // of the run
	latency measure.Histogram
	failed  uint64
	fault   error // of the first that failed
	begun   bool
}

// begin returns the time, and whether the client is to send another request: at
// least one, however late the client is.
func (c *clock) begin() (time.Time, bool) {
	now := time.Now()
	more := now.Before(c.end) || !c.begun
	c.begun = true
	return now, more
}

// answered counts the answer to a request that began then.
func (c *clock) answered(began time.Time) { c.latency.Add(time.Since(began)) }

// wrong counts an answer that is not the right one.
func (c *clock) wrong(format string, args ...any) {
	c.failed++
	if c.fault == nil {
		c.fault = fmt.Errorf(format, args...)
	}
}
