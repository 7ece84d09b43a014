package consoleexporter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/test/golden"
)

// setup returns the Setup of the SDK, with settings in env.
func setup(env map[string]string, stdout io.Writer) pluginsdk.Setup {
	return pluginsdk.Setup{
		Getenv:  func(name string) string { return env[name] },
		Context: pluginsdk.StaticContext{Node: "10.0.0.1"},
		Stdout:  stdout,
	}
}

// export sends spans of the two resources through a new exporter.
func export(t *testing.T, s pluginsdk.Setup, spans ...*tracepb.ResourceSpans) {
	t.Helper()
	exporter, err := consoleexporter.New(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := exporter.Export(t.Context(), batch(t, spans...)); err != nil {
		t.Errorf("Export: %v", err)
	}
	if err := exporter.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func batch(tb testing.TB, spans ...*tracepb.ResourceSpans) *pluginsdk.Batch {
	tb.Helper()
	encoded, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		tb.Fatal(err)
	}
	return pluginsdk.NewBatch(encoded)
}

// TestGolden compares with the output of Python's json.dumps(span, indent=4) for the same
// spans, byte for byte. -update writes our output instead.
func TestGolden(t *testing.T) {
	for name, spans := range map[string][]*tracepb.ResourceSpans{
		"guide": {resource("https://schema", []*commonpb.KeyValue{
			str("telemetry.sdk.language", "go"), str("service.name", "unknown_service"),
		}, proxySpan(), userSpan())},
		"kinds": {resource("", nil, everyKind())},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout bytes.Buffer
			export(t, setup(nil, &stdout), spans...)
			golden.Compare(t, name+".json", stdout.String())
			decoder := json.NewDecoder(&stdout)
			for decoder.More() {
				var span map[string]any
				if err := decoder.Decode(&span); err != nil {
					t.Fatalf("not JSON: %v", err)
				}
			}
		})
	}
}

// proxySpan is the span of the guide.
func proxySpan() *tracepb.Span {
	return &tracepb.Span{
		TraceId: bytes.Repeat([]byte{0x88}, 16), SpanId: []byte{0x59, 0x98, 0x9b, 0x70, 0x39, 0x36, 0x25, 0xe3},
		Name: "proxy_http_request", Kind: tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: 1716919504864137999, EndTimeUnixNano: 1716919504891003000,
		Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_OK},
		Attributes: []*commonpb.KeyValue{
			str("request_id", "cf86e040-2c53-44b8-976e-55224b692141"), str("deployment", "HelloWorld"),
			str("request_route_path", "/"), {Key: "http.status_code", Value: integer(200)},
		},
	}
}

// userSpan has a parent, a state, an event and a link.
func userSpan() *tracepb.Span {
	return &tracepb.Span{
		TraceId: bytes.Repeat([]byte{0x88}, 16), SpanId: []byte("child..."), ParentSpanId: []byte("parent.."),
		TraceState: "vendor=it's,b=2", Name: "application_span", Kind: tracepb.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: 1716919504864137000, EndTimeUnixNano: 1716919504864138000,
		Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "ValueError: no"},
		Events: []*tracepb.Span_Event{
			{Name: "exception", TimeUnixNano: 1716919504864137500, Attributes: []*commonpb.KeyValue{
				str("exception.type", "ValueError"), str("exception.stacktrace", "line 1\n\tline 2"),
			}},
			{Name: "bare"},
		},
		Links: []*tracepb.Span_Link{{
			TraceId: bytes.Repeat([]byte{1}, 16), SpanId: bytes.Repeat([]byte{2}, 8), TraceState: "c=3",
			Attributes: []*commonpb.KeyValue{str("why", "batch")},
		}},
	}
}

// everyKind has attributes of each kind, and text that needs escapes.
func everyKind() *tracepb.Span {
	array := func(values ...*commonpb.AnyValue) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: values}}}
	}
	value := func(key string, v *commonpb.AnyValue) *commonpb.KeyValue {
		return &commonpb.KeyValue{Key: key, Value: v}
	}
	attributes := []*commonpb.KeyValue{
		str("ascii", `"quoted" and \ and / and <&>`),
		str("control", "\b\f\n\r\t\x00\x1f\x7f"),
		str("unicode", "é € \u2028 😀"),
		str("empty", ""),
		value("true", &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}),
		value("int", integer(math.MinInt64)),
		value("nothing", &commonpb.AnyValue{}),
		value("bytes", &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: []byte{0, 255}}}),
		value("no members", array()),
		value("ints", array(integer(1), integer(2))),
		value("floats", array(float(1), float(0.5))),
		value("bools", array(&commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{}})),
		value("strings", array(str("", "a").Value, str("", "b").Value)),
		value("mixed", array(integer(1), str("", "a").Value, array(float(2)))),
		value("map", &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{
			Values: []*commonpb.KeyValue{value("k", integer(1))},
		}}}),
	}
	for i, f := range []float64{0, math.Copysign(0, -1), 1, 1.5, 1e15, 1e16, 1.5e300, 1e-4, 1e-5, math.NaN(), math.Inf(1), math.Inf(-1)} {
		attributes = append(attributes, value("float "+strconv.Itoa(i), float(f)))
	}
	return &tracepb.Span{Name: "kinds", Attributes: attributes}
}

func TestKindsAndCodesHavePythonsNames(t *testing.T) {
	var spans []*tracepb.Span
	for kind := range len(tracepb.Span_SpanKind_name) {
		spans = append(spans, &tracepb.Span{
			Kind: tracepb.Span_SpanKind(kind), Status: &tracepb.Status{Code: tracepb.Status_StatusCode(kind % 3)},
		})
	}
	var stdout bytes.Buffer
	export(t, setup(nil, &stdout), resource("", nil, spans...))
	want := []string{
		"SpanKind.INTERNAL UNSET", "SpanKind.INTERNAL OK", "SpanKind.SERVER ERROR",
		"SpanKind.CLIENT UNSET", "SpanKind.PRODUCER OK", "SpanKind.CONSUMER ERROR",
	}
	var got []string
	decoder := json.NewDecoder(&stdout)
	for decoder.More() {
		var span struct {
			Kind   string
			Status struct {
				Code string `json:"status_code"`
			}
		}
		if err := decoder.Decode(&span); err != nil {
			t.Fatal(err)
		}
		got = append(got, span.Kind+" "+span.Status.Code)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kinds and codes (-want +got):\n%s", diff)
	}
}

// writes keeps each Write apart.
type writes [][]byte

func (w *writes) Write(b []byte) (int, error) {
	*w = append(*w, bytes.Clone(b))
	return len(b), nil
}

func TestOneWriteForEachSpan(t *testing.T) {
	var stdout writes
	export(t, setup(map[string]string{consoleexporter.EnvFormat: "json"}, &stdout),
		resource("", nil, proxySpan(), userSpan()), resource("", nil, everyKind()))
	if len(stdout) != 3 {
		t.Fatalf("%d writes, want 3", len(stdout))
	}
	for i, name := range []string{"kinds", "application_span", "proxy_http_request"} { // in the order of their ends
		if text := string(stdout[i]); !strings.HasPrefix(text, "{\n    \"name\": \""+name) || !strings.HasSuffix(text, "\n}\n") {
			t.Errorf("write %d is not the whole of span %q:\n%s", i, name, text)
		}
	}
}

func TestFilesAreRays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "spans")
	in := func(name string, attributes ...*commonpb.KeyValue) *tracepb.Span {
		return &tracepb.Span{Name: name, Attributes: attributes}
	}
	request := str("serve.request_id", "r1")
	pid := strconv.Itoa(os.Getppid())
	spans := []*tracepb.ResourceSpans{
		resource("", nil,
			in("replica", request, str("serve.replica_id", "default#HelloWorld#3npxyudx")),
			in("unfit", str("serve.replica_id", "a/b#Ü c#..#x")),
			in("proxy", request),
			in("other"),
			in("long", str("serve.replica_id", strings.Repeat("x", 300))),
		),
		resource("", []*commonpb.KeyValue{str("service.name", "shop"), str("service.instance.id", "i-1")}, in("named")),
		resource("", []*commonpb.KeyValue{str("service.name", "shop"), {Key: "process.pid", Value: integer(42)}}, in("pid")),
		resource("", []*commonpb.KeyValue{str("service.name", "../shop")}, in("outside")),
	}
	for range 2 { // the second time appends
		export(t, setup(map[string]string{consoleexporter.EnvOutput: dir}, nil), spans...)
	}
	want := map[string][]string{
		"replica_default_HelloWorld_3npxyudx_tracing.json":      {"replica", "replica"},
		"replica_a_b____c_.._x_tracing.json":                    {"unfit", "unfit"},
		"proxy_10.0.0.1_tracing.json":                           {"proxy", "proxy"},
		"unknown_service_" + pid + "_tracing.json":              {"other", "other"},
		"replica_" + strings.Repeat("x", 192) + "_tracing.json": {"long", "long"},
		"shop_i-1_tracing.json":                                 {"named", "named"},
		"shop_42_tracing.json":                                  {"pid", "pid"},
		".._shop_" + pid + "_tracing.json":                      {"outside", "outside"},
	}
	got := map[string][]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		got[entry.Name()] = namesIn(t, filepath.Join(dir, entry.Name()))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// namesIn reads a file as Ray's own test does: objects one after another.
func namesIn(t *testing.T, path string) []string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, object := range strings.Split(strings.ReplaceAll(string(content), "}\n{", "}\x00{"), "\x00") {
		var span struct{ Name string }
		if err := json.Unmarshal([]byte(object), &span); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		names = append(names, span.Name)
	}
	return names
}

func TestUnknownNodeIsLocalhost(t *testing.T) {
	dir := t.TempDir()
	s := setup(map[string]string{consoleexporter.EnvOutput: dir}, nil)
	s.Context.Node = ""
	export(t, s, resource("", nil, &tracepb.Span{Attributes: []*commonpb.KeyValue{str("serve.request_id", "r")}}))
	if _, err := os.Stat(filepath.Join(dir, "proxy_localhost_tracing.json")); err != nil {
		t.Error(err)
	}
}

func TestFileThatIsMovedAwayIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	exporter, err := consoleexporter.New(t.Context(), setup(map[string]string{consoleexporter.EnvOutput: dir}, nil))
	if err != nil {
		t.Fatal(err)
	}
	span := resource("", nil, &tracepb.Span{Name: "a", Attributes: []*commonpb.KeyValue{str("serve.request_id", "r")}})
	path := filepath.Join(dir, "proxy_10.0.0.1_tracing.json")
	for range 2 {
		if err := exporter.Export(t.Context(), batch(t, span)); err != nil {
			t.Fatal(err)
		}
		if got := namesIn(t, path); !slices.Equal(got, []string{"a"}) {
			t.Errorf("file has %q", got)
		}
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWrongSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, value, want string }{
		{consoleexporter.EnvFormat, "xml", `SERVE_CONSOLE_FORMAT: "xml" is not known: want json or pretty`},
		{consoleexporter.EnvOutput, "spans", `SERVE_CONSOLE_OUTPUT: "spans" is not known: want stdout, or a folder as a path with a slash, such as ./spans`},
		{consoleexporter.EnvOutput, file + "/spans", "SERVE_CONSOLE_OUTPUT: create the folder: mkdir " + file + ": not a directory"},
	} {
		_, err := consoleexporter.New(t.Context(), setup(map[string]string{c.name: c.value}, nil))
		var named *pluginsdk.ConfigError
		if !errors.As(err, &named) || named.Path != c.name || err.Error() != c.want {
			t.Errorf("%s=%s gives %v\nwant %s", c.name, c.value, err, c.want)
		}
	}
}

func TestFailedWritesAreRetryable(t *testing.T) {
	broken := errors.New("broken")
	exporter, err := consoleexporter.New(t.Context(), setup(nil, failing{broken}))
	if err != nil {
		t.Fatal(err)
	}
	err = exporter.Export(t.Context(), batch(t, resource("", nil, proxySpan())))
	if !errors.Is(err, broken) || err.Error() != "write span: broken" {
		t.Errorf("Export gives %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := exporter.Export(ctx, batch(t, resource("", nil, proxySpan()))); !errors.Is(err, context.Canceled) {
		t.Errorf("Export after the end of its context gives %v", err)
	}

	dir := t.TempDir()
	exporter, err = consoleexporter.New(t.Context(), setup(map[string]string{consoleexporter.EnvOutput: dir}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := exporter.Export(t.Context(), batch(t, resource("", nil, proxySpan()))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Export without the folder gives %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestExportConcurrentSafe writes the same files from several calls.
func TestExportConcurrentSafe(t *testing.T) {
	dir := t.TempDir()
	exporter, err := consoleexporter.New(t.Context(), setup(map[string]string{consoleexporter.EnvOutput: dir}, nil))
	if err != nil {
		t.Fatal(err)
	}
	const callers, calls = 4, 50
	ended := make(chan error, callers)
	for caller := range callers {
		span := proxySpan()
		span.Name = strconv.Itoa(caller)
		span.Attributes = append(span.Attributes, str("serve.request_id", "r"))
		go func() {
			var errs error
			for range calls {
				errs = errors.Join(errs, exporter.Export(context.WithoutCancel(t.Context()), batch(t, resource("", nil, span))))
			}
			ended <- errs
		}()
	}
	for range callers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	counts := map[string]int{}
	for _, name := range namesIn(t, filepath.Join(dir, "proxy_10.0.0.1_tracing.json")) {
		counts[name]++
	}
	if want := map[string]int{"0": calls, "1": calls, "2": calls, "3": calls}; !maps.Equal(counts, want) {
		t.Errorf("spans in the file: %v, want %v", counts, want)
	}
}

func BenchmarkExport(b *testing.B) {
	exporter, err := consoleexporter.New(b.Context(), setup(nil, io.Discard))
	if err != nil {
		b.Fatal(err)
	}
	spans := slices.Repeat([]*tracepb.Span{proxySpan()}, 512)
	encoded := batch(b, resource("", []*commonpb.KeyValue{str("service.name", "shop")}, spans...)).Bytes()
	b.ReportAllocs()
	for b.Loop() {
		if err := exporter.Export(b.Context(), pluginsdk.NewBatch(encoded)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/span")
}

func resource(schema string, attributes []*commonpb.KeyValue, spans ...*tracepb.Span) *tracepb.ResourceSpans {
	return &tracepb.ResourceSpans{
		SchemaUrl: schema, Resource: &resourcepb.Resource{Attributes: attributes},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}},
	}
}

func str(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

func integer(i int64) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: i}}
}

func float(f float64) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: f}}
}
