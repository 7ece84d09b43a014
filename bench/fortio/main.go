// Command fortio makes load as fortio does, whose clients, runner and histogram
// it is, for benchmarks that are not to rest on a load generator of our own.
// It takes the flags of the role "load" of program bench, and talks as that
// does: an order a line in, an outcome a line out.
//
// It is a module of its own, so that what fortio needs stays out of everything
// else; and it is a command of ours because fortio's has a calculator built in,
// from a module that is not to be had everywhere.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"fortio.org/fortio/fgrpc"
	"fortio.org/fortio/fhttp"
	"fortio.org/fortio/periodic"
	"fortio.org/fortio/stats"
	"fortio.org/log"
	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fortio:", err)
		os.Exit(1)
	}
}

// target is what the load is on.
type target struct {
	addr, body, method   string
	connections, streams int
}

// order and outcome are those of package serveload.
type order struct {
	For  time.Duration `json:"for_ns"`
	Rate float64       `json:"rate"`
}

type outcome struct {
	Answered uint64        `json:"answered"`
	Failed   uint64        `json:"failed"`
	Fault    string        `json:"fault,omitempty"`
	Took     time.Duration `json:"took_ns"`
	P50      time.Duration `json:"p50_ns"`
	P95      time.Duration `json:"p95_ns"`
	P99      time.Duration `json:"p99_ns"`
	CPU      time.Duration `json:"cpu_ns"`
}

func run(args []string, in io.Reader, out io.Writer) error {
	log.SetLogLevelQuiet(log.Error)
	var t target
	flags := flag.NewFlagSet("fortio", flag.ContinueOnError)
	flags.StringVar(&t.addr, "addr", "", "`address` of the server")
	flags.StringVar(&t.body, "body", "", "what to send; without it, HTTP is GET")
	flags.StringVar(&t.method, "method", "", "a method of gRPC, `service/method`; without it, the load is HTTP")
	flags.IntVar(&t.connections, "connections", 32, "how many")
	flags.IntVar(&t.streams, "streams", 1, "calls at a time on each, with gRPC")
	if err := flags.Parse(args); err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		before := cpu()
		got, err := t.load(o)
		if err != nil {
			return err
		}
		got.CPU = cpu() - before
		if err := enc.Encode(got); err != nil {
			return err
		}
	}
	return nil
}

// load runs one order. fortio opens its connections anew for each.
func (t target) load(o order) (outcome, error) {
	options := periodic.RunnerOptions{
		QPS: o.Rate, Duration: o.For, NumThreads: t.connections,
		Percentiles: []float64{50, 95, 99}, Resolution: time.Microsecond.Seconds(), Out: io.Discard,
	}
	if o.Rate == 0 {
		options.QPS = -1 // as fast as answers come
	}
	var results *periodic.RunnerResults
	if t.method != "" {
		r, err := fgrpc.RunGRPCTest(&fgrpc.GRPCRunnerOptions{
			RunnerOptions: options, Destination: t.addr, Streams: t.streams, GrpcMethod: t.method, Payload: t.body,
		})
		if err != nil {
			return outcome{}, err
		}
		results = &r.RunnerResults
	} else {
		o := &fhttp.HTTPRunnerOptions{RunnerOptions: options}
		o.Init("http://" + t.addr + "/")
		o.Payload = []byte(t.body)
		r, err := fhttp.RunHTTPTest(o)
		if err != nil {
			return outcome{}, err
		}
		results = &r.RunnerResults
	}
	out := outcome{
		Failed: uint64(results.ErrorsDurationHistogram.Count), Took: results.ActualDuration,
		P50: percentile(results.DurationHistogram, 50), P95: percentile(results.DurationHistogram, 95), P99: percentile(results.DurationHistogram, 99),
	}
	out.Answered = uint64(results.DurationHistogram.Count) - out.Failed
	if out.Failed > 0 {
		out.Fault = "fortio says of none why"
	}
	return out, nil
}

func percentile(h *stats.HistogramData, percent float64) time.Duration {
	for _, p := range h.Percentiles {
		if p.Percentile == percent {
			return time.Duration(p.Value * float64(time.Second))
		}
	}
	return 0
}

// cpu is the user and system time of this process.
func cpu() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) // can not fail for a clock that exists
	return time.Duration(ts.Nano())
}
