package seeds

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/servetrace/servetrace/examples/hellotest"
)

// The trace context of a client, in the form of traceparent.
const (
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan  = "00f067aa0ba902b7"
	sampled     = "00-" + callerTrace + "-" + callerSpan + "-01"
	unsampled   = "00-" + callerTrace + "-" + callerSpan + "-00"
)

// start starts a program of bin/ on a free port.
func start(t *testing.T, program string, args []string, environ ...string) *hellotest.Service {
	t.Helper()
	environ = append(environ, "XDG_STATE_HOME="+t.TempDir())
	return hellotest.StartProgram(t, filepath.Join(*bin, program), append([]string{"--http", "127.0.0.1:0"}, args...), environ...)
}

// traced starts a program with the plugin otlp, which sends its spans to the receiver.
func traced(t *testing.T, program string, args []string, environ ...string) (*hellotest.Service, *hellotest.Receiver) {
	t.Helper()
	r := hellotest.StartReceiver(t)
	return start(t, program, args, append([]string{"SERVE_TRACING_EXPORTER_PLUGIN=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=" + r.URL}, environ...)...), r
}

// hello returns the spans of one GET request with the headers to bin/hello.
func hello(t *testing.T, path string, headers http.Header, environ ...string) []span {
	t.Helper()
	s, r := traced(t, "hello", nil, environ...)
	get(t, s.URL+path, headers)
	s.Stop()
	return arrived(r)
}

// get sends a GET request and returns the answer.
func get(t *testing.T, url string, headers http.Header) (status int, body string, header http.Header) {
	t.Helper()
	return send(t, http.MethodGet, url, "", headers)
}

func send(t *testing.T, method, url, content string, headers http.Header) (status int, body string, header http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hellotest.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if headers != nil {
		req.Header = headers
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// span is a span as it is compared: of an OTLP request, of Ray Serve, or of a span file.
type span struct {
	name, trace, id, parent string
	kind, status, state     string
	attributes, resource    map[string]any
	events                  []map[string]any // their attributes
	links                   int
}

// arrived returns the spans that the receiver has accepted. The service has stopped.
func arrived(r *hellotest.Receiver) []span {
	var list []span
	for _, request := range r.Requests() {
		for _, s := range request.Spans {
			one := span{
				name: s.GetName(), trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()),
				parent: hex.EncodeToString(s.GetParentSpanId()), kind: s.GetKind().String(), status: s.GetStatus().GetCode().String(),
				state: s.GetTraceState(), attributes: values(s.GetAttributes()), resource: values(s.Resource), links: len(s.GetLinks()),
			}
			for _, e := range s.GetEvents() {
				one.events = append(one.events, values(e.GetAttributes()))
			}
			list = append(list, one)
		}
	}
	return list
}

func values(attributes []*commonpb.KeyValue) map[string]any {
	all := map[string]any{}
	for _, kv := range attributes {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			all[kv.GetKey()] = int(v.IntValue)
		case *commonpb.AnyValue_BoolValue:
			all[kv.GetKey()] = v.BoolValue
		case *commonpb.AnyValue_DoubleValue:
			all[kv.GetKey()] = v.DoubleValue
		default:
			all[kv.GetKey()] = kv.GetValue().String()
		}
	}
	return all
}

// one returns the span whose name begins so. It fails the test unless there is exactly
// one.
func one(t *testing.T, spans []span, prefix string) span {
	t.Helper()
	var found []span
	for _, s := range spans {
		if strings.HasPrefix(s.name, prefix) {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %q, want one of\n%s", len(found), prefix, tree(spans))
	}
	return found[0]
}

// tree draws the names of spans below their parents. Siblings are sorted. A root has its
// trace and its parent, if the trace is the caller's.
func tree(spans []span) string {
	here := map[string]bool{}
	for _, s := range spans {
		here[s.id] = true
	}
	var draw func(parent, indent string) []string
	draw = func(parent, indent string) (lines []string) {
		for _, s := range spans {
			if s.parent != parent {
				continue
			}
			lines = append(lines, indent+s.name+"\n"+strings.Join(draw(s.id, indent+"  "), ""))
		}
		slices.Sort(lines)
		return lines
	}
	roots := map[string]bool{}
	for _, s := range spans {
		if !here[s.parent] {
			roots[s.parent] = true
		}
	}
	var text strings.Builder
	for root := range roots {
		of := "(root)"
		if root == callerSpan {
			of = "(the caller)"
		} else if root != "" {
			of = "(unknown span)"
		}
		for _, line := range draw(root, "  ") {
			text.WriteString(of + "\n" + line)
		}
	}
	return text.String()
}

// wantTree compares a drawing of spans.
func wantTree(t *testing.T, spans []span, want string) {
	t.Helper()
	if got := tree(spans); got != want {
		t.Errorf("spans\n%s\nwant\n%s", got, want)
	}
	for _, s := range spans {
		if s.trace != spans[0].trace {
			t.Errorf("span %q is of trace %s, and another of %s", s.name, s.trace, spans[0].trace)
		}
	}
}

// chain draws spans of which each is the parent of the next.
func chain(root string, names ...string) string {
	text := root + "\n"
	for i, name := range names {
		text += strings.Repeat("  ", i+1) + name + "\n"
	}
	return text
}

// helloChain is the chain of a request to bin/hello.
func helloChain(root string) string {
	return chain(root, "proxy_http_request HelloWorld GET /", "route_to_replica HelloWorld __call__",
		"replica_handle_request HelloWorld __call__", "application_span")
}

// wantAttributes checks attributes of s. A value "*" stands for any value.
func wantAttributes(t *testing.T, s span, want map[string]any) {
	t.Helper()
	for key, value := range want {
		if got, ok := s.attributes[key]; !ok || value != "*" && got != value {
			t.Errorf("span %q has %s=%#v, want %#v", s.name, key, got, value)
		}
	}
}

// wantLog checks that the log has each text.
func wantLog(t *testing.T, s *hellotest.Service, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(s.Log.String(), text) {
			t.Errorf("the log has no %q", text)
		}
	}
}

// header returns headers: names and values in turn.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// seedFile returns the path of a file of the seeds.
func seedFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// spanFolder returns the folder of span files that the log names.
func spanFolder(s *hellotest.Service) string {
	return cmp.Or(s.Await(s.Log, `\bspan_files="?([^"\s]+)`, 1)[0], "nowhere")
}
