package hellotest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// spanNumber numbers the spans of Batch.
var spanNumber atomic.Uint64

// Batch returns a request with a span of each name, as a host sends it. Each span of a
// test binary has its own id. It is safe for concurrent use.
func Batch(names ...string) *coltracepb.ExportTraceServiceRequest {
	scope := &tracepb.ScopeSpans{}
	for _, name := range names {
		scope.Spans = append(scope.Spans, &tracepb.Span{
			Name: name, TraceId: []byte("0123456789abcdef"), SpanId: fmt.Appendf(nil, "%08d", spanNumber.Add(1)),
			StartTimeUnixNano: uint64(time.Millisecond), EndTimeUnixNano: uint64(2 * time.Millisecond),
		})
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{scope}}}}
}

// Delivered returns a function for plugintest.WithReceived. It reads the span ids, one per
// line, that a plugin has written to a file. Without the file there are none.
func Delivered(file string) func() ([]string, error) {
	return func() ([]string, error) {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return strings.Fields(string(text)), err
	}
}
