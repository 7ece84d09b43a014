package consoleexporter_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/golden"
)

// prettyEnv asks for drawings of 80 columns.
var prettyEnv = map[string]string{consoleexporter.EnvFormat: "pretty", "LANG": "C.UTF-8"}

// inTrace is a span with an id, and a parent unless that is 0.
func inTrace(trace, id, parent byte, name string, start uint64) *tracepb.Span {
	s := &tracepb.Span{
		TraceId: bytes.Repeat([]byte{trace}, 16), SpanId: bytes.Repeat([]byte{id}, 8), Name: name,
		StartTimeUnixNano: start, EndTimeUnixNano: start + 1000,
	}
	if parent != 0 {
		s.ParentSpanId = bytes.Repeat([]byte{parent}, 8)
	}
	return s
}

func TestPretty(t *testing.T) {
	service := []*commonpb.KeyValue{str("service.name", "shop")}
	called := inTrace(3, 1, 9, "called", 1716919504000000000)
	called.Flags = 0x300 // has a parent, in another process
	var stdout bytes.Buffer
	export(t, setup(prettyEnv, &stdout),
		resource("", service, proxySpan(), userSpan(), called), resource("", nil, everyKind()))
	golden.Compare(t, "pretty.golden", stdout.String())
}

func TestOneWriteForEachTrace(t *testing.T) {
	var stdout writes
	export(t, setup(map[string]string{consoleexporter.EnvFormat: "pretty"}, &stdout),
		resource("", nil, inTrace(2, 1, 0, "b", 500), inTrace(1, 1, 0, "c", 900)),
		resource("", nil, inTrace(2, 2, 1, "b's", 2000), inTrace(3, 1, 0, "a", 100)))
	if len(stdout) != 3 {
		t.Fatalf("%d writes, want 3", len(stdout))
	}
	for i, want := range []string{"trace 0303", "trace 0202", "trace 0101"} { // in the order of their starts
		if text := string(stdout[i]); !strings.HasPrefix(text, want) || !strings.HasSuffix(text, "\n\n") {
			t.Errorf("write %d is not the whole of %s:\n%s", i, want, text)
		}
	}
}

func TestParentsThatAreElsewhere(t *testing.T) {
	for _, c := range []struct {
		flags uint32
		kind  tracepb.Span_SpanKind
		want  string
	}{
		{0x300, tracepb.Span_SPAN_KIND_INTERNAL, "(in another process)"},
		{0x100, tracepb.Span_SPAN_KIND_SERVER, "(not seen yet)"},
		// Without a flag, the kind decides.
		{0, tracepb.Span_SPAN_KIND_SERVER, "(in another process)"},
		{0, tracepb.Span_SPAN_KIND_CONSUMER, "(in another process)"},
		{0, tracepb.Span_SPAN_KIND_CLIENT, "(not seen yet)"},
	} {
		span := inTrace(1, 1, 2, "span", 1000)
		span.Flags, span.Kind = c.flags, c.kind
		var stdout bytes.Buffer
		export(t, setup(prettyEnv, &stdout), resource("", nil, span))
		if !strings.Contains(stdout.String(), "parent 0202020202020202 "+c.want) {
			t.Errorf("flags %#x, kind %v: no %q in:\n%s", c.flags, c.kind, c.want, stdout.String())
		}
	}
}

// limited takes some writes, then none.
type limited struct {
	bytes.Buffer
	left int
	err  error
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left == 0 {
		return 0, l.err
	}
	l.left--
	return l.Buffer.Write(b)
}

// TestOnlyWhatWasDrawnIsRemembered fails the second of two traces: when the
// batch is sent again the first is a continued one, the second is not.
func TestOnlyWhatWasDrawnIsRemembered(t *testing.T) {
	out := limited{left: 1, err: errors.New("broken")}
	exporter, err := consoleexporter.New(t.Context(), setup(prettyEnv, &out))
	if err != nil {
		t.Fatal(err)
	}
	spans := resource("", nil, inTrace(1, 1, 0, "one", 100), inTrace(2, 1, 0, "two", 200))
	if err := exporter.Export(t.Context(), batch(t, spans)); !errors.Is(err, out.err) || err.Error() != "write trace: broken" {
		t.Errorf("Export gives %v", err)
	}
	out.left = 2
	if err := exporter.Export(t.Context(), batch(t, spans)); err != nil {
		t.Error(err)
	}
	var headings []string
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "trace ") {
			headings = append(headings, line[6:10]+strconv.FormatBool(strings.Contains(line, "continued")))
		}
	}
	if want := []string{"0101false", "0101true", "0202false"}; !slices.Equal(headings, want) {
		t.Errorf("headings are %q, want %q", headings, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := exporter.Export(ctx, batch(t, spans)); !errors.Is(err, context.Canceled) {
		t.Errorf("Export after the end of its context gives %v", err)
	}
}

// TestHugeServiceName has a name that is as large as a batch may be: it is
// neither copied for each span nor remembered for each trace.
func TestHugeServiceName(t *testing.T) {
	const size, spans, traces = 1 << 20, 64, 32
	exporter, err := consoleexporter.New(t.Context(), setup(prettyEnv, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	stats := func() (all, live uint64) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.TotalAlloc, m.HeapAlloc
	}
	service := []*commonpb.KeyValue{str("service.name", strings.Repeat("日", size/3))}
	var many []*tracepb.Span
	for i := range byte(spans) {
		many = append(many, inTrace(1, i+1, i, "span", 1000))
	}
	one := batch(t, resource("", service, many...))
	all, _ := stats()
	if err := exporter.Export(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if after, _ := stats(); after-all > spans*size/4 {
		t.Errorf("drawing %d spans of a service with a name of %d bytes takes %d bytes", spans, size, after-all)
	}
	_, live := stats()
	for i := range byte(traces) {
		if err := exporter.Export(t.Context(), batch(t, resource("", service, inTrace(i+2, 1, 0, "span", 1000)))); err != nil {
			t.Fatal(err)
		}
	}
	if _, after := stats(); int64(after)-int64(live) > traces*size/4 {
		t.Errorf("%d traces of a service with a name of %d bytes keep %d bytes", traces, size, after-live)
	}
	runtime.KeepAlive(exporter)
}

func TestFolderTakesNoDrawings(t *testing.T) {
	_, err := consoleexporter.New(t.Context(), setup(map[string]string{
		consoleexporter.EnvFormat: "pretty", consoleexporter.EnvOutput: "./spans",
	}, io.Discard))
	want := `SERVE_CONSOLE_OUTPUT: "./spans" is a folder, which takes json only, in files of one component each: ` +
		`want stdout with SERVE_CONSOLE_FORMAT pretty`
	var named *pluginsdk.ConfigError
	if !errors.As(err, &named) || err.Error() != want {
		t.Errorf("New gives %v\nwant %s", err, want)
	}
}

// TestPrettyConcurrentSafe has several calls draw spans of the same traces.
func TestPrettyConcurrentSafe(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	exporter, err := consoleexporter.New(t.Context(), setup(prettyEnv, writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(b)
	})))
	if err != nil {
		t.Fatal(err)
	}
	const callers, calls = 4, 50
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for call := range calls {
				name := "span-" + strconv.Itoa(caller) + "-" + strconv.Itoa(call) + "."
				span := inTrace(byte(call%5), byte(1+caller*calls+call), byte(call), name, 1000)
				if err := exporter.Export(context.WithoutCancel(t.Context()), batch(t, resource("", nil, span))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for caller := range callers {
		for call := range calls {
			// A span that others lead to is named again, without its duration.
			name := "span-" + strconv.Itoa(caller) + "-" + strconv.Itoa(call) + "."
			drawn := 0
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, name) && strings.Contains(line, "1.00µs") {
					drawn++
				}
			}
			if drawn != 1 {
				t.Errorf("%s is drawn %d times", name, drawn)
			}
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func BenchmarkPretty(b *testing.B) {
	exporter, err := consoleexporter.New(b.Context(), setup(prettyEnv, io.Discard))
	if err != nil {
		b.Fatal(err)
	}
	var spans []*tracepb.Span
	for trace := range byte(128) {
		for i := range byte(4) {
			span := inTrace(trace+1, i+1, i, "replica_handle_request HelloWorld __call__", 1716919504864137999)
			span.Attributes = proxySpan().Attributes
			spans = append(spans, span)
		}
	}
	encoded := batch(b, resource("", []*commonpb.KeyValue{str("service.name", "shop")}, spans...)).Bytes()
	b.ReportAllocs()
	for b.Loop() {
		if err := exporter.Export(b.Context(), pluginsdk.NewBatch(encoded)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/span")
}
