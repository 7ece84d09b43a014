package sdkspan

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// TestHeap measures the heap of snapshots, which are made in the loop, with text and
// members of their own, and kept.
func TestHeap(t *testing.T) {
	const n = 2000
	for _, tt := range []struct {
		name string
		add  func(trace.Span, int)
	}{
		{"bare", func(trace.Span, int) {}},
		{"texts", func(s trace.Span, i int) {
			for k := range 6 {
				s.SetAttributes(attribute.String("key", ""), attribute.String(fmt.Sprintf("a.long.key.%d", k), fmt.Sprintf("%0100d", i)))
			}
		}},
		{"slices", func(s trace.Span, i int) {
			texts := make([]string, 20)
			for k := range texts {
				texts[k] = fmt.Sprintf("%050d", i)
			}
			s.SetAttributes(attribute.StringSlice("texts", texts), attribute.Float64Slice("floats", make([]float64, 100)))
		}},
		{"nested", func(s trace.Span, i int) {
			inner := attribute.SliceValue(attribute.StringValue(fmt.Sprintf("%0200d", i)), attribute.IntValue(1))
			s.SetAttributes(attribute.KeyValue{Key: "m", Value: attribute.MapValue(attribute.KeyValue{Key: "k", Value: inner})})
		}},
		{"events and links", func(s trace.Span, i int) {
			for range 4 {
				s.AddEvent("event", trace.WithAttributes(attribute.String("text", fmt.Sprintf("%0100d", i))))
				s.AddLink(trace.Link{SpanContext: s.SpanContext(), Attributes: []attribute.KeyValue{attribute.Int("i", i)}})
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			held, estimate := measure(n, tt.add)
			if ratio := float64(estimate) / float64(held); ratio < 0.5 || ratio > 3 {
				t.Errorf("estimate %d bytes a span, measured %d: ratio %.2f, want 0.5 to 3", estimate/n, held/n, ratio)
			}
		})
	}
}

// measure returns the heap that n spans hold, and the estimate.
func measure(n int, add func(trace.Span, int)) (held, estimate int) {
	kept := make([]sdktrace.ReadOnlySpan, 0, n)
	keep := keeper(func(s sdktrace.ReadOnlySpan) { kept = append(kept, s) })
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(keep)).Tracer("")
	before := heapInUse()
	for i := range n {
		_, span := tracer.Start(context.Background(), "name")
		add(span, i)
		span.End()
	}
	held = heapInUse() - before
	for _, s := range kept {
		estimate += heapOf(s)
	}
	return held, estimate
}

// heapOf is the estimate of a span that is sampled.
func heapOf(s sdktrace.ReadOnlySpan) int {
	g, _ := GistOf(s)
	return g.Heap
}

func heapInUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools let go at the second
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

type keeper func(sdktrace.ReadOnlySpan)

func (k keeper) OnEnd(s sdktrace.ReadOnlySpan)                 { k(s) }
func (keeper) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (keeper) Shutdown(context.Context) error                  { return nil }
func (keeper) ForceFlush(context.Context) error                { return nil }

// TestGistAllocates nothing for spans whose attributes are scalars.
func TestGistAllocates(t *testing.T) {
	s := serverSpans(t, 1)[0]
	if got := testing.AllocsPerRun(20, func() { GistOf(s) }); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}

// TestHeapOfFields: fields that the SDK's spans in TestHeap lack are counted, too.
func TestHeapOfFields(t *testing.T) {
	ts, err := trace.ParseTraceState("a=1,b=2")
	if err != nil {
		t.Fatal(err)
	}
	sampled := trace.SpanContextConfig{TraceFlags: trace.FlagsSampled}
	base := heapOf(tracetest.SpanStub{SpanContext: trace.NewSpanContext(sampled)}.Snapshot())
	sampled.TraceState = ts
	stub := tracetest.SpanStub{
		Name:                 "four",
		SpanContext:          trace.NewSpanContext(sampled),
		Status:               sdktrace.Status{Description: "sixsix"},
		InstrumentationScope: instrumentation.Scope{Name: "shared"},
	}
	if got, want := heapOf(stub.Snapshot())-base, 4+6+len("a=1,b=2")+2*32; got != want {
		t.Errorf("name, status and trace state count %d bytes, want %d", got, want)
	}
}
