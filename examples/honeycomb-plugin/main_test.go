package main

import (
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
	"github.com/servetrace/servetrace/semconv"
)

// name is the name of this test binary as the plugin.
const name = "honeycomb-plugin"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == name {
		main() // exits
	}
	hellotest.Main(m)
}

// key stands for a key. Nothing that is printed may hold it.
const key = "hcaik-01-not-a-key-0123456789"

// wantNoKey looks for the key in all that was printed.
func wantNoKey(t *testing.T, s *hellotest.Service) {
	t.Helper()
	for what, text := range map[string]string{"the log": s.Log.String(), "standard output": s.Stdout.String()} {
		if strings.Contains(text, key) {
			t.Errorf("%s has the key", what)
		}
	}
}

// The spans of a request arrive as OTLP, with Honeycomb's headers, and the name
// that the operator gave the service.
func TestSpansArriveAtHoneycomb(t *testing.T) {
	honeycomb := hellotest.StartReceiver(t)
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, name), "OTEL_EXPORTER_OTLP_ENDPOINT="+honeycomb.URL,
		"HONEYCOMB_WRITE_KEY="+key, "HONEYCOMB_DATASET_NAME=my-dataset-name", "HONEYCOMB_SERVICE_NAME=my-service-name",
		"OTEL_SERVICE_NAME=hello")
	s.Get("/", "r1")
	spans := honeycomb.Await(t, hellotest.SpansOfRequest)
	s.Stop()

	names := map[string]bool{}
	for _, span := range spans {
		names[span.GetName()] = true
		service := hellotest.Text(span.Resource, semconv.ServiceName)
		request := hellotest.Text(span.GetAttributes(), semconv.ServeRequestID)
		if service != "my-service-name" || request != "r1" {
			t.Errorf("span %q is of service %q and request %q, want my-service-name and r1", span.GetName(), service, request)
		}
	}
	if len(names) != hellotest.SpansOfRequest || !names["application_span"] {
		t.Errorf("spans %v, want the four of a request", names)
	}
	for _, request := range honeycomb.Requests() {
		for header, want := range map[string]string{
			"X-Honeycomb-Team": key, "X-Honeycomb-Dataset": "my-dataset-name", "Content-Type": "application/x-protobuf",
		} {
			if got := request.Header.Get(header); got != want {
				t.Errorf("header %s is %q, want %q", header, got, want)
			}
		}
		if request.Path != "/v1/traces" {
			t.Errorf("path %q, want /v1/traces", request.Path)
		}
	}
	s.Await(s.Log, `msg=stopped spans=4 honeycomb-plugin\.delivered=4`, 1)
	wantNoKey(t, s)
}

// Settings that are not set are not sent: no dataset, and the service keeps its name. The
// key may have Honeycomb's own name, and the operator's headers are sent beside it.
func TestDefaults(t *testing.T) {
	honeycomb := hellotest.StartReceiver(t)
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, name), "OTEL_EXPORTER_OTLP_ENDPOINT="+honeycomb.URL,
		"HONEYCOMB_API_KEY="+key, "OTEL_SERVICE_NAME=hello", "OTEL_EXPORTER_OTLP_HEADERS=x-region=eu")
	s.Get("/", "r1")
	for _, span := range honeycomb.Await(t, hellotest.SpansOfRequest) {
		if service := hellotest.Text(span.Resource, semconv.ServiceName); service != "hello" {
			t.Errorf("span %q is of service %q, want hello", span.GetName(), service)
		}
	}
	s.Stop()
	for _, request := range honeycomb.Requests() {
		if _, there := request.Header["X-Honeycomb-Dataset"]; there {
			t.Errorf("headers %v have a dataset", request.Header)
		}
		if request.Header.Get("X-Honeycomb-Team") != key || request.Header.Get("X-Region") != "eu" {
			t.Errorf("headers %v, want the key and the operator's x-region", request.Header)
		}
	}
	wantNoKey(t, s)
}

// Honeycomb does not know the key, and says it aloud: the spans are refused,
// the log says why, and without the key.
func TestKeyIsRefused(t *testing.T) {
	honeycomb := hellotest.StartReceiver(t)
	honeycomb.Answer(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "unknown API key "+r.Header.Get("X-Honeycomb-Team"), http.StatusUnauthorized)
	})
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, name), "OTEL_EXPORTER_OTLP_ENDPOINT="+honeycomb.URL,
		"HONEYCOMB_WRITE_KEY="+key)
	s.Get("/", "r1")
	s.Await(s.Log, `level=(?:WARN|ERROR) .*plugin=honeycomb-plugin.*401`, 1)
	s.Stop()
	s.Await(s.Log, `msg="stopped; spans were lost" spans=4 honeycomb-plugin\.delivered=0 honeycomb-plugin\.rejected=map\[\w+:4\]`, 1)
	wantNoKey(t, s)
}

// Without a key the plugin cannot work, and the error names the setting. The service
// serves.
func TestKeyIsMissing(t *testing.T) {
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN="+hellotest.Self(t, name), "SERVE_TRACING_STOP_TIMEOUT=2s") // its spans cannot be delivered
	s.Await(s.Log, `configuration refused: HONEYCOMB_WRITE_KEY: is empty, and so is HONEYCOMB_API_KEY: set one to a key`, 1)
	s.Get("/", "r1")
	s.Stop()
}

func TestConformance(t *testing.T) {
	honeycomb := hellotest.StartReceiver(t)
	plugintest.Conformance(t, plugintest.Binary(hellotest.Self(t, name), "GORACE=atexit_sleep_ms=0"),
		plugintest.WithEnv("HONEYCOMB_WRITE_KEY="+key, "HONEYCOMB_SERVICE_NAME=my-service-name", "OTEL_EXPORTER_OTLP_ENDPOINT="+honeycomb.URL),
		plugintest.WithReceived(func() ([]string, error) {
			var ids []string
			for _, request := range honeycomb.Requests() {
				for _, span := range request.Spans {
					ids = append(ids, hex.EncodeToString(span.GetSpanId()))
				}
			}
			return ids, nil
		}))
}
