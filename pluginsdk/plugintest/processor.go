package plugintest

import (
	"log/slog"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Process constructs a processor, lets it process one batch with the spans in, shuts it
// down, and returns the resulting spans. It does not change in. If a field of setup is
// nil, Process sets it: Getenv to a function that returns "", and Warn, Stdout and Log to
// write to the test's log. If the processor returns an error, the test fails at once.
func Process(tb testing.TB, construct pluginsdk.NewProcessor, setup pluginsdk.Setup, in []*tracepb.ResourceSpans) []*tracepb.ResourceSpans {
	tb.Helper()
	encoded, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: in})
	if err != nil {
		tb.Fatalf("encode the spans: %v", err)
	}
	processor, err := construct(tb.Context(), withDefaults(tb, setup))
	if err != nil {
		tb.Fatalf("construct the processor: %v", err)
	}
	batch := pluginsdk.NewBatch(encoded)
	if err := processor.Process(tb.Context(), batch); err != nil {
		tb.Fatalf("process %d spans: %v", batch.Len(), err)
	}
	out, err := batch.Decode()
	if err != nil {
		tb.Fatalf("the processor left bytes that are no OTLP: %v", err)
	}
	if stopper, ok := processor.(pluginsdk.Stopper); ok {
		if err := stopper.Shutdown(tb.Context()); err != nil {
			tb.Fatalf("shut the processor down: %v", err)
		}
	}
	return out
}

// withDefaults sets the fields of s that are nil.
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
