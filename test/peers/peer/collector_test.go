package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/testing/protocmp"
)

// span is one with something in every field that OTLP has.
func span() tracetest.SpanStub {
	traceID := trace.TraceID{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 16}
	parent := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: trace.SpanID{8}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	return tracetest.SpanStub{
		Name: "all of it",
		SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: traceID, SpanID: trace.SpanID{1, 0, 0, 0, 0, 0, 0, 2}, TraceFlags: trace.FlagsSampled,
		}),
		Parent:    parent,
		SpanKind:  trace.SpanKindServer,
		StartTime: time.Unix(1_700_000_000, 123_456_789),
		EndTime:   time.Unix(1_700_000_001, 987_654_321),
		Attributes: []attribute.KeyValue{
			attribute.Int64("int", -1<<63), attribute.Float64("double", 0.1), attribute.Bool("bool", false), attribute.String("empty", ""),
			attribute.String("text", "ä\n\x00"), attribute.StringSlice("texts", []string{"", "b"}), attribute.Int64Slice("none", nil),
		},
		Events:               []sdktrace.Event{{Name: "event", Time: time.Unix(1_700_000_000, 5), Attributes: []attribute.KeyValue{attribute.Int("n", 0)}}},
		Links:                []sdktrace.Link{{SpanContext: parent, Attributes: []attribute.KeyValue{attribute.String("why", "because")}}},
		Status:               sdktrace.Status{Code: codes.Error, Description: "no"},
		DroppedAttributes:    3,
		Resource:             resource.NewWithAttributes("https://example.org/resource", attribute.String("service.name", "tested")),
		InstrumentationScope: instrumentation.Scope{Name: "scope", Version: "1", SchemaURL: "https://example.org/scope"},
	}
}

// wantSpan is the same in OTLP's own words.
func wantSpan() *tracepb.ResourceSpans {
	text := func(s string) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
	}
	number := func(n int64) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}
	}
	list := func(values ...*commonpb.AnyValue) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: values}}}
	}
	traceID := []byte{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 16}
	return &tracepb.ResourceSpans{
		SchemaUrl: "https://example.org/resource",
		Resource:  &resourcepb.Resource{Attributes: []*commonpb.KeyValue{{Key: "service.name", Value: text("tested")}}},
		ScopeSpans: []*tracepb.ScopeSpans{{
			SchemaUrl: "https://example.org/scope",
			Scope:     &commonpb.InstrumentationScope{Name: "scope", Version: "1"},
			Spans: []*tracepb.Span{{
				TraceId: traceID, SpanId: []byte{1, 0, 0, 0, 0, 0, 0, 2}, ParentSpanId: []byte{8, 0, 0, 0, 0, 0, 0, 0},
				Flags: 0x301, Name: "all of it", Kind: tracepb.Span_SPAN_KIND_SERVER,
				StartTimeUnixNano: 1_700_000_000_123_456_789, EndTimeUnixNano: 1_700_000_001_987_654_321,
				Attributes: []*commonpb.KeyValue{
					{Key: "int", Value: number(-1 << 63)},
					{Key: "double", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: 0.1}}},
					{Key: "bool", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: false}}},
					{Key: "empty", Value: text("")},
					{Key: "text", Value: text("ä\n\x00")},
					{Key: "texts", Value: list(text(""), text("b"))},
					{Key: "none", Value: list()},
				},
				DroppedAttributesCount: 3,
				Events: []*tracepb.Span_Event{{
					TimeUnixNano: 1_700_000_000_000_000_005, Name: "event", Attributes: []*commonpb.KeyValue{{Key: "n", Value: number(0)}},
				}},
				Links: []*tracepb.Span_Link{{
					TraceId: traceID, SpanId: []byte{8, 0, 0, 0, 0, 0, 0, 0}, Flags: 0x301,
					Attributes: []*commonpb.KeyValue{{Key: "why", Value: text("because")}},
				}},
				Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "no"},
			}},
		}},
	}
}

func TestCollectorGivesBackWhatItGot(t *testing.T) {
	t.Parallel()
	c := StartCollector(t)
	send(t, overHTTP(t, c), span())
	send(t, overGRPC(t, c), span())
	got := c.WaitSpans(2)
	if diff := cmp.Diff([]*tracepb.ResourceSpans{wantSpan(), wantSpan()}, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if raw := string(c.Raw()); strings.Count(raw, "because") != 2 {
		t.Errorf("raw, %d bytes: not both spans are there", len(raw))
	}
}

func TestCollectorIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	c := StartCollector(t)
	exporter := overHTTP(t, c)
	send(t, exporter, span())
	c.Stop()
	wantRefused(t, c.HTTP())
	wantRefused(t, c.GRPC())
	if err := export(t, exporter, span()); err == nil {
		t.Error("one that is stopped has taken spans")
	}
	c.Restart()
	send(t, exporter, span())
	if got := c.WaitSpans(2); len(got) != 2 {
		t.Errorf("%d batches, want one of before and one of after", len(got))
	}
}

func TestCollectorDemandsItsToken(t *testing.T) {
	t.Parallel()
	c := StartCollector(t, WithToken("s3cret"))
	if err := export(t, overHTTP(t, c), span()); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("HTTP without a token: %v, want 401", err)
	}
	if err := export(t, overGRPC(t, c), span()); err == nil || !strings.Contains(err.Error(), "Unauthenticated") {
		t.Errorf("gRPC without a token: %v, want Unauthenticated", err)
	}
	send(t, overHTTP(t, c, otlptracehttp.WithHeaders(map[string]string{"authorization": "Bearer s3cret"})), span())
	c.WaitSpans(1)
}

func TestCollectorTakesTheTakenPortOfNobody(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := StartCollector(t)
	c.Stop()
	starts := 0
	c.process = startSomewhere(t, c.logFile(), func() (*process, error) {
		if starts++; starts == 1 {
			c.http = taken.Addr().(*net.TCPAddr).Port
		} else {
			c.http = freePorts(t, 1)[0]
		}
		return c.start()
	})
	if starts != 2 {
		t.Errorf("%d starts, want one with the port that is taken and one with another", starts)
	}
	send(t, overHTTP(t, c), span())
	c.WaitSpans(1)
}

// TestCollectorOfTheManual starts the Collector that CONTRIBUTING.md describes.
func TestCollectorOfTheManual(t *testing.T) {
	t.Parallel()
	c := &Collector{tb: t, program: program(t, "otelcol", "otelcol"), dir: t.TempDir()}
	p := startSomewhere(t, c.logFile(), func() (*process, error) {
		ports := freePorts(t, 2)
		c.http = ports[0]
		return launch("the Collector", c.program, []string{"--config", filepath.Join(moduleDir(t), "otelcol", "collector.yaml")},
			[]string{"OTLP_HTTP=" + loopback(ports[0]), "OTLP_GRPC=" + loopback(ports[1])}, c.logFile())
	})
	t.Cleanup(func() {
		if !p.ended() {
			t.Error("stopped by the clean-up", p.kill())
		}
	})
	says := func(word string) {
		t.Helper()
		waitFor(t, fmt.Sprintf("%q in the log", word), 1, func() int { return strings.Count(c.Log(), word) })
	}
	says("Everything is ready")
	send(t, overHTTP(t, c), span())
	says("all of it")
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

func TestCollectorDemandsAClientCertificate(t *testing.T) {
	t.Parallel()
	certs := NewCertificates(t)
	c := StartCollector(t, WithTLS(certs.Cert, certs.Key), WithClientCA(certs.CA))
	if !strings.HasPrefix(c.HTTP(), "https://") || !strings.HasPrefix(c.GRPC(), "https://") {
		t.Errorf("endpoints %s and %s, want https", c.HTTP(), c.GRPC())
	}
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(certs.CA)
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal("the CA's file", err)
	}
	client, err := tls.LoadX509KeyPair(certs.ClientCert, certs.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := export(t, overHTTP(t, c, otlptracehttp.WithTLSClientConfig(&tls.Config{RootCAs: roots})), span()); err == nil {
		t.Error("taken without a client certificate")
	}
	send(t, overHTTP(t, c, otlptracehttp.WithTLSClientConfig(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{client}})), span())
	c.WaitSpans(1)
}

func TestNoPeerOutlivesAKilledTest(t *testing.T) {
	if os.Getenv(envHold) != "" {
		c := StartCollector(t)
		fmt.Println("PEER", c.process.cmd.Process.Pid)
		select {}
	}
	program(t, "otelcol") // skips where it is not built
	if deathPact() == nil {
		t.Skip("this system has no death pact")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	// A process that is killed leaves files behind.
	cmd.Env = append(os.Environ(), envHold+"=1", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "PEER "); ok {
			if pid, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if pid == 0 {
		t.Fatal("the test that was started told no process id", cmd.Wait())
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the peer %d: %v, before anybody was killed", pid, err)
	}
	if err := errors.Join(cmd.Process.Kill(), ignoreExit(cmd.Wait())); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end of the peer", 1, func() int {
		if alive(pid) {
			return 0
		}
		return 1
	})
}

// alive reports whether a process runs. A zombie does not run.
func alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

// wantRefused fails the test if a process listens at the URL of a peer that has ended.
func wantRefused(t *testing.T, url string) {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s of one that is stopped: %v, %v, want refused", url, connection, err)
	}
}

func overHTTP(t *testing.T, c *Collector, more ...otlptracehttp.Option) sdktrace.SpanExporter {
	t.Helper()
	options := append([]otlptracehttp.Option{
		otlptracehttp.WithEndpointURL(c.HTTP() + "/v1/traces"), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}),
	}, more...)
	return exporter(t)(otlptracehttp.New(t.Context(), options...))
}

func overGRPC(t *testing.T, c *Collector) sdktrace.SpanExporter {
	t.Helper()
	return exporter(t)(otlptracegrpc.New(t.Context(),
		otlptracegrpc.WithEndpointURL(c.GRPC()), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{})))
}

func exporter(t *testing.T) func(sdktrace.SpanExporter, error) sdktrace.SpanExporter {
	t.Helper()
	return func(e sdktrace.SpanExporter, err error) sdktrace.SpanExporter {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return e
	}
}

func export(t *testing.T, e sdktrace.SpanExporter, stubs ...tracetest.SpanStub) error {
	t.Helper()
	return e.ExportSpans(t.Context(), tracetest.SpanStubs(stubs).Snapshots())
}

func send(t *testing.T, e sdktrace.SpanExporter, stubs ...tracetest.SpanStub) {
	t.Helper()
	if err := export(t, e, stubs...); err != nil {
		t.Fatal(err)
	}
}
