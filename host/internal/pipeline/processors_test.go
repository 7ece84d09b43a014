package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host/internal/failures"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
)

// newProcessing returns a Pipeline with processors, and one exporter.
func newProcessing(names ...string) (p *Pipeline, processors []*Queue, exporter *Queue) {
	p = New(Settings{
		QueueBytes: 32 << 20, MaxSpanBytes: 1 << 20, BatchAge: time.Second, BatchSpans: 1000, BatchBytes: 768 << 10, MaxAge: time.Hour,
	}, slog.New(slog.DiscardHandler))
	for _, name := range names {
		processors = append(processors, NewProcessor(p, name, failures.New(p.log), 0))
	}
	p.SetProcessors(processors)
	exporter = NewQueue(p, "exporter", failures.New(p.log))
	p.Join(exporter)
	return p, processors, exporter
}

// open returns an open lane of a queue.
func open(t *testing.T, q *Queue, limits Limits) *Lane {
	t.Helper()
	l := NewLane(q, func() bool { return false })
	l.Open(limits)
	t.Cleanup(l.Close)
	return l
}

var done = Answer{Reached: true, Said: true}

// A batch goes through a processor in parts. Its sender gets its room back after the last
// part is delivered, and Deliver returns then.
func TestPartsOfAProcessorKeepTheRoomOfABatch(t *testing.T) {
	p, processors, exporter := newProcessing("a")
	seal(p, 4)
	first := open(t, processors[0], Limits{Spans: 1, Bytes: 1 << 20, Calls: 1})
	last := open(t, exporter, Limits{Spans: 10, Bytes: 1 << 20, Calls: 1})
	it := processors[0].items.fresh[0]
	request := append([]byte(nil), it.Batch.data...)
	for range 4 {
		first.Settle(first.Take(t.Context()), done)
		last.Settle(last.Take(t.Context()), done)
	}
	outcome := make(chan Outcome)
	go func() {
		o, err := p.Deliver(t.Context(), request, "sender")
		if err != nil {
			t.Error(err)
		}
		outcome <- o
	}()
	for part := range 4 {
		it := first.Take(t.Context())
		ans := done
		if part == 1 { // this part is filtered
			ans.Changed = true
		}
		first.Settle(it, ans)
		if held := p.senders.held["sender"]; held == 0 {
			t.Fatalf("the room is free before part %d of 4 is delivered", part+1)
		}
		if part != 1 {
			last.Settle(last.Take(t.Context()), done)
		}
	}
	if got := <-outcome; got.Delivered != 3 || got.Filtered != 1 {
		t.Errorf("outcome %+v, want 3 spans delivered and one filtered", got)
	}
	if held := p.senders.held["sender"]; held != 0 {
		t.Errorf("the batch is delivered and holds %d bytes", held)
	}
}

// A batch on its way goes through the processors of the present list that it has not passed,
// in any order of the lists.
func TestBatchOnItsWaySkipsNoProcessor(t *testing.T) {
	p, processors, exporter := newProcessing("a", "b")
	c := NewProcessor(p, "c", failures.New(p.log), 0)
	a, b := processors[0], processors[1]
	lanes := map[*Queue]*Lane{}
	for _, q := range []*Queue{a, b, c, exporter} {
		lanes[q] = open(t, q, Limits{Spans: 10, Bytes: 1 << 20, Calls: 1})
	}
	step := func(q *Queue) {
		t.Helper()
		if spans, _ := q.Load(); spans == 0 {
			t.Fatalf("no batch is in the queue of %s", q.name)
		}
		lanes[q].Settle(lanes[q].Take(t.Context()), done)
	}
	seal(p, 1)
	step(a)
	p.SetProcessors([]*Queue{b, a}) // the batch is in b, and has passed a
	step(b)
	step(exporter)

	seal(p, 1) // in b
	p.SetProcessors([]*Queue{c, a})
	step(b) // which has left, and passes the batch on
	step(c)
	step(a)
	step(exporter)
	for q, s := range p.Stats().Queues {
		if s.Waiting != 0 || s.Accepted != s.Delivered {
			t.Errorf("%s: %d spans accepted, %d passed or delivered, %d waiting", q.name, s.Accepted, s.Delivered, s.Waiting)
		}
	}
}

// A processor answers the second of two batches first. The exporter gets them in the
// order of sealing, and a flush up to the first batch waits for it.
func TestBatchesAreInOrderAfterAProcessor(t *testing.T) {
	p, processors, exporter := newProcessing("a")
	a := open(t, processors[0], Limits{Spans: 10, Bytes: 1 << 20, Calls: 2})
	last := open(t, exporter, Limits{Spans: 10, Bytes: 1 << 20, Calls: 1})
	seal(p, 1)
	seal(p, 1)
	first, second := a.Take(t.Context()), a.Take(t.Context())
	a.Settle(second, done)
	a.Settle(first, done)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if left, err := exporter.WaitSettled(ended, first.seq); err == nil || left != 2 {
		t.Errorf("WaitSettled = %d spans, %v; want the end of the context with 2 spans", left, err)
	}
	if it := last.Take(t.Context()); it.seq != first.seq {
		t.Errorf("the exporter gets batch %d first, want %d", it.seq, first.seq)
	}
}

// An exporter that stops waits for a processor that cannot be started if its batches go on
// without it, and only then.
func TestStoppingExporterWaitsForBypassedBatches(t *testing.T) {
	for _, patience := range []time.Duration{0, time.Minute} {
		p, _, exporter := newProcessing()
		a := NewProcessor(p, "a", failures.New(p.log), patience)
		p.SetProcessors([]*Queue{a})
		seal(p, 1)
		a.SetHopeless(true)
		exporter.Hasten()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := exporter.WaitSettled(ended, p.Sealed()); (err != nil) != (patience > 0) {
			t.Errorf("patience %v: WaitSettled = %v", patience, err)
		}
		a.DropRest()
	}
}

// A result that is larger than the memory for batches is refused: it would cost all other
// batches.
func TestResultBeyondTheMemoryIsRefused(t *testing.T) {
	p := New(Settings{QueueBytes: 1 << 20, MaxSpanBytes: 1 << 20, BatchSpans: 1, BatchBytes: 1 << 20, MaxAge: time.Hour}, slog.New(slog.DiscardHandler))
	a := NewProcessor(p, "a", failures.New(p.log), 0)
	p.SetProcessors([]*Queue{a})
	l := open(t, a, Limits{Spans: 10, Bytes: 1 << 20, Calls: 1})
	seal(p, 1)
	it := l.Take(t.Context())
	for _, size := range []int{500 << 10, 700 << 10} {
		request, err := otlpwire.Parse(it.Batch.data)
		if err != nil {
			t.Fatal(err)
		}
		for span := range request.Spans() {
			span.SetName(strings.Repeat("x", size))
		}
		result, err := proto.Marshal(&pluginv1.ProcessResponse{Result: &pluginv1.ProcessResponse_Batch{Batch: request.AppendTo(nil)}})
		request.Release()
		if err != nil {
			t.Fatal(err)
		}
		if ans, err := l.ReadResult(it, result); (err != nil) != (size > 640<<10) {
			t.Errorf("a result of %d bytes: %d spans, %v", size, ans.Spans, err)
		}
	}
	l.Settle(it, done)
}

// Without an exporter, the sender of a batch gets its room back when the last part of the
// batch has left the processor, also if the processor drops this part.
func TestRoomOfABatchWithoutAnExporter(t *testing.T) {
	p, processors, exporter := newProcessing("a")
	l := open(t, processors[0], Limits{Spans: 1, Bytes: 1 << 20, Calls: 1})
	seal(p, 2)
	it := processors[0].items.fresh[0]
	request := append([]byte(nil), it.Batch.data...)
	p.Leave(exporter)
	exporter.DropRest()
	for range 2 {
		l.Settle(l.Take(t.Context()), done)
	}
	if _, err := p.Consume(request, "sender"); err != nil {
		t.Fatal(err)
	}
	p.Flush()
	l.Settle(l.Take(t.Context()), done)
	l.Settle(l.Take(t.Context()), Answer{Reached: true, Said: true, Err: &wire.Error{Code: "INVALID_ARGUMENT", Final: true, Err: errors.New("refused")}})
	if len(p.senders.held) > 0 || p.senders.total != 0 {
		t.Errorf("no batch waits, and the senders hold %d bytes", p.senders.total)
	}
}
