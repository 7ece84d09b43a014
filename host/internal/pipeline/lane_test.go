package pipeline

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/servetrace/servetrace/host/internal/failures"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// newTestPipeline returns a Pipeline with one queue. Zero settings have large values.
func newTestPipeline(cfg Settings) (*Pipeline, *Queue) {
	cfg.QueueBytes, cfg.MaxSpanBytes, cfg.BatchAge, cfg.BatchBytes = 32<<20, 1<<20, time.Second, 768<<10
	if cfg.BatchSpans == 0 {
		cfg.BatchSpans = 1000
	}
	if cfg.MaxAge == 0 {
		cfg.MaxAge = time.Hour
	}
	p := New(cfg, slog.New(slog.DiscardHandler))
	q := NewQueue(p, "p", failures.New(p.log))
	p.Join(q)
	return p, q
}

// addSpan ends a span with a name.
func addSpan(p *Pipeline, name string) {
	recorder := tracetest.NewSpanRecorder()
	_, span := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test").Start(context.Background(), name)
	span.End()
	for _, s := range recorder.Ended() {
		if g, ok := sdkspan.GistOf(s); ok {
			p.Add(s, g)
		}
	}
}

// seal makes a batch of n spans.
func seal(p *Pipeline, n int) {
	for range n {
		addSpan(p, "span")
	}
	p.Flush()
}

// TestSharesAreOfThoseThatAreThere: an exporter that has left the list has a share
// until its connection is closed, and not for ever.
func TestSharesAreOfThoseThatAreThere(t *testing.T) {
	p, stays := newTestPipeline(Settings{})
	leaves, third := NewQueue(p, "p", failures.New(p.log)), NewQueue(p, "p", failures.New(p.log))
	p.Join(leaves)
	p.Join(third)
	l := NewLane(leaves, nil)
	wantShare := func(sharers int64) {
		t.Helper()
		if _, got := NewLane(stays, nil).Leased(); got != p.mem.backlog/sharers {
			t.Errorf("a share is %d, want %d: one of %d", got, p.mem.backlog/sharers, sharers)
		}
	}
	wantShare(3)
	l.Open(Limits{})
	p.Leave(leaves)
	wantShare(3)
	l.Close()
	wantShare(2)
	p.Leave(third)
	wantShare(1)
}

// TestRetiredConnectionCounts: the bytes that gRPC holds for a process that was
// replaced leave no room for the new process until the old connection is closed.
func TestRetiredConnectionCounts(t *testing.T) {
	p, q := newTestPipeline(Settings{})
	old, next := NewLane(q, nil), NewLane(q, nil)
	old.Open(Limits{})
	next.Open(Limits{})
	held := newBatch(p.mem, make([]byte, p.mem.backlog))
	_ = old.Buffers(&Item{Batch: held}) // and gRPC never lets go of it
	held.Release()
	hasRoom := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		next.inFlight = 1
		return next.hasRoomLocked(&Item{Batch: &batch{charged: 1}})
	}
	if hasRoom() {
		t.Error("a second call though the old connection holds the whole share")
	}
	old.Close()
	if !hasRoom() {
		t.Error("no second call though the old connection is closed")
	}
	if len(q.lanes) != 1 || p.mem.encoded.Load() != 0 {
		t.Errorf("%d connections, %d bytes; want one and none", len(q.lanes), p.mem.encoded.Load())
	}
}

// TestBuffersAreReused: a buffer is used again when gRPC has put it back. A buffer that
// gRPC may hold for ever is not.
func TestBuffersAreReused(t *testing.T) {
	p, q := newTestPipeline(Settings{})
	l := NewLane(q, func() bool { return false })
	l.Open(Limits{Spans: 1000, Bytes: 1 << 20, Calls: 1})
	send := func(broken bool) {
		t.Helper()
		seal(p, 100)
		it := l.Take(t.Context())
		sent := l.Buffers(it)
		if broken {
			l.Forget(it)
		} else {
			sent.Free()
		}
		l.Settle(it, Answer{Reached: true, Said: true})
		if broken {
			sent.Free() // late: nothing may be freed twice
		}
		if used := p.mem.used.Load(); used != 0 {
			t.Errorf("%d bytes charged at rest", used)
		}
	}
	send(true)
	if got := len(p.mem.spare); got != 0 {
		t.Errorf("%d spare buffers after a call whose connection broke, want none", got)
	}
	for range 5 {
		send(false)
	}
	if got := len(p.mem.spare); got != 1 {
		t.Errorf("%d spare buffers after five batches one after another, want 1", got)
	}
	l.Close()
}

func TestIdlePipelineHasNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := newTestPipeline(Settings{})
		stop := make(chan struct{})
		go p.Run(stop) // ends with stop
		addSpan(p, "span")
		time.Sleep(time.Minute)
		synctest.Wait()
		if p.intake.armed.Load() || p.intake.timer.Stop() {
			t.Error("the batch timer runs although no span waits")
		}
		q.DropRest()
		close(stop)
	})
}
