package plugintest

import (
	"log/slog"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Process makes a processor, has it process one batch, shuts it down and gives
// what is left of the batch, for a test to compare with what it should be.
// in is not changed. Fields of setup that are nil get one that does
// nothing (Getenv, Warn) or writes to the test's log (Stdout, Log). A
// processor that fails, to be made or to process, fails the test at once.
func Process(tb testing.TB, construct pluginsdk.NewProcessor, setup pluginsdk.Setup, in []*tracepb.ResourceSpans) []*tracepb.ResourceSpans {
	tb.Helper()
	encoded, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: in})
	if err != nil {
		tb.Fatalf("encode the spans: %v", err)
	}
	processor, err := construct(tb.Context(), withDefaults(tb, setup))
	if err != nil {
		tb.Fatalf("make the processor: %v", err)
	}
	batch := pluginsdk.NewBatch(encoded)
	if err := processor.Process(tb.Context(), batch); err != nil {
		tb.Fatalf("process %d spans: %v", batch.Len(), err)
	}
	out, err := batch.Decode()
	if err != nil {
		tb.Fatalf("what the processor left is no OTLP: %v", err)
	}
	if stopper, ok := processor.(pluginsdk.Stopper); ok {
		if err := stopper.Shutdown(tb.Context()); err != nil {
			tb.Fatalf("shut the processor down: %v", err)
		}
	}
	return out
}

// withDefaults fills in what a constructor may use without asking.
func withDefaults(tb testing.TB, s pluginsdk.Setup) pluginsdk.Setup {
	if s.Getenv == nil {
		s.Getenv = func(string) string { return "" }
	}
	if s.Warn == nil {
		s.Warn = func(path, text string) { tb.Logf("warning: %s: %s", path, text) }
	}
	if s.Stdout == nil {
		s.Stdout = tb.Output()
	}
	if s.Log == nil {
		s.Log = slog.New(slog.NewTextHandler(tb.Output(), nil))
	}
	return s
}
