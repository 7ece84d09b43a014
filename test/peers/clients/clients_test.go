package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/test/peers/peer"
)

// startHello starts hello with a plugin of bin/plugins and more variables.
func startHello(t *testing.T, plugin string, env ...string) *hellotest.Service {
	t.Helper()
	path := peer.Plugin(t, plugin)
	hello := filepath.Join(filepath.Dir(path), "..", "hello")
	if _, err := os.Stat(hello); err != nil {
		t.Fatalf("hello is not built: make examples (%v)", err)
	}
	return hellotest.StartProgram(t, hello, []string{"--http", "127.0.0.1:0"},
		append([]string{"SERVE_TRACING_EXPORTER_PLUGIN=" + path, "OTEL_SERVICE_NAME=hello"}, env...)...)
}

// call is the output of a script of folder node for a request.
type call struct {
	// Trace is the id of its trace, and Span the id of the script's own span, in hex.
	Trace, Span string
	Status      int
	Headers     map[string]string

	path string // of the target
}

// flag is the last field of traceparent: "01" for sampled.
func (c call) flag() string { return c.traceparent(3) }

// parent is the span that the service is called from, in hex.
func (c call) parent() string { return c.traceparent(2) }

func (c call) traceparent(field int) string {
	fields := strings.Split(c.Headers["traceparent"], "-")
	if len(fields) != 4 || fields[1] != c.Trace {
		return fmt.Sprintf("traceparent %q", c.Headers["traceparent"])
	}
	return fields[field]
}

// callHello has a script make a request for each path, and checks the answers.
func callHello(t *testing.T, s *hellotest.Service, script string, paths map[string]int, env ...string) []call {
	t.Helper()
	var targets []string
	for path := range paths {
		targets = append(targets, s.URL+path)
	}
	slices.Sort(targets)
	out := peer.Node(t, script, append(env, "TARGETS="+strings.Join(targets, " "))...)
	var calls []call
	for lines := json.NewDecoder(strings.NewReader(out)); ; {
		var c call
		if err := lines.Decode(&c); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in what %s printed:\n%s", err, script, out)
		}
		calls = append(calls, c)
	}
	if len(calls) != len(targets) {
		t.Fatalf("%d calls of %d:\n%s", len(calls), len(targets), out)
	}
	for i := range calls {
		c := &calls[i]
		c.path = strings.TrimPrefix(targets[i], s.URL)
		if c.Status != paths[c.path] {
			t.Errorf("%s was answered %d, want %d", targets[i], c.Status, paths[c.path])
		}
	}
	return calls
}

// node is a span as all peers know it: of whom, and below which.
type node struct{ id, parent, service, name string }

// chain gives the spans of a trace from its root on, as "service: name" each. It
// is an error where they are not one line of children, each with its parent.
func chain(t *testing.T, spans []node) []string {
	t.Helper()
	var line []string
	at := ""
	for range spans {
		below := slices.DeleteFunc(slices.Clone(spans), func(n node) bool { return n.parent != at })
		if len(below) != 1 {
			t.Errorf("%d spans have the parent %q, want one; all are %+v", len(below), at, spans)
			break
		}
		line = append(line, below[0].service+": "+below[0].name)
		at = below[0].id
	}
	return line
}

// wantChain checks that a trace is the client's spans, and below the last of
// them the four of hello.
func wantChain(t *testing.T, c call, spans []node, clients ...string) {
	t.Helper()
	want := append(clients,
		"hello: proxy_http_request HelloWorld GET "+c.path,
		"hello: route_to_replica HelloWorld __call__",
		"hello: replica_handle_request HelloWorld __call__",
		"hello: application_span")
	if diff := cmp.Diff(want, chain(t, spans)); diff != "" {
		t.Errorf("trace %s (-want +got):\n%s", c.Trace, diff)
	}
}
