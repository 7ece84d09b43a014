package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/progress"
)

// benchSubject is one of the two plugins that are measured, with its measurement so far.
type benchSubject struct {
	name    string
	cfg     host.Config
	session *host.Session
	batches []request // batches to send, within the plugin's limits
	next    int       // index of the next batch

	mu        sync.Mutex
	spans     int             // number of spans that the plugin accepted
	lost      int             // number of spans in calls with an error
	failed    error           // error of the first call with an error
	latencies []time.Duration // latencies of the calls without an error
	took, cpu time.Duration   // time of all turns, and the CPU time of the plugin's process in it
}

// benchWarm is the time for which a plugin gets batches before the measurement begins.
const benchWarm = 500 * time.Millisecond

// measureAll starts the plugins, and then measures one after the other in several rounds.
func measureAll(ctx context.Context, subjects []*benchSubject, requests []request, f benchFlags, report *progress.Report, output *os.File) error {
	for _, x := range subjects {
		var logged bytes.Buffer
		session, err := openSession(ctx, x.cfg, &logged, host.WithOutput(output))
		if err != nil {
			return fmt.Errorf("plugin %s: %w\n%s", x.name, err, logged.String())
		}
		defer func() { _ = session.Stop() }() // the measurement is complete, so an error at the end of the plugin does not matter
		x.session = session
		for batch, err := range batches(requests, session.Inspection()) {
			if err != nil {
				return err
			}
			x.batches = append(x.batches, batch)
		}
		report.At(x.name+": warm-up", 0, 0)
		if err := x.measure(ctx, benchWarm, f.calls); err != nil {
			return err
		}
		x.reset()
	}
	turn := f.duration / (benchRounds * time.Duration(len(subjects)))
	for round := range benchRounds {
		for i, x := range subjects {
			report.At(x.name, round*len(subjects)+i, benchRounds*len(subjects))
			if err := x.measure(ctx, turn, f.calls); err != nil {
				return err
			}
		}
	}
	return nil
}

// reset removes the measurement of the warm-up.
func (x *benchSubject) reset() {
	x.spans, x.lost, x.failed, x.latencies, x.took, x.cpu = 0, 0, nil, nil, 0, 0
}

// measure sends batches for the duration of a turn. calls is the number of concurrent calls.
func (x *benchSubject) measure(ctx context.Context, turn time.Duration, calls int) error {
	before, began := cpuOf(x.session.PID()), time.Now()
	var sending sync.WaitGroup
	for range calls {
		sending.Go(func() { // ends with the turn
			for time.Since(began) < turn && ctx.Err() == nil && x.call(ctx) {
			}
		})
	}
	sending.Wait()
	x.took += time.Since(began)
	x.cpu += cpuOf(x.session.PID()) - before
	if exit, ended := x.session.Ended(ctx, host.Answer{}); ended {
		return fmt.Errorf("plugin %s ended: %s", x.name, exit)
	}
	return context.Cause(ctx)
}

// call sends the next batch and counts its spans. It returns false after a retryable error,
// because a host would pause after such an error.
func (x *benchSubject) call(ctx context.Context) bool {
	x.mu.Lock()
	batch := x.batches[x.next%len(x.batches)]
	x.next++
	x.mu.Unlock()
	began := time.Now()
	ans := x.session.Export(ctx, batch.data)
	took := time.Since(began)
	x.mu.Lock()
	defer x.mu.Unlock()
	if ans.Err != nil {
		x.lost += batch.spans
		if x.failed == nil {
			x.failed = ans.Err
		}
		return ans.Final
	}
	x.spans += batch.spans
	x.latencies = append(x.latencies, took)
	return true
}

// cpuOf returns the CPU time that a process has used, or zero if it is not known. The
// file /proc/PID/stat has it in hundredths of a second: proc_pid_stat(5).
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // fields[0] is the third field of the file
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// benchBatch returns a request as a service would send it: 512 spans of 128 traces, each
// with eight attributes.
func benchBatch() request {
	const spans = 512
	scope := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: runSpan}}
	end := uint64(time.Now().UnixNano())
	for i := range spans {
		scope.Spans = append(scope.Spans, &tracepb.Span{
			TraceId: fmt.Appendf(nil, "%016d", i/4+1), SpanId: fmt.Appendf(nil, "%08d", i+1),
			Name: "GET /items/{id}", Kind: tracepb.Span_SPAN_KIND_SERVER, StartTimeUnixNano: end - 1e6, EndTimeUnixNano: end,
			Attributes: keyValues(map[string]any{
				"http.request.method": "GET", "http.route": "/items/{id}", "url.path": "/items/" + strconv.Itoa(i),
				"url.scheme": "https", "server.address": "shop.example.com", "user_agent.original": "Mozilla/5.0 (X11; Linux x86_64)",
				"network.protocol.version": "1.1", "client.address": "192.0.2." + strconv.Itoa(i%256),
			}),
		})
	}
	data, _ := proto.Marshal(&coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: keyValues(map[string]any{"service.name": "shop"})}, ScopeSpans: []*tracepb.ScopeSpans{scope},
	}}}) // fails only for texts that are not UTF-8
	return request{data: data, spans: spans}
}
