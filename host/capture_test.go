package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// names returns how often each span of a capture came, up to the batch with the last of
// want spans.
func names(t *testing.T, c *host.Capture, want int) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := map[string]int{}
	for spans := 0; spans < want; {
		batches := c.Next(ctx)
		if len(batches) == 0 {
			t.Fatalf("%d spans came, want %d", spans, want)
		}
		for _, b := range batches {
			var request coltracepb.ExportTraceServiceRequest
			if err := proto.Unmarshal(b.Data, &request); err != nil {
				t.Fatal(err)
			}
			before := spans
			for _, rs := range request.GetResourceSpans() {
				for _, ss := range rs.GetScopeSpans() {
					for _, span := range ss.GetSpans() {
						got[span.GetName()]++
						spans++
					}
				}
			}
			if spans-before != b.Spans {
				t.Errorf("a batch of %d spans says %d", spans-before, b.Spans)
			}
		}
	}
	return got
}

// TestCapture: a processor's capture has the spans before it, an exporter's capture the
// spans that it exports. Both are delivered, and none is captured after Close.
func TestCapture(t *testing.T) {
	r := startHost(t, withProcessors(t, nil, "a", "b"), testplugin.Install(t, "record"))
	captures := map[string]*host.Capture{}
	for _, plugin := range []string{"a", "b", "p0"} {
		c, err := host.OpenCapture(r.Host, plugin)
		if err != nil {
			t.Fatal(err)
		}
		captures[plugin] = c
	}
	r.spans("s", 100)
	r.flush()
	for plugin, suffix := range map[string]string{"a": "", "b": "+a", "p0": "+a+b"} {
		got := names(t, captures[plugin], 100)
		for n := range 100 {
			if name := fmt.Sprintf("s-%d%s", n, suffix); got[name] != 1 {
				t.Fatalf("%s: span %s came %d times, want once", plugin, name, got[name])
			}
		}
		if missed := captures[plugin].Close(); missed != 0 {
			t.Errorf("%s: %d spans are missed", plugin, missed)
		}
	}
	r.wantCounts(0, map[string]uint64{"delivered": 100})
}

// TestCaptureOfNoPlugin: an unknown name is an error with the names, and so is no name
// for several plugins. A fifth capture of a plugin is an error, too.
func TestCaptureOfNoPlugin(t *testing.T) {
	h, err := host.New(host.Config{Plugins: "a=/nosuch/a,b=/nosuch/b"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		is   error
		text string
	}{
		"c": {host.ErrNoPlugin, `there is no such plugin: "c"; the plugins are a, b`},
		"":  {host.ErrManyPlugins, "the list has several plugins: name one of a, b"},
	} {
		if _, err := host.OpenCapture(h, name); !errors.Is(err, want.is) || err.Error() != want.text {
			t.Errorf("OpenCapture(%q): %v, want %s", name, err, want.text)
		}
	}
	for range 4 {
		c, err := host.OpenCapture(h, "a")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if _, err := host.OpenCapture(h, "a"); !errors.Is(err, host.ErrManyCaptures) {
		t.Errorf("a fifth capture: %v, want %v", err, host.ErrManyCaptures)
	}
}

// TestCaptureIsBounded: a capture that is not read misses batches, and delays none.
func TestCaptureIsBounded(t *testing.T) {
	path := testplugin.Install(t, "record")
	r := startHost(t, nil, path)
	c, err := host.OpenCapture(r.Host, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 { // of some 500 KiB each
		if _, err := r.Consume(requestOf(t, fmt.Sprintf("big%d", i), 500, 1000), ""); err != nil {
			t.Fatal(err)
		}
		r.flush()
	}
	spans, bytes := 0, 0
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, b := range c.Next(ctx) {
		spans += b.Spans
		bytes += len(b.Data)
	}
	if missed := c.Close(); spans == 0 || bytes > 4<<20 || uint64(spans)+missed != 6000 {
		t.Errorf("%d spans in %d bytes, %d missed; want 6000 in all, and at most 4 MiB", spans, bytes, missed)
	}
	r.wantCounts(0, map[string]uint64{"delivered": 6000})
}
