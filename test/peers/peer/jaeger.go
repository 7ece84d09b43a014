package peer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// Jaeger is a running Jaeger 2 that keeps traces in memory.
type Jaeger struct {
	tb testing.TB
	// dir is the folder of its files. base is the prefix of all paths of its query
	// service; it is drawn, so that a neighbour is not mistaken for it.
	dir, base string
	// Ports: OTLP over HTTP and gRPC, the query service over HTTP and gRPC.
	http, grpc, query, queryGRPC int

	process *process
	client  *http.Client
}

// StartJaeger starts a Jaeger and returns when it takes spans. It is stopped
// when the test ends.
func StartJaeger(tb testing.TB) *Jaeger {
	tb.Helper()
	program := program(tb, "jaeger", "jaeger")
	j := &Jaeger{tb: tb, dir: tb.TempDir(), base: "/" + rand.Text()}
	j.client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("Jaeger's log:\n%s", logText(j.logFile()))
		}
	})
	j.process = startSomewhere(tb, j.logFile(), func() (*process, error) {
		ports := freePorts(tb, 4)
		j.http, j.grpc, j.query, j.queryGRPC = ports[0], ports[1], ports[2], ports[3]
		settings, err := json.Marshal(j.settings())
		if err != nil {
			return nil, err
		}
		file := filepath.Join(j.dir, "jaeger.json")
		if err := os.WriteFile(file, settings, 0o600); err != nil {
			return nil, err
		}
		p, err := launch("Jaeger", program, []string{"--config", file}, nil, j.logFile())
		if err != nil {
			return nil, err
		}
		if err := p.ready(j.Query() + "/api/services"); err != nil {
			return nil, errors.Join(err, p.kill())
		}
		return p, nil
	})
	tb.Cleanup(func() {
		if err := j.process.stop(); err != nil {
			tb.Error(err)
		}
	})
	return j
}

// settings returns the configuration, which is a Collector's: OTLP in, a store in
// memory, and the query service on it.
func (j *Jaeger) settings() map[string]any {
	type m = map[string]any
	on := func(port int) m { return m{"endpoint": loopback(port)} }
	return m{
		"extensions": m{
			"jaeger_storage": m{"backends": m{"memory": m{"memory": m{"max_traces": 10_000}}}},
			"jaeger_query":   m{"storage": m{"traces": "memory"}, "base_path": j.base, "http": on(j.query), "grpc": on(j.queryGRPC)},
		},
		"receivers": m{"otlp": m{"protocols": m{"http": on(j.http), "grpc": on(j.grpc)}}},
		"exporters": m{"jaeger_storage_exporter": m{"trace_storage": "memory"}},
		"service": m{
			"extensions": []string{"jaeger_storage", "jaeger_query"},
			"pipelines":  m{"traces": m{"receivers": []string{"otlp"}, "exporters": []string{"jaeger_storage_exporter"}}},
			"telemetry":  m{"metrics": m{"level": "none"}, "logs": m{"level": "warn"}},
		},
	}
}

func (j *Jaeger) logFile() string { return filepath.Join(j.dir, "log") }

// HTTP is the endpoint for OTLP/HTTP, http://127.0.0.1:PORT. Safe for concurrent
// use.
func (j *Jaeger) HTTP() string { return "http://" + loopback(j.http) }

// GRPC is the endpoint for OTLP/gRPC, in the same form. Safe for concurrent use.
func (j *Jaeger) GRPC() string { return "http://" + loopback(j.grpc) }

// Query is where its page and its API are, an URL without a slash at the end.
// Safe for concurrent use.
func (j *Jaeger) Query() string { return "http://" + loopback(j.query) + j.base }

// Trace returns the spans that Jaeger has of a trace, whose id is 32 hex digits. It
// returns nil for an unknown trace. Times are exact to the nanosecond.
func (j *Jaeger) Trace(id string) []*tracepb.ResourceSpans {
	j.tb.Helper()
	// All of time: spans of a test may have any.
	around := url.Values{
		"start_time": {time.Unix(0, 0).UTC().Format(time.RFC3339)}, "end_time": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
		"raw_traces": {strconv.FormatBool(true)},
	}
	spans, err := j.get("/api/v3/traces/" + id + "?" + around.Encode())
	if err != nil {
		j.tb.Fatalf("Jaeger's trace %s: %v", id, err)
	}
	return spans
}

// WaitTrace blocks until Jaeger has at least n spans of a trace, and returns the result
// of Trace. It ends the test if nothing new arrives for a minute.
func (j *Jaeger) WaitTrace(id string, n int) []*tracepb.ResourceSpans {
	j.tb.Helper()
	var spans []*tracepb.ResourceSpans
	waitFor(j.tb, fmt.Sprintf("%d spans of trace %s in Jaeger", n, id), n, func() int {
		spans = j.Trace(id)
		count := 0
		for _, rs := range spans {
			for _, ss := range rs.ScopeSpans {
				count += len(ss.Spans)
			}
		}
		return count
	})
	return spans
}

// get asks the query service for a trace; nil without an error: it has none.
func (j *Jaeger) get(path string) ([]*tracepb.ResourceSpans, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, j.Query()+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := j.client.Do(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	switch response.StatusCode {
	case http.StatusOK:
		return parseOTLPJSON(body)
	case http.StatusNotFound:
		return nil, nil
	}
	return nil, fmt.Errorf("%s: %s", response.Status, body)
}

// parseOTLPJSON reads the answer of the query service. OTLP writes ids in hex,
// where the JSON of protobuf has base64.
func parseOTLPJSON(body []byte) ([]*tracepb.ResourceSpans, error) {
	var answer struct {
		Result any `json:"result"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&answer); err != nil {
		return nil, err
	}
	if err := idsToBase64(answer.Result); err != nil {
		return nil, err
	}
	text, err := json.Marshal(answer.Result)
	if err != nil {
		return nil, err
	}
	var data tracepb.TracesData
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, &data); err != nil {
		return nil, err
	}
	return data.ResourceSpans, nil
}

// idsToBase64 writes the ids in a tree of JSON anew.
func idsToBase64(tree any) error {
	switch node := tree.(type) {
	case []any:
		for _, element := range node {
			if err := idsToBase64(element); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, value := range node {
			text, isText := value.(string)
			if isText && (key == "traceId" || key == "spanId" || key == "parentSpanId") {
				id, err := hex.DecodeString(text)
				if err != nil {
					return fmt.Errorf("%s %q: %w", key, text, err)
				}
				node[key] = base64.StdEncoding.EncodeToString(id)
			} else if err := idsToBase64(value); err != nil {
				return err
			}
		}
	}
	return nil
}
