package otelplugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

// TestBatchProcessorIsFedInPieces: for each length of its queue, everything is delivered
// when Export returns, and nothing is dropped.
func TestBatchProcessorIsFedInPieces(t *testing.T) {
	for name, c := range map[string]struct {
		options []sdktrace.BatchSpanProcessorOption
		most    int
	}{
		"defaults":         {nil, 256},
		"short queue":      {[]sdktrace.BatchSpanProcessorOption{sdktrace.WithMaxQueueSize(7)}, 7},
		"small batches":    {[]sdktrace.BatchSpanProcessorOption{sdktrace.WithMaxExportBatchSize(100)}, 99},
		"batches of one":   {[]sdktrace.BatchSpanProcessorOption{sdktrace.WithMaxExportBatchSize(1)}, 1},
		"one that blocks":  {[]sdktrace.BatchSpanProcessorOption{sdktrace.WithBlocking(), sdktrace.WithMaxQueueSize(1)}, 1},
		"impatient":        {[]sdktrace.BatchSpanProcessorOption{sdktrace.WithBatchTimeout(time.Microsecond)}, 256},
		"large and larger": {[]sdktrace.BatchSpanProcessorOption{sdktrace.WithMaxQueueSize(10000), sdktrace.WithMaxExportBatchSize(5000)}, 256},
	} {
		t.Run(name, func(t *testing.T) {
			var back recorder
			e := pipeline(t, sdktrace.NewBatchSpanProcessor(&back, c.options...))
			const spans = 1000
			for round := range 2 {
				if err := e.Export(t.Context(), numbered(spans)); err != nil {
					t.Fatal(err)
				}
				if got := len(back.spans()); got != spans*(round+1) {
					t.Fatalf("%d spans delivered when Export returned, want %d", got, spans*(round+1))
				}
			}
			if got := slices.Max(back.sizes()); got > c.most {
				t.Errorf("the exporter got %d spans at once, want %d at most: they were delivered behind our back", got, c.most)
			}
		})
	}
}

var errBackEnd = errors.New("back end is down")

// failOnce fails a call and takes all others.
func failOnce(call int, err error) func(int) error {
	return func(n int) error {
		if n == call {
			return err
		}
		return nil
	}
}

// TestErrorOfAnyProcessorIsTheAnswer, be it returned or reported, from the
// goroutine that plays or from another.
func TestErrorOfAnyProcessorIsTheAnswer(t *testing.T) {
	for name, processor := range map[string]func(sdktrace.SpanExporter) sdktrace.SpanProcessor{
		"simple": sdktrace.NewSimpleSpanProcessor,
		"batch":  func(e sdktrace.SpanExporter) sdktrace.SpanProcessor { return sdktrace.NewBatchSpanProcessor(e) },
		"batch that delivers behind our back": func(e sdktrace.SpanExporter) sdktrace.SpanProcessor {
			return sdktrace.NewBatchSpanProcessor(e, sdktrace.WithMaxExportBatchSize(1))
		},
		"batch that delivers when it likes": func(e sdktrace.SpanExporter) sdktrace.SpanProcessor {
			return sdktrace.NewBatchSpanProcessor(e, sdktrace.WithBatchTimeout(time.Microsecond))
		},
		"batch that is hidden": func(e sdktrace.SpanExporter) sdktrace.SpanProcessor {
			return struct{ sdktrace.SpanProcessor }{sdktrace.NewBatchSpanProcessor(e)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			back := recorder{fail: failOnce(0, errBackEnd)}
			var healthy recorder
			e := pipeline(t, hooks{}, processor(&back), sdktrace.NewBatchSpanProcessor(&healthy))
			if err := e.Export(t.Context(), numbered(1)); !errors.Is(err, errBackEnd) {
				t.Errorf("Export: %v, want %v", err, errBackEnd)
			}
			if err := e.Export(t.Context(), numbered(1)); err != nil {
				t.Errorf("Export after it: %v", err)
			}
			if got := len(healthy.spans()); got != 2 {
				t.Errorf("the other back end has %d spans, want both attempts", got)
			}
		})
	}
}

// TestErrorNamesTheProcessor, for a list of several.
func TestErrorNamesTheProcessor(t *testing.T) {
	e := pipeline(t, hooks{}, hooks{flush: func(context.Context) error { return errBackEnd }})
	err := e.Export(t.Context(), numbered(1))
	if want := "flush span processor 2 (otelplugin_test.hooks): back end is down"; err == nil || err.Error() != want {
		t.Errorf("Export: %v, want %q", err, want)
	}
	if err := e.(pluginsdk.Flusher).Flush(t.Context()); err == nil || err.Error() != "flush span processor 2 (otelplugin_test.hooks): back end is down" {
		t.Errorf("Flush: %v, want the same", err)
	}
}

// TestBatchEndsWithTheFirstPieceThatMustComeAgain: the pieces behind it would only be
// delivered twice.
func TestBatchEndsWithTheFirstPieceThatMustComeAgain(t *testing.T) {
	back := recorder{fail: failOnce(1, errBackEnd)}
	e := pipeline(t, sdktrace.NewBatchSpanProcessor(&back))
	if err := e.Export(t.Context(), numbered(2000)); !errors.Is(err, errBackEnd) {
		t.Errorf("Export: %v, want %v", err, errBackEnd)
	}
	if diff := cmp.Diff([]int{256, 256}, back.sizes()); diff != "" {
		t.Errorf("pieces (-want +got):\n%s", diff)
	}
}

// TestDeadline: a back end that hangs costs the batch, and no other waits
// longer than it wants to.
func TestDeadline(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	flushes := 0
	e := pipeline(t, hooks{flush: func(context.Context) error {
		if flushes++; flushes == 1 {
			close(entered)
			<-release
		}
		return nil
	}})
	var first sync.WaitGroup
	first.Go(func() {
		if err := e.Export(t.Context(), numbered(1)); err != nil {
			t.Errorf("Export of the first: %v", err)
		}
	})
	receive(t, entered, "the flush of the first batch")
	given, cancel := context.WithCancelCause(t.Context())
	cancel(errBackEnd)
	if err := e.Export(given, numbered(1)); !errors.Is(err, errBackEnd) {
		t.Errorf("Export of the second: %v, want the cause of its end", err)
	}
	close(release)
	first.Wait()
	if err := e.Export(given, numbered(1)); !errors.Is(err, errBackEnd) {
		t.Errorf("Export with a context that has ended: %v, want its cause", err)
	}
	if err := e.Export(t.Context(), numbered(1)); err != nil {
		t.Errorf("Export after all: %v", err)
	}
}

// TestLateReport: the SDK's batch processor delivers also from a goroutine of its own,
// after a timer, and ForceFlush does not wait for the error of that delivery. The next
// ForceFlush does.
func TestLateReport(t *testing.T) {
	flushes := 0
	e := pipeline(t, hooks{flush: func(context.Context) error {
		if flushes++; flushes == 2 {
			otel.Handle(errBackEnd)
		}
		return nil
	}})
	if err := e.Export(t.Context(), numbered(1)); !errors.Is(err, errBackEnd) {
		t.Errorf("Export: %v, want what was reported late", err)
	}
	if err := e.Export(t.Context(), numbered(1)); err != nil {
		t.Errorf("Export after it: %v", err)
	}
}

// TestQueueIsEmptiedFirst: a back end that hangs beyond its context leaves the queue full
// of spans of batches that were given up. When it works again, the next spans must not be
// dropped for them.
func TestQueueIsEmptiedFirst(t *testing.T) {
	const piece = 4
	entered, release := make(chan struct{}, 1), make(chan struct{})
	back := recorder{fail: func(call int) error {
		if call == 0 {
			entered <- struct{}{}
			<-release
		}
		return nil
	}}
	flush := func() {}
	e := pipeline(t, hooks{flush: func(context.Context) error {
		flush()
		return nil
	}}, sdktrace.NewBatchSpanProcessor(&back, sdktrace.WithMaxQueueSize(piece), sdktrace.WithMaxExportBatchSize(100)))

	given, cancel := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		if err := e.Export(given, numbered(piece)); !errors.Is(err, context.Canceled) {
			t.Errorf("Export of what is given up: %v, want the end of its context", err)
		}
	})
	receive(t, entered, "the call of the back end")
	cancel()
	first.Wait()
	for range 3 { // more than the queue takes
		given, cancel := context.WithCancel(t.Context())
		flush = cancel
		if err := e.Export(given, numbered(piece)); !errors.Is(err, context.Canceled) {
			t.Errorf("Export of what is given up: %v, want the end of its context", err)
		}
	}
	var once sync.Once
	flush = func() { once.Do(func() { close(release) }) }
	last := stubs(piece)
	for i := range last {
		last[i].Name = "last"
	}
	if err := e.Export(t.Context(), batchOf(last.Snapshots()...)); err != nil {
		t.Errorf("Export of the last: %v", err)
	}
	delivered := 0
	for _, s := range back.spans() {
		if s.Name == "last" {
			delivered++
		}
	}
	if delivered != piece {
		t.Errorf("%d spans of the last batch were delivered, want %d: the plugin says that it has", delivered, piece)
	}
}

// TestPanicLeavesNoLock: the SDK of the plugin recovers it, and goes on.
func TestPanicLeavesNoLock(t *testing.T) {
	ended := 0
	e := pipeline(t, hooks{end: func(sdktrace.ReadOnlySpan) {
		if ended++; ended == 1 {
			_ = make([]int, 0)[ended]
		}
	}})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic came through")
			}
		}()
		_ = e.Export(t.Context(), numbered(1)) // panics
	}()
	if err := e.Export(t.Context(), numbered(1)); err != nil {
		t.Errorf("Export after a panic: %v", err)
	}
}

// TestPipelineIsConcurrentSafe and lets one batch in at a time, so that each
// gets its own errors.
func TestPipelineIsConcurrentSafe(t *testing.T) {
	back := recorder{fail: func(call int) error {
		if call%3 == 0 {
			return errBackEnd
		}
		return nil
	}}
	e := pipeline(t, sdktrace.NewBatchSpanProcessor(&back))
	var calls sync.WaitGroup
	var mu sync.Mutex
	failed := 0
	for range 30 {
		calls.Go(func() {
			if err := e.Export(t.Context(), numbered(5)); err != nil {
				mu.Lock()
				failed++
				mu.Unlock()
			}
			if err := e.(pluginsdk.Flusher).Flush(t.Context()); err != nil {
				t.Errorf("Flush: %v", err)
			}
		})
	}
	calls.Wait()
	if failed != 10 || len(back.sizes()) != 30 {
		t.Errorf("%d of %d batches failed, want 10 of 30", failed, len(back.sizes()))
	}
}

func TestConstructorsRefuse(t *testing.T) {
	var stopped []string
	stop := func(name string) hooks {
		return hooks{shutdown: func(context.Context) error {
			stopped = append(stopped, name)
			return nil
		}}
	}
	for name, c := range map[string]struct {
		construct func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error)
		want      string
	}{
		"error":       {func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) { return nil, errBackEnd }, "back end is down"},
		"nil in list": {list(stop("a"), nil, stop("b")), "span processor 2 of 3 is nil"},
		"empty":       {list(), "no span processors: want at least one, or spans would count as delivered without a destination"},
	} {
		stopped = nil
		if _, err := otelplugin.Pipeline(c.construct)(t.Context(), pluginsdk.Setup{}); err == nil || err.Error() != c.want {
			t.Errorf("%s: Pipeline gives %v, want %q", name, err, c.want)
		}
		if name == "nil in list" && !slices.Equal(stopped, []string{"a", "b"}) {
			t.Errorf("shut down: %q, want those that are not nil", stopped)
		}
		p, err := otelplugin.Processors(c.construct)(t.Context(), pluginsdk.Setup{})
		if name == "empty" {
			if err != nil || p.Process(t.Context(), numbered(1)) != nil || p.(pluginsdk.Stopper).Shutdown(t.Context()) != nil {
				t.Errorf("Processors of none: %v, want one that does nothing", err)
			}
		} else if err == nil || err.Error() != c.want {
			t.Errorf("%s: Processors gives %v, want %q", name, err, c.want)
		}
	}
}

// TestShutdown shuts down all processors in order, and returns all their errors.
func TestShutdown(t *testing.T) {
	var order []int
	stop := func(i int, err error) hooks {
		return hooks{shutdown: func(context.Context) error {
			order = append(order, i)
			if i == 2 {
				otel.Handle(fmt.Errorf("two spans lost"))
			}
			return err
		}}
	}
	e, err := otelplugin.Pipeline(list(stop(1, errBackEnd), stop(2, nil), stop(3, nil)))(t.Context(), pluginsdk.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Shutdown(t.Context())
	want := "shut down span processor 1 (otelplugin_test.hooks): back end is down\nreported to otel.Handle: two spans lost"
	if err == nil || err.Error() != want {
		t.Errorf("Shutdown: %v, want %q", err, want)
	}
	if !slices.Equal(order, []int{1, 2, 3}) {
		t.Errorf("shut down in the order %v, want 1 2 3", order)
	}
}

// TestProcessorsStopABatch that one of them could not deliver, and only then.
func TestProcessorsStopABatch(t *testing.T) {
	back := recorder{fail: failOnce(0, errBackEnd)}
	err := enriched(t, numbered(1), sdktrace.NewSimpleSpanProcessor(&back))
	if !errors.Is(err, errBackEnd) || !strings.HasPrefix(err.Error(), "reported to otel.Handle: ") {
		t.Errorf("Process: %v, want what was reported", err)
	}
	partial := hooks{flush: func(context.Context) error { return PartialSuccess{ErrorMessage: "one is odd", RejectedItems: 1} }}
	if err := enriched(t, numbered(1), partial); err != nil {
		t.Errorf("Process with partial success: %v, want nil", err)
	}
}

// TestHandlerOfTheAuthor: TestMain has set a handler before, and it still gets every
// error, also errors that count against a batch.
func TestHandlerOfTheAuthor(t *testing.T) {
	mine := errors.New("an error of TestHandlerOfTheAuthor")
	e := pipeline(t, hooks{end: func(sdktrace.ReadOnlySpan) { otel.Handle(mine) }})
	if err := e.Export(t.Context(), numbered(100)); !errors.Is(err, mine) {
		t.Errorf("Export: %v, want what was reported", err)
	}
	if got := authors.count(mine); got != 100 {
		t.Errorf("the author's handler got %d errors, want 100", got)
	}
}

// TestManyReports: a retryable error counts, even if many final errors come before it.
func TestManyReports(t *testing.T) {
	ended := 0
	e := pipeline(t, hooks{end: func(sdktrace.ReadOnlySpan) {
		if ended++; ended < 100 {
			otel.Handle(pluginsdk.Permanent(errors.New("odd span")))
		} else {
			otel.Handle(errBackEnd)
		}
	}})
	if err := e.Export(t.Context(), numbered(100)); !errors.Is(err, errBackEnd) || pluginsdk.Final(err) {
		t.Errorf("Export: %v, want the one error that calls for sending again", err)
	}
}

// TestReportsBetweenBatches are logged: they say something of spans that a
// processor has kept, or nothing of spans at all.
func TestReportsBetweenBatches(t *testing.T) {
	var log bytes.Buffer
	e, err := otelplugin.Pipeline(list(hooks{}))(t.Context(), pluginsdk.Setup{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	otel.Handle(errBackEnd)
	if want := `msg="error reported to otel.Handle while no batch was processed" error="back end is down"`; !strings.Contains(log.String(), want) {
		t.Errorf("the log has %q, want %s", log.String(), want)
	}
	if err := e.Export(t.Context(), numbered(1)); err != nil {
		t.Errorf("Export after it: %v", err)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
