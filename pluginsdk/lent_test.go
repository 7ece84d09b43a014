package pluginsdk_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/internal/lent"
	"github.com/servetrace/servetrace/pluginsdk"
)

// keeper keeps what it is given, as far as it may and farther: as a processor, as
// an exporter, and as one that can be lent batches.
type keeper struct {
	mu      sync.Mutex
	kept    [][]byte
	batches []*pluginsdk.Batch
	lent    [][]byte // copies
	answer  error
}

func (k *keeper) keep(b *pluginsdk.Batch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, b.Bytes())
	k.batches = append(k.batches, b)
}

func (k *keeper) Process(_ context.Context, b *pluginsdk.Batch) error { k.keep(b); return nil }
func (k *keeper) Export(_ context.Context, b *pluginsdk.Batch) error  { k.keep(b); return k.answer }
func (k *keeper) Shutdown(context.Context) error                      { return nil }

// borrower can be lent batches.
type borrower struct{ *keeper }

func (b borrower) ExportLent(_ context.Context, batch lent.Batch) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lent = append(b.lent, batch.Pieces.Materialize())
	return b.answer
}

// exports makes an exporter's constructor.
func exports(e pluginsdk.Exporter) pluginsdk.NewExporter {
	return func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) { return e, nil }
}

// wide is a request of many frames; no two are alike.
func wide(n int) *coltracepb.ExportTraceServiceRequest {
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{
		Spans: []*tracepb.Span{{Name: strings.Repeat(fmt.Sprintf("%08d", n), 20<<10)}},
	}}}}}
}

// TestMemoryOfBatches: what anyone but a borrower has of a batch stays as it was,
// also when many others have come; and only who is alone is lent one.
func TestMemoryOfBatches(t *testing.T) {
	const many = 20
	for name, c := range map[string]struct {
		spec func(*keeper) pluginsdk.Spec
		kept int // of each batch
		lent bool
	}{
		"exporter": {func(k *keeper) pluginsdk.Spec { return pluginsdk.Spec{Exporter: exports(k)} }, 1, false},
		"processor before a borrower": {func(k *keeper) pluginsdk.Spec {
			return pluginsdk.Spec{
				Processors: []pluginsdk.NewProcessor{func(context.Context, pluginsdk.Setup) (pluginsdk.Processor, error) { return k, nil }},
				Exporter:   exports(borrower{k}),
			}
		}, 2, false},
		"borrower beside another": {func(k *keeper) pluginsdk.Spec {
			return pluginsdk.Spec{Exporter: pluginsdk.Tee(exports(k), exports(borrower{k}))}
		}, 2, false},
		"borrower": {func(k *keeper) pluginsdk.Spec {
			return pluginsdk.Spec{
				Processors: []pluginsdk.NewProcessor{func(context.Context, pluginsdk.Setup) (pluginsdk.Processor, error) { return pluginsdk.Chain{}, nil }},
				Exporter:   exports(borrower{k}),
			}
		}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := &keeper{}
			spec := c.spec(k)
			spec.Name = "keeper"
			r := startRun(t, spec)
			r.configure(t, nil)
			var want [][]byte
			for n := range many {
				request := wide(n)
				if _, err := r.traces.Export(t.Context(), request); err != nil {
					t.Fatal(err)
				}
				for range max(1, c.kept) {
					want = append(want, encode(t, request))
				}
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			got := k.kept
			if c.lent {
				got = k.lent
			} else if len(k.lent) > 0 {
				t.Errorf("%d batches were lent", len(k.lent))
			}
			if len(got) != len(want) {
				t.Fatalf("has %d batches, want %d", len(got), len(want))
			}
			for i := range got {
				if !bytes.Equal(got[i], want[i]) {
					t.Errorf("batch %d has changed", i)
				}
			}
			for i, b := range k.batches { // against the rules
				if !bytes.Equal(b.Bytes(), want[i]) {
					t.Errorf("batch %d, itself kept, has changed", i)
				}
			}
		})
	}
}

// TestBorrowerAnswersInPart: the spans are counted for it.
func TestBorrowerAnswersInPart(t *testing.T) {
	k := &keeper{answer: pluginsdk.Partial(1000, "all were too old")}
	r := startRun(t, pluginsdk.Spec{Name: "keeper", Exporter: exports(borrower{k})})
	r.configure(t, nil)
	answer, err := r.traces.Export(t.Context(), wide(1))
	if err != nil || answer.GetPartialSuccess().GetRejectedSpans() != 1 {
		t.Errorf("got %v, %v; want 1 span rejected", answer, err)
	}
}

// TestBorrowersAreConcurrentSafe: what one call gives back another takes.
func TestBorrowersAreConcurrentSafe(t *testing.T) {
	k := &keeper{}
	r := startRun(t, pluginsdk.Spec{Name: "keeper", Exporter: exports(borrower{k})})
	r.configure(t, nil)
	var calls sync.WaitGroup
	for n := range 40 {
		calls.Go(func() {
			if _, err := r.traces.Export(t.Context(), wide(n)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	seen := map[string]bool{}
	for _, content := range k.lent {
		seen[string(content)] = true
	}
	for n := range 40 {
		if !seen[string(encode(t, wide(n)))] {
			t.Errorf("batch %d was not lent as it is", n)
		}
	}
}
