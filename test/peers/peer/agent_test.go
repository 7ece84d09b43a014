package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	pb "github.com/DataDog/datadog-agent/pkg/proto/pbgo/trace"
	"github.com/DataDog/datadog-agent/pkg/proto/pbgo/trace/idx"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
)

// start is when the spans of these tests start, in nanoseconds. The agent takes
// none from before the year 2000.
const start = 1_700_000_000_123_456_789

// chunk returns a root and its child, as a Datadog tracer sends them by protocol 0.4.
func chunk() pb.Traces {
	return pb.Traces{{
		{
			Service: "shop", Name: "http.request", Resource: "GET /", Type: "web",
			TraceID: 0x10, SpanID: math.MaxUint64, ParentID: 0, Start: start, Duration: 1_000_000_001, Error: 1,
			Meta:    map[string]string{"_dd.p.tid": "0102030405060708", "env": "prod", "text": "ä\n"},
			Metrics: map[string]float64{"_sampling_priority_v1": 2, "number": 0.1},
			SpanLinks: []*pb.SpanLink{{
				TraceID: 1, TraceIDHigh: 2, SpanID: 3, Attributes: map[string]string{"why": "because"}, Tracestate: "a=b", Flags: 1<<31 | 1,
			}},
			SpanEvents: []*pb.SpanEvent{{Name: "event", TimeUnixNano: start, Attributes: map[string]*pb.AttributeAnyValue{
				"s": {Type: pb.AttributeAnyValue_STRING_VALUE, StringValue: "x"},
				"i": {Type: pb.AttributeAnyValue_INT_VALUE, IntValue: math.MinInt64},
				"b": {Type: pb.AttributeAnyValue_BOOL_VALUE, BoolValue: true},
				"d": {Type: pb.AttributeAnyValue_DOUBLE_VALUE, DoubleValue: 1},
				"a": {Type: pb.AttributeAnyValue_ARRAY_VALUE, ArrayValue: &pb.AttributeArray{Values: []*pb.AttributeArrayValue{
					{Type: pb.AttributeArrayValue_INT_VALUE, IntValue: 7},
				}}},
			}}},
			MetaStruct: map[string][]byte{"raw": {0, 255}},
		},
		{
			Service: "shop", Name: "child", Resource: "child", TraceID: 0x10, SpanID: 2, ParentID: math.MaxUint64, Start: start, Duration: 1,
			Metrics: map[string]float64{"_sampling_priority_v1": 2},
		},
	}}
}

// wantChunk is the same as it leaves the agent.
func wantChunk() []AgentSpan {
	root := AgentSpan{
		TraceID: "01020304050607080000000000000010", SpanID: math.MaxUint64, Name: "http.request", Service: "shop", Resource: "GET /", Type: "web",
		Start: start, Duration: 1_000_000_001, Error: 1,
		Meta:       map[string]string{"_dd.p.tid": "0102030405060708", "env": "prod", "text": "ä\n"},
		Metrics:    map[string]float64{"number": 0.1},
		MetaStruct: map[string][]byte{"raw": {0, 255}},
		Links:      []AgentLink{{TraceID: "00000000000000020000000000000001", SpanID: 3, Attributes: map[string]string{"why": "because"}, Tracestate: "a=b", Flags: 1<<31 | 1}},
		Events: []AgentEvent{{Name: "event", Time: start, Attributes: map[string]any{
			"s": "x", "i": int64(math.MinInt64), "b": true, "d": 1.0, "a": []any{int64(7)},
		}}},
		Priority: 2, Env: "prod", Language: "go", Protocol: ProtocolV04,
	}
	child := AgentSpan{
		TraceID: root.TraceID, SpanID: 2, ParentID: math.MaxUint64, Name: "child", Service: "shop", Resource: "child",
		Start: start, Duration: 1, Metrics: map[string]float64{"_sampling_priority_v1": 2}, Priority: 2, Env: "prod", Language: "go", Protocol: ProtocolV04,
	}
	return []AgentSpan{root, child}
}

// tagsOfAgent are the tags that the agent adds by itself.
var tagsOfAgent = []cmp.Option{
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreMapEntries(func(key string, _ float64) bool { return key[0] == '_' }),
	cmpopts.IgnoreMapEntries(func(key, _ string) bool { return key == "_dd.p.dm" || key == "_dd.tracer_hostname" }),
}

func TestAgentGivesBackWhatItGot(t *testing.T) {
	t.Parallel()
	a := StartDatadogAgent(t)
	body, err := chunk().MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	post(t, http.DefaultTransport, a.URL()+"/v0.4/traces", body)
	if diff := cmp.Diff(wantChunk(), a.WaitSpans(2), tagsOfAgent...); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !bytes.Contains(a.Raw(), []byte("because")) {
		t.Error("raw: the link's attribute is not there")
	}
}

func TestAgentGivesBackProtocol1(t *testing.T) {
	t.Parallel()
	a := StartDatadogAgent(t)
	table := idx.NewStringTable()
	text := func(s string) *idx.AnyValue {
		return &idx.AnyValue{Value: &idx.AnyValue_StringValueRef{StringValueRef: table.Add(s)}}
	}
	number := func(n int64) *idx.AnyValue { return &idx.AnyValue{Value: &idx.AnyValue_IntValue{IntValue: n}} }
	span := &idx.Span{
		ServiceRef: table.Add("shop"), NameRef: table.Add("op"), ResourceRef: table.Add("res"), TypeRef: table.Add("web"),
		SpanID: 5, ParentID: 6, Start: start, Duration: 7, Error: true,
		EnvRef: table.Add("prod"), VersionRef: table.Add("1.2"), ComponentRef: table.Add("part"), Kind: idx.SpanKind_SPAN_KIND_SERVER,
		Attributes: map[uint32]*idx.AnyValue{
			table.Add("s"):     text("x"),
			table.Add("small"): number(1 << 53),
			table.Add("large"): number(math.MaxInt64),
			table.Add("d"):     {Value: &idx.AnyValue_DoubleValue{DoubleValue: 0.5}},
			table.Add("b"):     {Value: &idx.AnyValue_BoolValue{BoolValue: true}},
			table.Add("raw"):   {Value: &idx.AnyValue_BytesValue{BytesValue: []byte{0, 255}}},
			table.Add("list"):  {Value: &idx.AnyValue_ArrayValue{ArrayValue: &idx.ArrayValue{Values: []*idx.AnyValue{number(1), text("y")}}}},
		},
		Links: []*idx.SpanLink{{
			TraceID: []byte{15: 1}, SpanID: 3, Attributes: map[uint32]*idx.AnyValue{table.Add("why"): text("because")}, TracestateRef: table.Add("a=b"), Flags: 1,
		}},
		Events: []*idx.SpanEvent{{Time: start, NameRef: table.Add("event"), Attributes: map[uint32]*idx.AnyValue{table.Add("n"): number(math.MinInt64)}}},
	}
	traceChunk := idx.NewInternalTraceChunk(table, 2, "origin", nil, []*idx.InternalSpan{idx.NewInternalSpan(table, span)}, false, []byte{1, 15: 16}, 4)
	payload := &idx.InternalTracerPayload{Strings: table, Chunks: []*idx.InternalTraceChunk{traceChunk}}
	payload.SetEnv("prod")
	payload.SetLanguageName("go")
	body, err := payload.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	post(t, http.DefaultTransport, a.URL()+"/v1.0/traces", body)
	want := []AgentSpan{{
		TraceID: "01000000000000000000000000000010", SpanID: 5, ParentID: 6, Name: "op", Service: "shop", Resource: "res", Type: "web",
		Start: start, Duration: 7, Error: 1,
		Meta: map[string]string{
			"s": "x", "b": "true", "large": "9223372036854775807", "list": `[1,"y"]`,
			"env": "prod", "version": "1.2", "component": "part", "span.kind": "server",
		},
		Metrics:    map[string]float64{"small": 1 << 53, "d": 0.5},
		MetaStruct: map[string][]byte{"raw": {0, 255}},
		Links:      []AgentLink{{TraceID: "00000000000000000000000000000001", SpanID: 3, Attributes: map[string]string{"why": "because"}, Tracestate: "a=b", Flags: 1}},
		Events:     []AgentEvent{{Name: "event", Time: start, Attributes: map[string]any{"n": int64(math.MinInt64)}}},
		Priority:   2, Origin: "origin", Env: "prod", Language: "go", Protocol: ProtocolV1,
	}}
	if diff := cmp.Diff(want, a.WaitSpans(1), tagsOfAgent...); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAgentTakesOTLP(t *testing.T) {
	t.Parallel()
	a := StartDatadogAgent(t)
	e := exporter(t)(otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(a.OTLPHTTP()+"/v1/traces"), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{})))
	send(t, e, span())
	got := a.WaitSpans(1)[0]
	type brief struct {
		TraceID, Name, Service, Resource, Protocol string
		SpanID, Parent                             uint64
		Start, Duration                            int64
	}
	want := brief{
		"01020304050607080000000000000010", "server.request", "tested", "all of it", ProtocolOTLP,
		1<<56 | 2, 8 << 56, 1_700_000_000_123_456_789, 1_864_197_532,
	}
	if diff := cmp.Diff(want, brief{got.TraceID, got.Name, got.Service, got.Resource, got.Protocol, got.SpanID, got.ParentID, got.Start, got.Duration}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	a.Stop()
	wantRefused(t, a.OTLPHTTP())
	wantRefused(t, a.OTLPGRPC())
	a.Restart()
	send(t, e, span())
	a.WaitSpans(2)
}

func TestAgentTakesAUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "peer-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "apm.socket")
	a := StartDatadogAgent(t, WithSocket(socket))
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	body, err := chunk().MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	post(t, transport, "http://agent/v0.4/traces", body)
	a.WaitSpans(2)
	a.Stop()
	a.Restart()
	post(t, transport, "http://agent/v0.4/traces", body)
	if got := a.WaitSpans(4); got[0].Chunk != 0 || got[3].Chunk != 1 {
		t.Errorf("chunks %d and %d, want 0 and 1", got[0].Chunk, got[3].Chunk)
	}
}

func TestAgentIsAnOldOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options []AgentOption
		knows   bool
		status  int
	}{
		{nil, true, http.StatusOK},
		{[]AgentOption{WithoutV1()}, false, http.StatusNotFound},
	} {
		a := StartDatadogAgent(t, c.options...)
		if got := slices.Contains(endpoints(t, a), "/v1.0/traces"); got != c.knows {
			t.Errorf("/info lists protocol 1.0: %v, want %v", got, c.knows)
		}
		if !slices.Contains(endpoints(t, a), "/v0.4/traces") {
			t.Error("/info does not list protocol 0.4")
		}
		empty, err := (&idx.InternalTracerPayload{Strings: idx.NewStringTable()}).MarshalMsg(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := postStatus(t, http.DefaultTransport, a.URL()+"/v1.0/traces", empty); got != c.status {
			t.Errorf("protocol 1.0 is answered %d, want %d", got, c.status)
		}
		body, err := chunk().MarshalMsg(nil)
		if err != nil {
			t.Fatal(err)
		}
		post(t, http.DefaultTransport, a.URL()+"/v0.4/traces", body)
		a.WaitSpans(2)
	}
}

func TestAgentIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	a := StartDatadogAgent(t)
	body, err := chunk().MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	post(t, http.DefaultTransport, a.URL()+"/v0.4/traces", body)
	a.Stop() // at once: the agent writes all accepted spans before it ends
	if got := len(a.Spans()); got != 2 {
		t.Errorf("%d spans after the stop, want 2", got)
	}
	wantRefused(t, a.URL())
	a.Restart()
	post(t, http.DefaultTransport, a.URL()+"/v0.4/traces", body)
	a.WaitSpans(4)
}

// endpoints returns the endpoints that the agent reports.
func endpoints(t *testing.T, a *DatadogAgent) []string {
	t.Helper()
	response, err := http.Get(a.URL() + "/info")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var info struct {
		Endpoints []string `json:"endpoints"`
	}
	if err := json.NewDecoder(response.Body).Decode(&info); err != nil {
		t.Fatal(err)
	}
	return info.Endpoints
}

func post(t *testing.T, transport http.RoundTripper, url string, body []byte) {
	t.Helper()
	if status := postStatus(t, transport, url, body); status != http.StatusOK {
		t.Fatalf("POST %s: %d", url, status)
	}
}

func postStatus(t *testing.T, transport http.RoundTripper, url string, body []byte) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	request.Header.Set("Content-Type", "application/msgpack")
	request.Header.Set("Datadog-Meta-Lang", "go")
	request.Header.Set("X-Datadog-Trace-Count", strconv.Itoa(1))
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}
