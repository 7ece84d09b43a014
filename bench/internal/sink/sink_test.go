package sink_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

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

// post sends a body and returns the status of the answer.
func post(t *testing.T, url string, body []byte) int {
	t.Helper()
	resp, err := http.Post(url, "application/x-protobuf", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestSinkCountsDatadog: package spanpath tests OTLP with real exporters.
func TestSinkCountsDatadog(t *testing.T) {
	s := start(t)
	traces := msgp.AppendArrayHeader(nil, 2)
	for range 2 {
		traces = msgp.AppendArrayHeader(traces, 2)
		for range 2 {
			traces = msgp.AppendMapHeader(traces, 1)
			traces = msgp.AppendString(msgp.AppendString(traces, "name"), "s")
		}
	}
	for path, want := range map[string]int{"/v0.4/traces": http.StatusOK, "/v0.6/stats": http.StatusOK, "/v1/traces": http.StatusBadRequest} {
		if got := post(t, "http://"+s.HTTP+path, traces); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if got, err := s.Spans(t.Context()); got != 4 || err != nil {
		t.Errorf("%d spans, %v", got, err)
	}
	if cpu, err := s.CPU(); err != nil || cpu == 0 {
		t.Errorf("CPU %v, %v", cpu, err)
	}
}

// TestShutSink checks that a shut sink answers nothing and counts nothing.
func TestShutSink(t *testing.T) {
	s, answers := start(t), 0
	// One span without fields: a request, a resource, a scope and a span, each with its length.
	body := []byte{0x0a, 4, 0x12, 2, 0x12, 0}
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
	post(t, "http://"+s.HTTP+sink.SlowPath+"/v1/traces", nil)
	if took := time.Since(began); took < sink.Latency {
		t.Errorf("answered after %v, want at least %v", took, sink.Latency)
	}
}
