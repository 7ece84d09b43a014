package contrib

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/host"
)

// patience bounds every wait of these tests; none takes a tenth of it.
const patience = 20 * time.Second

// link gives the path of a plugin.
func link(t *testing.T, name string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), prefix+name)
	if err := os.Symlink(exe, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// traffic makes spans as a service does, spans of them in one trace, and is in
// no hurry with the first: its children end before it.
func traffic(ctx context.Context, tracer trace.Tracer, spans int) error {
	member, err := baggage.NewMember("tenant", "acme")
	if err != nil {
		return err
	}
	bag, err := baggage.New(member)
	if err != nil {
		return err
	}
	ctx = baggage.ContextWithBaggage(ctx, bag)
	ctx, root := tracer.Start(ctx, "proxy_http_request", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("serve.request_id", "r-1"), attribute.String("http.route", "/hello")))
	defer root.End()
	for i := range spans - 1 {
		_, span := tracer.Start(ctx, "application_span", trace.WithAttributes(attribute.Int("number", i)),
			trace.WithLinks(trace.Link{SpanContext: root.SpanContext()}))
		span.AddEvent("worked", trace.WithAttributes(attribute.StringSlice("on", []string{"this", "that"})))
		if i == 0 {
			span.SetStatus(codes.Error, "no")
		}
		span.End()
	}
	return nil
}

// serve sends traffic through a host with one plugin until its end, and returns the
// delivery accounting of the plugin.
func serve(t *testing.T, plugin string, spans int, environ ...string) host.ExporterStats {
	t.Helper()
	var log bytes.Buffer
	h, err := host.New(host.Config{
		Plugins: link(t, plugin), BatchAge: 20 * time.Millisecond, StartTimeout: patience, StopTimeout: patience,
		Environ: append(environ, "PATH="+os.Getenv("PATH"), "GOCOVERDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0"),
	}, host.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h), sdktrace.WithResource(
		resource.NewWithAttributes("https://opentelemetry.io/schemas/1.40.0", attribute.String("service.name", "hello"))))
	if err := traffic(t.Context(), provider.Tracer("contrib", trace.WithInstrumentationVersion("1")), spans); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := provider.ForceFlush(ctx); err != nil {
		t.Errorf("ForceFlush: %v", err)
	}
	if err := provider.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	stats := h.Stats()
	if stats.Accepted != uint64(spans) || stats.Exporters[0].Waiting != 0 {
		t.Errorf("the host accepted %d spans of %d, and %d wait", stats.Accepted, spans, stats.Exporters[0].Waiting)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the host's log:\n%s", log.String())
		}
	})
	return stats.Exporters[0]
}

// delivered checks that all spans were.
func delivered(t *testing.T, x host.ExporterStats, spans int) {
	t.Helper()
	if x.Delivered != uint64(spans) || len(x.Rejected)+len(x.Dropped)+len(x.Filtered) != 0 {
		t.Errorf("of %d spans, delivered %d, rejected %v, dropped %v, filtered %v; last error %q",
			spans, x.Delivered, x.Rejected, x.Dropped, x.Filtered, x.LastError)
	}
}

// backEnd is a local HTTP server that keeps bodies.
type backEnd struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
}

// newBackEnd answers the n-th request, from 0, with answers[n], and later requests with the
// last answer.
func newBackEnd(t *testing.T, answers ...func(http.ResponseWriter)) *backEnd {
	t.Helper()
	b := &backEnd{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read a request: %v", err)
		}
		b.mu.Lock()
		n := len(b.bodies)
		b.bodies = append(b.bodies, body)
		b.mu.Unlock()
		answers[min(n, len(answers)-1)](w)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *backEnd) requests() [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.bodies)
}

func code(status int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(status) }
}

// otlpOf reads the spans of OTLP requests, by name.
func otlpOf(t *testing.T, bodies [][]byte) map[string][]*tracepb.Span {
	t.Helper()
	spans := map[string][]*tracepb.Span{}
	for _, body := range bodies {
		var request coltracepb.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &request); err != nil {
			t.Fatal(err)
		}
		for _, rs := range request.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					spans[s.GetName()] = append(spans[s.GetName()], s)
				}
			}
		}
	}
	return spans
}

// attributesOf returns the attributes of s that are strings.
func attributesOf(s *tracepb.Span) map[string]string {
	all := map[string]string{}
	for _, kv := range s.GetAttributes() {
		all[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	return all
}

const spans = 700 // several pieces

func TestOTLPClient(t *testing.T) {
	back := newBackEnd(t, code(http.StatusOK))
	delivered(t, serve(t, "otlp", spans, "OTEL_EXPORTER_OTLP_ENDPOINT="+back.URL), spans)
	got := otlpOf(t, back.requests())
	if len(got["application_span"]) != spans-1 || len(got["proxy_http_request"]) != 1 {
		t.Fatalf("the back end has %d and %d spans", len(got["application_span"]), len(got["proxy_http_request"]))
	}
}

// TestOTLPClientThatFailed gets the batch again.
func TestOTLPClientThatFailed(t *testing.T) {
	back := newBackEnd(t, code(http.StatusServiceUnavailable), code(http.StatusOK))
	delivered(t, serve(t, "otlp", 3, "OTEL_EXPORTER_OTLP_ENDPOINT="+back.URL), 3)
	if got := otlpOf(t, back.requests()[1:]); len(got["application_span"]) != 2 {
		t.Errorf("after the failure the back end has %v", got)
	}
}

// TestOTLPClientPartialSuccess is counted, and no span is sent twice.
func TestOTLPClientPartialSuccess(t *testing.T) {
	back := newBackEnd(t, func(w http.ResponseWriter) {
		answer, err := proto.Marshal(&coltracepb.ExportTraceServiceResponse{PartialSuccess: &coltracepb.ExportTracePartialSuccess{
			RejectedSpans: 1, ErrorMessage: "one is odd",
		}})
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	})
	for _, plugin := range []string{"otlp", "guide"} {
		before := len(back.requests())
		x := serve(t, plugin, 3, "OTEL_EXPORTER_OTLP_ENDPOINT="+back.URL)
		requests := len(back.requests()) - before
		if x.Delivered != uint64(3-requests) || x.Rejected["PARTIAL_SUCCESS"] != uint64(requests) {
			t.Errorf("%s: after %d requests, delivered %d and rejected %v; last error %q", plugin, requests, x.Delivered, x.Rejected, x.LastError)
		}
	}
}

// TestSpanExporter: an exporter brought unchanged gets the batch again that it
// could not deliver, with all that a span has.
func TestSpanExporter(t *testing.T) {
	back := newBackEnd(t, code(http.StatusBadGateway), code(http.StatusOK))
	delivered(t, serve(t, "exporter", spans, "OTEL_EXPORTER_OTLP_ENDPOINT="+back.URL), spans)
	got := otlpOf(t, back.requests()[1:])
	if len(got["application_span"]) != spans-1 || len(got["proxy_http_request"]) != 1 {
		t.Fatalf("the back end has %d and %d spans", len(got["application_span"]), len(got["proxy_http_request"]))
	}
	root := got["proxy_http_request"][0]
	if diff := cmp.Diff(map[string]string{"serve.request_id": "r-1", "http.route": "/hello"}, attributesOf(root)); diff != "" {
		t.Errorf("the root's attributes (-want +got):\n%s", diff)
	}
	if root.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("the root's kind is %v", root.GetKind())
	}
	failed := 0
	for _, s := range got["application_span"] {
		if s.GetStatus().GetMessage() == "no" {
			failed++
		}
		if !bytes.Equal(s.GetParentSpanId(), root.GetSpanId()) || len(s.GetLinks()) != 1 || len(s.GetEvents()) != 1 || s.GetEvents()[0].GetName() != "worked" {
			t.Fatalf("a child is %v, want the root for its parent, a link and an event", s)
		}
	}
	if failed != 1 {
		t.Errorf("%d spans have the error, want 1", failed)
	}
}

// TestProcessorsOfOthers: the attributes that each writes in OnStart are in the back end.
func TestProcessorsOfOthers(t *testing.T) {
	back := newBackEnd(t, code(http.StatusOK))
	delivered(t, serve(t, "enrich", spans, "OTEL_EXPORTER_OTLP_ENDPOINT="+back.URL), spans)
	got := otlpOf(t, back.requests())
	root, children := got["proxy_http_request"][0], got["application_span"]
	wantRoot := map[string]string{
		"serve.request_id": "r-1", "ray.request_id": "r-1", "plugin": prefix + "enrich",
		"http.route": "/hello", // the service's word stands
	}
	if diff := cmp.Diff(wantRoot, attributesOf(root)); diff != "" {
		t.Errorf("attributes of the root (-want +got):\n%s", diff)
	}
	if len(children) != spans-1 {
		t.Fatalf("%d children, want %d", len(children), spans-1)
	}
	for _, child := range children {
		// The service's baggage does not come along.
		if diff := cmp.Diff(map[string]string{"number": "", "plugin": prefix + "enrich", "http.route": "from the plugin"}, attributesOf(child)); diff != "" {
			t.Fatalf("attributes of a child (-want +got):\n%s", diff)
		}
		event := child.GetEvents()[1]
		if id := event.GetAttributes()[0].GetValue().GetStringValue(); id != fmt.Sprintf("%x", root.GetSpanId()) || event.GetTimeUnixNano() != child.GetStartTimeUnixNano() {
			t.Fatalf("OnStart's context had the parent %s at %d, want %x at the start", id, event.GetTimeUnixNano(), root.GetSpanId())
		}
	}
}

// TestTheGuide runs the guide's list: a processor, and a batch processor with
// OTLP, whose back end is down at first.
func TestTheGuide(t *testing.T) {
	back := newBackEnd(t, code(http.StatusServiceUnavailable), code(http.StatusOK))
	delivered(t, serve(t, "guide", spans, "OTEL_EXPORTER_OTLP_ENDPOINT="+back.URL), spans)
	ids := map[string]bool{}
	got := otlpOf(t, back.requests()[1:])
	for _, s := range slices.Concat(got["application_span"], got["proxy_http_request"]) {
		ids[string(s.GetSpanId())] = true
	}
	if len(ids) != spans {
		t.Errorf("the back end has %d spans of %d", len(ids), spans)
	}
	if root := attributesOf(got["proxy_http_request"][0]); root["ray.request_id"] != "r-1" {
		t.Errorf("attributes of the root are %v, want ray.request_id", root)
	}
}

// TestZPages: every span has started and ended.
func TestZPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.html")
	delivered(t, serve(t, "zpages", spans, envPage+"="+path), spans)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"application_span", "proxy_http_request"} {
		running := regexp.MustCompile(`zspanname=` + name + `&ztype=0">(\d+)<`).FindSubmatch(page)
		sampled := regexp.MustCompile(`zspanname=` + name + `&ztype=1&zlatencybucket=\d">[1-9]`).Find(page)
		if running == nil || string(running[1]) != "0" || sampled == nil {
			t.Errorf("the page says that %q of %s run, and has the samples %q", running, name, sampled)
		}
	}
}

// envService makes this test binary a service with plugins.
const envService = "CONTRIB_SERVICE"

func runService() {
	h, err := host.FromEnv()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h))
	err = errors.Join(
		traffic(context.Background(), provider.Tracer("contrib"), 3),
		provider.ForceFlush(context.Background()),
		provider.Shutdown(context.Background()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestStdoutTrace prints on the service's own standard output.
func TestStdoutTrace(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	service := exec.CommandContext(ctx, exe)
	service.Env = append(os.Environ(), envService+"=1", host.EnvPlugins+"="+link(t, "stdouttrace"),
		host.EnvStartTimeout+"=20s", host.EnvStopTimeout+"=20s", "GOCOVERDIR="+t.TempDir())
	var stderr bytes.Buffer
	service.Stderr = &stderr
	stdout, err := service.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var names []string
	decoder := json.NewDecoder(bytes.NewReader(stdout))
	for decoder.More() {
		var span struct {
			Name        string
			SpanContext struct{ TraceFlags string }
			Status      struct{ Code string }
		}
		if err := decoder.Decode(&span); err != nil {
			t.Fatalf("%v\n%s", err, stdout)
		}
		names = append(names, span.Name+" "+span.Status.Code)
		if span.SpanContext.TraceFlags[1]&1 == 0 {
			t.Errorf("flags of %s are %s, want sampled", span.Name, span.SpanContext.TraceFlags)
		}
	}
	slices.Sort(names)
	want := []string{"application_span Error", "application_span Unset", "proxy_http_request Unset"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("spans printed (-want +got):\n%s\n%s", diff, stderr.String())
	}
}
