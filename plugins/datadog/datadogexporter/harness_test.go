package datadogexporter

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/DataDog/datadog-agent/pkg/proto/pbgo/trace"
	"github.com/tinylib/msgp/msgp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeAgent is a Datadog agent that decodes its input with the agent's own code, and can
// be told to misbehave.
type fakeAgent struct {
	*httptest.Server

	mu    sync.Mutex
	info  string                                       // answer to /info; empty: 404
	first []func(http.ResponseWriter, *http.Request)   // applied to the next payloads, in order
	every func(w http.ResponseWriter, chunks int) bool // false: it has answered, and refused
	rates string                                       // answer to payloads
	spans []got
	stats []*pb.ClientStatsPayload
	paths []string // of every request
	heads []http.Header
}

// got is a span that the agent has.
type got struct {
	chunk                        int // counted over all payloads
	trace                        string
	span, parent                 uint64
	name, service, resource, typ string
	start, duration              int64
	failed                       bool
	priority                     float64 // of the chunk
	meta                         map[string]string
	metrics                      map[string]float64
	links                        []*pb.SpanLink
	events                       []*pb.SpanEvent
}

const (
	// infoV04 is of an agent with statistics by the tracer, which then drops spans that it
	// does not keep. infoOld has neither.
	infoV04 = `{"version":"7.70.0","endpoints":["/v0.4/traces","/v1.0/traces","/v0.6/stats","/telemetry/proxy/"],"client_drop_p0s":true,"span_events":true,"ignore_resources":["GET /ignored"],"config":{"default_env":"none"}}`
	infoOld = `{"version":"7.50.0","endpoints":["/v0.4/traces"]}`
)

func startAgent(t testing.TB) *fakeAgent {
	t.Helper()
	a := &fakeAgent{info: infoV04, rates: "{}"}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.paths = append(a.paths, r.Method+" "+r.URL.Path)
	info := a.info
	a.mu.Unlock()
	switch r.URL.Path {
	case "/info":
		if info == "" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, info)
		return
	case "/v0.4/traces":
	case "/v0.6/stats":
		a.takeStatistics(w, r)
		return
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	a.mu.Lock()
	var now func(http.ResponseWriter, *http.Request)
	if len(a.first) > 0 {
		now, a.first = a.first[0], a.first[1:]
	}
	every := a.every
	a.mu.Unlock()
	if now != nil {
		now(w, r)
		return
	}
	spans, chunks, err := decodePayload(body)
	if err != nil || fmt.Sprint(chunks) != r.Header.Get("X-Datadog-Trace-Count") {
		http.Error(w, fmt.Sprintf("%d chunks: %v", chunks, err), http.StatusBadRequest)
		return
	}
	if every != nil && !every(w, chunks) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	base := 0
	if n := len(a.spans); n > 0 {
		base = a.spans[n-1].chunk + 1
	}
	for _, s := range spans {
		s.chunk += base
		a.spans = append(a.spans, s)
	}
	a.heads = append(a.heads, r.Header.Clone())
	_, _ = io.WriteString(w, a.rates)
}

func (a *fakeAgent) takeStatistics(w http.ResponseWriter, r *http.Request) {
	var payload pb.ClientStatsPayload
	if err := msgp.Decode(r.Body, &payload); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats = append(a.stats, &payload)
}

// hits returns the sum of the statistics that have come for a name.
func (a *fakeAgent) hits(name string) (hits uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, payload := range a.stats {
		for _, bucket := range payload.Stats {
			for _, group := range bucket.Stats {
				if group.Name == name {
					hits += group.Hits
				}
			}
		}
	}
	return hits
}

// then has the next payloads answered by fs.
func (a *fakeAgent) then(fs ...func(http.ResponseWriter, *http.Request)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.first = append(a.first, fs...)
}

func (a *fakeAgent) taken() []got {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]got(nil), a.spans...)
}

func (a *fakeAgent) set(f func(*fakeAgent)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a)
}

// status answers with a code.
func status(code int, header ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// reset cuts the connection.
func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func decodePayload(body []byte) (spans []got, chunks int, err error) {
	var traces pb.Traces
	if _, err := traces.UnmarshalMsg(body); err != nil {
		return nil, 0, err
	}
	for i, chunk := range traces {
		upper := chunk[0].Meta["_dd.p.tid"]
		for _, s := range chunk {
			spans = append(spans, got{
				chunk: i, trace: upper + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, s.TraceID)),
				span: s.SpanID, parent: s.ParentID, name: s.Name, service: s.Service, resource: s.Resource, typ: s.Type,
				start: s.Start, duration: s.Duration, failed: s.Error != 0, priority: chunk[0].Metrics["_sampling_priority_v1"],
				meta: s.Meta, metrics: s.Metrics, links: s.SpanLinks, events: s.SpanEvents,
			})
		}
	}
	return spans, len(traces), nil
}

// setup returns an operator's variables, NAME=value, and the messages of the exporter.
func setup(variables ...string) (pluginsdk.Setup, *spoken) {
	said := &spoken{}
	values := map[string]string{}
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	return pluginsdk.Setup{
		Getenv: func(name string) string { return values[name] },
		Log:    slog.New(slog.NewTextHandler(said, nil)),
		Warn:   func(path, text string) { _, _ = fmt.Fprintf(said, "WARN %s: %s\n", path, text) },
	}, said
}

// spoken collects lines.
type spoken struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *spoken) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// open builds an exporter that sends to a, and ends it with the test. The
// variables are in the process's environment, too, as a plugin's are.
func open(t testing.TB, a *fakeAgent, variables ...string) *native {
	t.Helper()
	return openAt(t, 0, a, variables...)
}

// openAt is open under a host of this sampling ratio.
func openAt(t testing.TB, ratio float64, a *fakeAgent, variables ...string) *native {
	t.Helper()
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	s, said := setup(append([]string{"DD_TRACE_AGENT_URL=" + a.URL}, variables...)...)
	s.Context.SamplingRatio = ratio
	built, err := New(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := built.(*native)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(said)
		}
	})
	return e
}

// patience is how long a step may take on a busy machine.
const patience = time.Minute

// batch encodes spans of one resource.
func batch(attributes map[string]any, spans ...*tracepb.Span) *pluginsdk.Batch {
	return encoded(&coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: keyValues(attributes)},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}},
	}}})
}

func request(resources []*tracepb.ResourceSpans) *coltracepb.ExportTraceServiceRequest {
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: resources}
}

func encoded(request *coltracepb.ExportTraceServiceRequest) *pluginsdk.Batch {
	raw, err := proto.Marshal(request)
	if err != nil {
		panic(err) // the test's own message
	}
	return pluginsdk.NewBatch(raw)
}

// span makes a span with a trace and a span id of small numbers; parent 0 is none.
func span(trace, id, parent byte, change ...func(*tracepb.Span)) *tracepb.Span {
	s := &tracepb.Span{
		TraceId: []byte{0xaa, 0, 0, 0, 0, 0, 0, trace, 0xbb, 0, 0, 0, 0, 0, 0, trace}, SpanId: []byte{0xcc, 0, 0, 0, 0, 0, 0, id},
		Name: fmt.Sprintf("span %d", id), Kind: tracepb.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: 1_700_000_000_000_000_001, EndTimeUnixNano: 1_700_000_000_000_000_124,
	}
	if parent != 0 {
		s.ParentSpanId = []byte{0xcc, 0, 0, 0, 0, 0, 0, parent}
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func keyValues(attributes map[string]any) []*commonpb.KeyValue {
	var list []*commonpb.KeyValue
	raw, err := json.Marshal(attributes) // sorts the keys
	if err != nil {
		panic(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	_, _ = decoder.Token()
	for decoder.More() {
		key, _ := decoder.Token()
		var skip json.RawMessage
		_ = decoder.Decode(&skip)
		name, _ := key.(string)
		list = append(list, &commonpb.KeyValue{Key: name, Value: anyValue(attributes[name])})
	}
	return list
}

func anyValue(v any) *commonpb.AnyValue {
	switch v := v.(type) {
	case string:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v}}
	case bool:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}
	case int:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: int64(v)}}
	case float64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v}}
	case []byte:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: v}}
	case map[string]any:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: keyValues(v)}}}
	case []any:
		list := &commonpb.ArrayValue{}
		for _, one := range v {
			list.Values = append(list.Values, anyValue(one))
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}
	}
	panic(fmt.Sprintf("no attribute: %T", v))
}

// export sends a batch within the test's patience.
func export(t *testing.T, e pluginsdk.Exporter, b *pluginsdk.Batch) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return e.Export(ctx, b)
}
