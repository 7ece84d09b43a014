package pluginsdk_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
)

// TestUndecodedIsTheBatch: a client encodes the bytes that Bytes returns, even bytes that
// no decoder accepts, and decodes nothing.
func TestUndecodedIsTheBatch(t *testing.T) {
	rich := encode(t, richRequest())
	nonsense := slices.Concat([]byte("\x0a\x03\xff\xff\xff"), []byte("\x0a\x00"), []byte("\x0a\x02\xff\xff")) // three ResourceSpans
	for _, c := range []struct {
		name  string
		raw   []byte
		do    func(*pluginsdk.Batch)
		count int
	}{
		{"untouched", rich, func(*pluginsdk.Batch) {}, 2},
		{"edited", rich, func(b *pluginsdk.Batch) {
			for span := range b.Spans() {
				span.SetName("edited")
			}
		}, 2},
		{"dropped", rich, func(b *pluginsdk.Batch) {
			for span := range b.Spans() {
				span.Drop()
			}
		}, 0},
		{"empty", nil, func(*pluginsdk.Batch) {}, 0},
		{"nonsense within", nonsense, func(*pluginsdk.Batch) {}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := pluginsdk.NewBatch(c.raw)
			c.do(b)
			got, err := b.Undecoded()
			if err != nil || len(got) != c.count {
				t.Fatalf("%d messages, %v; want %d", len(got), err, c.count)
			}
			if encoded := encode(t, &coltracepb.ExportTraceServiceRequest{ResourceSpans: got}); !bytes.Equal(encoded, b.Bytes()) {
				t.Errorf("a client encodes %x, want %x", encoded, b.Bytes())
			}
			for _, one := range got {
				if one.GetResource() != nil || len(one.GetScopeSpans()) > 0 {
					t.Errorf("decoded: %v", one)
				}
			}
		})
	}
	for _, broken := range []string{"\xff", "\x0a\x05\x01", "\x0a"} {
		if got, err := pluginsdk.NewBatch([]byte(broken)).Undecoded(); err == nil || !pluginsdk.Final(err) || got != nil {
			t.Errorf("%x: %v, %v; want a final error", broken, got, err)
		}
	}
}

// keeper keeps its batches and spans, as a processor and as an exporter.
type keeper struct {
	mu      sync.Mutex
	kept    [][]byte
	batches []*pluginsdk.Batch
}

func (k *keeper) keep(b *pluginsdk.Batch) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, b.Bytes())
	k.batches = append(k.batches, b)
	return nil
}

func (k *keeper) Process(_ context.Context, b *pluginsdk.Batch) error { return k.keep(b) }
func (k *keeper) Export(_ context.Context, b *pluginsdk.Batch) error  { return k.keep(b) }
func (k *keeper) Shutdown(context.Context) error                      { return nil }

// TestKeptBatchesStay: a part of a batch stays unchanged after many other batches, even
// if the plugin keeps the batch against the rules.
func TestKeptBatchesStay(t *testing.T) {
	k := &keeper{}
	r := startRun(t, pluginsdk.Spec{
		Name:       "keeper",
		Processors: []pluginsdk.NewProcessor{func(context.Context, pluginsdk.Setup) (pluginsdk.Processor, error) { return k, nil }},
		Exporter:   func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) { return k, nil },
	})
	r.configure(t, nil)
	var want [][]byte
	for n := range 20 { // of many frames each, no two alike
		request := named(strings.Repeat(fmt.Sprintf("%08d", n), 20<<10))
		if _, err := r.traces.Export(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		encoded := encode(t, request)
		want = append(want, encoded, encoded)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kept) != len(want) {
		t.Fatalf("has %d batches, want %d", len(k.kept), len(want))
	}
	for i := range want {
		if !bytes.Equal(k.kept[i], want[i]) || !bytes.Equal(k.batches[i].Bytes(), want[i]) {
			t.Errorf("batch %d has changed", i)
		}
	}
}
