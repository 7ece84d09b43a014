package sink_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/bench/internal/benchtest"
	"github.com/servetrace/servetrace/bench/internal/sink"
)

func TestMain(m *testing.M) {
	benchtest.Main(sink.Roles)
	os.Exit(m.Run())
}

func start(t *testing.T) *sink.Sink {
	t.Helper()
	s, err := sink.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return s
}

func request(spans int) *coltracepb.ExportTraceServiceRequest {
	scope := &tracepb.ScopeSpans{}
	for range spans {
		scope.Spans = append(scope.Spans, &tracepb.Span{Name: "s"})
	}
	return &coltracepb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{scope}}}}
}

func post(t *testing.T, method, url, encoding string, body []byte) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestSinkCountsAllProtocols(t *testing.T) {
	s := start(t)
	body, err := proto.Marshal(request(3))
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	otlp := "http://" + s.HTTP + "/v1/traces"
	for range 2 { // the second uses the gzip reader of the first
		if got := post(t, http.MethodPost, otlp, "gzip", zipped.Bytes()); got != http.StatusOK {
			t.Errorf("gzip: %d", got)
		}
	}
	if got := post(t, http.MethodPost, otlp, "", body); got != http.StatusOK {
		t.Errorf("plain: %d", got)
	}
	if got := post(t, http.MethodPost, otlp, "", []byte("\xff\xff")); got != http.StatusBadRequest {
		t.Errorf("not OTLP: %d", got)
	}
	if _, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), request(5)); err != nil {
		t.Errorf("gRPC: %v", err)
	}
	traces := msgp.AppendArrayHeader(nil, 2)
	for range 2 {
		traces = msgp.AppendArrayHeader(traces, 2)
		for range 2 {
			traces = msgp.AppendMapHeader(traces, 1)
			traces = msgp.AppendString(msgp.AppendString(traces, "name"), "s")
		}
	}
	if got := post(t, http.MethodPut, "http://"+s.HTTP+"/v0.4/traces", "", traces); got != http.StatusOK {
		t.Errorf("Datadog: %d", got)
	}
	if got := post(t, http.MethodPost, "http://"+s.HTTP+"/v0.6/stats", "", []byte("x")); got != http.StatusOK {
		t.Errorf("Datadog's statistics: %d", got)
	}
	if got, err := s.Spans(t.Context()); got != 3+3+3+5+4 || err != nil {
		t.Errorf("%d spans, %v", got, err)
	}
	if cpu, err := s.CPU(); err != nil || cpu == 0 {
		t.Errorf("CPU %v, %v", cpu, err)
	}
}

// TestShutSink checks that a shut sink answers nothing and counts nothing.
func TestShutSink(t *testing.T) {
	s, answers := start(t), 0
	body, err := proto.Marshal(request(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []func(context.Context) error{s.Shut, s.Open} {
		if err := set(t.Context()); err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post("http://"+s.HTTP+"/v1/traces", "application/x-protobuf", bytes.NewReader(body))
		if err == nil {
			_ = resp.Body.Close()
			answers++
		}
	}
	if got, err := s.Spans(t.Context()); err != nil || got != 1 || answers != 1 {
		t.Errorf("%d spans, %d answers, %v", got, answers, err)
	}
}

func TestSinkWaitsBeforeItAnswers(t *testing.T) {
	s := start(t)
	began := time.Now()
	post(t, http.MethodPost, "http://"+s.HTTP+sink.SlowPath+"/v1/traces", "", nil)
	if took := time.Since(began); took < sink.Latency {
		t.Errorf("answered after %v, want at least %v", took, sink.Latency)
	}
}
