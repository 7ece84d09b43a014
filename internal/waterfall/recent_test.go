package waterfall

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// numbered is a trace with n spans, each below the one before.
func numbered(number uint64, n int) Trace {
	var id trace.TraceID
	binary.BigEndian.PutUint64(id[:], number+1)
	var spans []*Span
	for i := range n {
		s := aSpan(0, 0, strings.Repeat("long name ", 50), 0, 1)
		binary.BigEndian.PutUint64(s.ID[:], uint64(i+1))
		binary.BigEndian.PutUint64(s.Parent[:], uint64(i))
		spans = append(spans, s)
	}
	return LayOut(id, spans, nil, Look{Width: 80})
}

func TestMemoryIsBounded(t *testing.T) {
	for _, c := range []struct {
		name           string
		traces, spans  int // added
		known, inTrace int // remembered
	}{
		{"many traces", 3000, 4, recentTraces, 4},
		{"larger ones", 3000, 100, recentSpans / 100, 100},
		{"huge ones", 40, 5000, recentSpans / spansOfTrace, spansOfTrace},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Recent
			for i := range c.traces {
				r.Add(numbered(uint64(i), c.spans))
			}
			if len(r.traces) != c.known || r.order.Len() != c.known || r.spans != c.known*c.inTrace {
				t.Errorf("%d traces, %d in order, with %d spans, want %d, the same and %d",
					len(r.traces), r.order.Len(), r.spans, c.known, c.known*c.inTrace)
			}
			if r.Find(numbered(0, 1).id) != nil {
				t.Error("the first trace is remembered")
			}
			if last := r.Find(numbered(uint64(c.traces-1), 1).id); last == nil || len(last.spans) != c.inTrace {
				t.Error("the last trace is not remembered")
			}
		})
	}
}

// TestMemoryBytes: the bound in the documents.
func TestMemoryBytes(t *testing.T) {
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	var r Recent
	before := heap()
	for i := range 2000 {
		r.Add(numbered(uint64(i), 16))
	}
	got := heap() - before
	t.Logf("%d traces with %d spans take %d KiB", len(r.traces), r.spans, got>>10)
	if got > 3<<20 {
		t.Errorf("what is remembered takes %d bytes, want 3 MiB at most", got)
	}
	runtime.KeepAlive(&r)
}

func TestTouchedTraceIsKept(t *testing.T) {
	var r Recent
	for i := range recentTraces + 500 {
		r.Add(numbered(uint64(i), 1))
		r.Add(numbered(0, 1))
	}
	if r.Find(numbered(0, 1).id) == nil {
		t.Error("the trace that spans came of all the time is forgotten")
	}
	if r.Find(numbered(1, 1).id) != nil {
		t.Error("the trace after it is remembered")
	}
}

func TestNameIsCutBetweenCharacters(t *testing.T) {
	var r Recent
	d := numbered(0, 1)
	d.rows[0].span.Name = strings.Repeat("日本", 50)
	r.Add(d)
	if got, _ := r.Find(d.id).find(d.rows[0].id); got.name != strings.Repeat("日本", 50)[:63] {
		t.Errorf("name %q", got.name)
	}
}
