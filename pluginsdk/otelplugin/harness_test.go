package otelplugin_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

func TestMain(m *testing.M) {
	otel.SetErrorHandler(&authors)
	goleak.VerifyTestMain(m)
}

// authors is the error handler that the author of a plugin has set.
var authors keeper

type keeper struct {
	mu   sync.Mutex
	errs []error
}

func (k *keeper) Handle(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, err)
}

func (k *keeper) count(want error) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, err := range k.errs {
		if errors.Is(err, want) {
			n++
		}
	}
	return n
}

// patience bounds every wait of these tests; none takes a tenth of it.
const patience = 20 * time.Second

// batchOf is spans as a host sends them.
func batchOf(spans ...sdktrace.ReadOnlySpan) *pluginsdk.Batch {
	var encoder sdkspan.Encoder
	for _, s := range spans {
		encoder.Append(s)
	}
	return pluginsdk.NewBatch(encoder.AppendRequest(nil))
}

// stubs are n sampled spans of one trace with names and ids by number.
func stubs(n int) tracetest.SpanStubs {
	all := make(tracetest.SpanStubs, n)
	for i := range all {
		all[i] = tracetest.SpanStub{
			Name: "span",
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1, 6: byte(i >> 8), 7: byte(i)}, TraceFlags: trace.FlagsSampled,
			}),
			StartTime: time.Unix(1, 0).UTC(), EndTime: time.Unix(2, 0).UTC(),
		}
	}
	return all
}

// numbered is a batch of stubs.
func numbered(n int) *pluginsdk.Batch { return batchOf(stubs(n).Snapshots()...) }

// recorder is an exporter that keeps its spans, and can be told to fail.
type recorder struct {
	// fail gives the error of a call, by its number from 0. Nil: none.
	fail func(call int) error

	mu      sync.Mutex
	calls   [][]sdktrace.ReadOnlySpan
	inside  int
	overlap bool
	stopped int
}

func (r *recorder) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	r.mu.Lock()
	r.inside++
	r.overlap = r.overlap || r.inside > 1
	call := len(r.calls)
	r.calls = append(r.calls, slices.Clone(spans))
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.inside--
		r.mu.Unlock()
	}()
	if r.fail == nil {
		return nil
	}
	return r.fail(call)
}

func (r *recorder) Shutdown(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped++
	return nil
}

// sizes are how many spans each call had.
func (r *recorder) sizes() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []int
	for _, call := range r.calls {
		all = append(all, len(call))
	}
	return all
}

// spans returns the spans of all calls.
func (r *recorder) spans() tracetest.SpanStubs {
	r.mu.Lock()
	defer r.mu.Unlock()
	return tracetest.SpanStubsFromReadOnlySpans(slices.Concat(r.calls...))
}

// exporter builds Exporter around e and shuts it down in the end.
func exporter(t *testing.T, e sdktrace.SpanExporter) pluginsdk.Exporter {
	t.Helper()
	return built(t, otelplugin.Exporter(func(context.Context, pluginsdk.Setup) (sdktrace.SpanExporter, error) { return e, nil }))
}

// pipeline builds Pipeline around processors and shuts it down in the end.
func pipeline(t *testing.T, processors ...sdktrace.SpanProcessor) pluginsdk.Exporter {
	t.Helper()
	return built(t, otelplugin.Pipeline(list(processors...)))
}

func built(t *testing.T, construct pluginsdk.NewExporter) pluginsdk.Exporter {
	t.Helper()
	e, err := construct(t.Context(), pluginsdk.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return e
}

// enriched is b after Processors around processors.
func enriched(t *testing.T, b *pluginsdk.Batch, processors ...sdktrace.SpanProcessor) error {
	t.Helper()
	p, err := otelplugin.Processors(list(processors...))(t.Context(), pluginsdk.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	processErr := p.Process(t.Context(), b)
	if err := p.(pluginsdk.Stopper).Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	return processErr
}

func list(processors ...sdktrace.SpanProcessor) func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
	return func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) { return processors, nil }
}

// decoded is b as an OpenTelemetry exporter sees it.
func decoded(t *testing.T, b *pluginsdk.Batch) tracetest.SpanStubs {
	t.Helper()
	var r recorder
	if err := exporter(t, &r).Export(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return r.spans()
}

// hooks is a span processor made of functions. A nil function does nothing.
type hooks struct {
	start    func(context.Context, sdktrace.ReadWriteSpan)
	end      func(sdktrace.ReadOnlySpan)
	flush    func(context.Context) error
	shutdown func(context.Context) error
}

func (h hooks) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	if h.start != nil {
		h.start(ctx, s)
	}
}

func (h hooks) OnEnd(s sdktrace.ReadOnlySpan) {
	if h.end != nil {
		h.end(s)
	}
}

func (h hooks) ForceFlush(ctx context.Context) error {
	if h.flush == nil {
		return nil
	}
	return h.flush(ctx)
}

func (h hooks) Shutdown(ctx context.Context) error {
	if h.shutdown == nil {
		return nil
	}
	return h.shutdown(ctx)
}

// sameSpan compares all that a span has.
var sameSpan = cmp.Options{
	cmp.Comparer(func(a, b attribute.Value) bool {
		return a.Type() == b.Type() && reflect.DeepEqual(a.AsInterface(), b.AsInterface())
	}),
	cmp.Comparer(func(a, b attribute.Set) bool { return a.Equals(&b) }),
	cmp.Comparer(func(a, b trace.SpanContext) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b *resource.Resource) bool { return a.Equal(b) && a.SchemaURL() == b.SchemaURL() }),
}

// receive waits for a value from c.
func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come in %v", what, patience)
		var none T
		return none
	}
}
