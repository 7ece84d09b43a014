package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host/internal/failures"
	"github.com/servetrace/servetrace/internal/total"
)

// spooling is a Pipeline with a spool and a queue for each of two exporters.
type spooling struct {
	*Pipeline
	t      *testing.T
	queues map[string]*Queue
}

// newSpooling returns the Pipeline of a new process, with the batches of the
// processes before it.
func newSpooling(t *testing.T, dir string, change func(*Settings)) *spooling {
	t.Helper()
	cfg := Settings{
		QueueBytes: 1 << 20, MaxSpanBytes: 100 << 10, BatchAge: time.Hour, BatchSpans: 1000, BatchBytes: 100 << 10,
		MaxAge: time.Hour, SpoolDir: dir, SpoolBytes: 64 << 20,
	}
	if change != nil {
		change(&cfg)
	}
	p := &spooling{New(cfg, slog.New(slog.DiscardHandler)), t, map[string]*Queue{}}
	for _, name := range []string{"a", "b"} {
		q := NewQueue(p.Pipeline, name, failures.New(p.log))
		p.Join(q)
		p.queues[name] = q
	}
	p.Spool.Recover(t.Context())
	t.Cleanup(p.stop)
	return p
}

// stop is the end of the process.
func (p *spooling) stop() {
	p.Close()
	p.Flush()
	for _, q := range p.queues {
		p.Spool.Keep(q)
		q.DropRest()
	}
	p.Spool.Close()
	p.balanced()
}

// balanced checks the accounting.
func (p *spooling) balanced() {
	p.t.Helper()
	for q, s := range p.Stats().Queues {
		sum := s.Delivered + s.Spooled + s.Waiting + total.Of(s.Rejected) + total.Of(s.Filtered) + total.Of(s.Dropped)
		if sum != s.Accepted+s.Recovered {
			p.t.Errorf("exporter %s: %d spans accepted and %d recovered, %d accounted for: %+v", q.name, s.Accepted, s.Recovered, sum, s)
		}
	}
}

// send makes a batch of one span, with this name and many bytes.
func (p *spooling) send(name string, size int) error {
	p.t.Helper()
	request, err := proto.Marshal(&coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: name, TraceState: strings.Repeat("x", size)}}}},
	}}})
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = p.Consume(request, "sender "+name[:1])
	p.Flush()
	return err
}

// deliver takes up to n batches of an exporter, delivers them, and returns the names of
// their spans.
func (p *spooling) deliver(exporter string, n int) (names []string) {
	p.t.Helper()
	l := NewLane(p.queues[exporter], func() bool { return false })
	l.Open(Limits{Spans: 1000, Bytes: 1 << 20, Calls: 1})
	defer l.Close()
	for range n {
		if waiting, _ := p.queues[exporter].Load(); waiting == 0 {
			break
		}
		it := l.Take(p.t.Context())
		names = append(names, namesOf(p.t, it)...)
		l.Settle(it, Answer{Reached: true, Said: true})
	}
	return names
}

func namesOf(t *testing.T, it *Item) (names []string) {
	t.Helper()
	var req coltracepb.ExportTraceServiceRequest
	if err := proto.Unmarshal(it.Batch.data, &req); err != nil {
		t.Fatal(err)
	}
	for _, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, span := range ss.Spans {
				names = append(names, span.Name)
			}
		}
	}
	return names
}

func numbered(from, to int) (names []string) {
	for i := from; i < to; i++ {
		names = append(names, fmt.Sprintf("s%04d", i))
	}
	return names
}

// Each exporter gets its rest after a restart, in order, and before new batches.
func TestRestOfEachExporterAfterARestart(t *testing.T) {
	dir := t.TempDir()
	first := newSpooling(t, dir, nil)
	for _, name := range numbered(0, 20) {
		if err := first.send(name, 10); err != nil {
			t.Fatal(err)
		}
	}
	first.deliver("a", 5)
	first.deliver("b", 15)
	first.stop()
	if s := first.Stats().Queues[first.queues["a"]]; s.Spooled != 15 || s.Waiting != 0 {
		t.Errorf("%d spans spooled, %d waiting, want 15 and none", s.Spooled, s.Waiting)
	}

	second := newSpooling(t, dir, nil)
	for _, name := range numbered(20, 30) {
		if err := second.send(name, 10); err != nil {
			t.Fatal(err)
		}
	}
	second.balanced()
	if s := second.Stats().Queues[second.queues["a"]]; s.Recovered != 15 || s.Accepted != 10 {
		t.Errorf("%d spans recovered, %d accepted, want 15 and 10", s.Recovered, s.Accepted)
	}
	if diff := cmp.Diff(numbered(5, 30), second.deliver("a", 100)); diff != "" {
		t.Errorf("exporter a (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(numbered(15, 30), second.deliver("b", 100)); diff != "" {
		t.Errorf("exporter b (-want +got):\n%s", diff)
	}
	second.stop()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

// TestRecoveredBatchesOfOneExporter: batches that only one exporter still needs fill most of
// the spool. They keep no request from the exporter that works, before and after a restart.
func TestRecoveredBatchesOfOneExporter(t *testing.T) {
	dir := t.TempDir()
	small := func(c *Settings) { c.SpoolBytes = 1 << 20 }
	for _, names := range [][]string{numbered(0, 14), numbered(14, 40)} {
		p := newSpooling(t, dir, small)
		for _, name := range names {
			if err := p.send(name, 64<<10); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := p.deliver("a", 1); !slices.Equal(got, []string{name}) {
				t.Fatalf("exporter a got %v, want %s", got, name)
			}
		}
		p.stop()
	}
}

// In an outage the batches wait in the spool, beyond the bound of the memory.
func TestOutageFitsTheSpool(t *testing.T) {
	p := newSpooling(t, t.TempDir(), nil)
	const batches, size = 400, 80 << 10 // 32 MB
	for _, name := range numbered(0, batches) {
		if err := p.send(name, size); err != nil {
			t.Fatal(err)
		}
		if used := p.mem.used.Load(); used > p.mem.limit {
			t.Fatalf("%d bytes of memory, the bound is %d", used, p.mem.limit)
		}
		p.deliver("b", 1) // this exporter works
	}
	if s := p.Stats(); s.Spool.Bytes < batches*size || len(s.Queues[p.queues["a"]].Dropped) > 0 {
		t.Errorf("%d bytes in the spool, dropped %v", s.Spool.Bytes, s.Queues[p.queues["a"]].Dropped)
	}
	p.balanced()
	if diff := cmp.Diff(numbered(0, batches), p.deliver("a", 2*batches)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if used := p.mem.used.Load(); used != 0 {
		t.Errorf("%d bytes charged at rest", used)
	}
	if got := p.Stats().Spool.Bytes; got > 4<<20 {
		t.Errorf("%d bytes of files at rest", got)
	}
}

// At the bound of the spool, requests are pushed back, and spans of OnEnd cost the exporter
// that holds most its oldest batches.
func TestBoundOfTheSpool(t *testing.T) {
	p := newSpooling(t, t.TempDir(), func(c *Settings) { c.SpoolBytes = 8 << 20 })
	sent, err := 0, error(nil)
	for ; err == nil && sent < 300; sent++ {
		err = p.send(fmt.Sprintf("%d", sent%10), 80<<10)
		p.deliver("b", 1)
	}
	if err == nil {
		// Exporter b is done with each request, so that it costs its sender nothing.
		if s := p.Stats(); s.Spool.Bytes > 8<<20+200<<10 || s.Queues[p.queues["a"]].Dropped["queue_full"] == 0 || len(s.Queues[p.queues["b"]].Dropped) > 0 {
			t.Errorf("%d bytes in the spool, a dropped %v, b dropped %v", s.Spool.Bytes, s.Queues[p.queues["a"]].Dropped, s.Queues[p.queues["b"]].Dropped)
		}
	}
	p.balanced()
	for i := range 300 { // and without b
		if err = p.send(fmt.Sprintf("%d", i%10), 80<<10); err != nil {
			break
		}
	}
	if s := p.Stats(); err == nil || s.PushedBack == 0 || len(s.Queues[p.queues["b"]].Dropped) > 0 {
		t.Errorf("Consume: %v, pushed back %d, b dropped %v", err, s.PushedBack, s.Queues[p.queues["b"]].Dropped)
	}
	p.balanced()
}

// A batch in parts: the parts that were delivered are not sent again.
func TestPartsAfterARestart(t *testing.T) {
	dir := t.TempDir()
	first := newSpooling(t, dir, nil)
	for i := range 10 {
		addSpan(first.Pipeline, fmt.Sprintf("s%04d", i))
	}
	first.Flush()
	take := func(p *spooling, parts int) (names []string) {
		l := NewLane(p.queues["a"], func() bool { return false })
		l.Open(Limits{Spans: 2, Bytes: 1 << 20, Calls: 1})
		defer l.Close()
		for range parts {
			it := l.Take(t.Context())
			names = append(names, namesOf(t, it)...)
			l.Settle(it, Answer{Reached: true, Said: true})
		}
		return names
	}
	names := take(first, 3)
	first.stop()
	second := newSpooling(t, dir, nil)
	if s := second.Stats().Queues[second.queues["a"]]; s.Recovered != 4 {
		t.Errorf("%d spans recovered, want 4", s.Recovered)
	}
	names = append(names, take(second, 2)...)
	slices.Sort(names) // several shards have had them
	if diff := cmp.Diff(numbered(0, 10), names); diff != "" {
		t.Error(diff)
	}
	second.balanced()
}

// The spans of an exporter that is not in the list any more are dropped at the next start.
func TestExporterThatLeft(t *testing.T) {
	dir := t.TempDir()
	first := newSpooling(t, dir, nil)
	if err := first.send("s0000", 10); err != nil {
		t.Fatal(err)
	}
	first.stop()
	var log strings.Builder
	p := New(first.cfg, slog.New(slog.NewTextHandler(&log, nil)))
	q := NewQueue(p, "b", failures.New(p.log))
	p.Join(q)
	p.Spool.Recover(t.Context())
	if got := p.Stats().Queues[q].Recovered; got != 1 || !strings.Contains(log.String(), "no longer in the list: they are dropped\" plugin=a spans=1") {
		t.Errorf("%d spans recovered, log:\n%s", got, &log)
	}
	q.DropRest()
	p.Spool.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

// Batches that are too old are dropped at the start: the time without a process counts.
func TestAgeOverARestart(t *testing.T) {
	dir := t.TempDir()
	first := newSpooling(t, dir, nil)
	if err := first.send("s0000", 10); err != nil {
		t.Fatal(err)
	}
	first.stop()
	second := newSpooling(t, dir, func(c *Settings) { c.MaxAge = time.Nanosecond })
	s := second.Stats().Queues[second.queues["a"]]
	if s.Recovered != 1 || s.Dropped["max_age"] != 1 {
		t.Errorf("%+v", s)
	}
}

// Without a folder that can be written, all is as without a spool.
func TestSpoolThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := newSpooling(t, dir, nil)
	for _, name := range numbered(0, 10) {
		if err := p.send(name, 10); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(numbered(0, 10), p.deliver("a", 20)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := p.Stats(); s.Spool.Missed != 10 || !s.Spool.Failing {
		t.Errorf("%+v", s.Spool)
	}
	p.stop()
	if s := p.Stats().Queues[p.queues["b"]]; s.Spooled != 0 || s.Dropped["shutdown"] != 10 {
		t.Errorf("%+v", s)
	}
}

// A batch is dropped if its file is damaged while it waits, and the next one is sent.
func TestDamageWhileABatchWaits(t *testing.T) {
	dir := t.TempDir()
	p := newSpooling(t, dir, nil)
	for _, name := range numbered(0, 20) {
		if err := p.send(name, 80<<10); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 1000), 1000); err != nil { // in the first batch
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(numbered(1, 20), p.deliver("a", 19)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := p.Stats().Queues[p.queues["a"]]; s.Dropped["spool"] != 1 {
		t.Errorf("dropped %v", s.Dropped)
	}
}

// Deliver ends at Shutdown: the spans are left to the next process.
func TestDeliverEndsWithTheProcess(t *testing.T) {
	p := newSpooling(t, t.TempDir(), nil)
	request, err := proto.Marshal(&coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "s"}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan Outcome)
	go func() { // ends with the queues
		o, _ := p.Deliver(context.Background(), request, "me")
		done <- o
	}()
	for p.Sealed() == mostRecovered {
		runtime.Gosched()
	}
	p.stop()
	if o := <-done; o.Spooled != 2 {
		t.Errorf("%+v, want two spooled: one for each exporter", o)
	}
}
