// Package examples tests the plugins in its folders: each is built, started by a host, and
// counted at its back end.
package examples

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// bin is the folder with the built plugins.
var bin string

func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	folder, err := os.MkdirTemp("", "collectorplugin")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	bin = folder
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin+"/", "./...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s\nbuild the plugins: %v\n", out, err)
		return 1
	}
	return m.Run()
}

// start starts a host with one plugin of bin.
func start(t *testing.T, plugin, configuration string) *host.Host {
	t.Helper()
	h, err := host.New(host.Config{
		Plugins:       filepath.Join(bin, plugin),
		PluginConfigs: map[string]host.PluginConfig{plugin: {Document: []byte(configuration)}},
		StartTimeout:  time.Minute,
		StopTimeout:   time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Shutdown(context.Background()) })
	return h
}

// page has the configurations of the kafka and tail-sampling plugins.
const page = "../../../docs/how-to/run-a-collector-exporter.md"

// ofPage returns the configuration of the page that begins with a key, with replacements.
// Each must occur.
func ofPage(t *testing.T, key string, replacements ...string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml [^\n]*\n(" + key + ":.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatalf("%s has no configuration with %s", page, key)
	}
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(string(block[1]), replacements[i]) {
			t.Fatalf("the configuration of %s lacks %q", page, replacements[i])
		}
	}
	return strings.NewReplacer(replacements...).Replace(string(block[1]))
}

// trace returns a request with a trace of spans that are named after it, with an error
// status if failed.
func trace(number uint64, spans int, failed bool) ptrace.Traces {
	td := ptrace.NewTraces()
	list := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range spans {
		span := list.AppendEmpty()
		var trace pcommon.TraceID
		binary.BigEndian.PutUint64(trace[8:], number)
		span.SetTraceID(trace)
		span.SetSpanID(pcommon.SpanID{7: byte(i + 1)})
		span.SetName(fmt.Sprintf("trace %d", number))
		if failed {
			span.Status().SetCode(ptrace.StatusCodeError)
		}
	}
	return td
}

func deliver(t *testing.T, h *host.Host, td ptrace.Traces) host.Outcome {
	t.Helper()
	request, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.Deliver(t.Context(), request, "test")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// deliverTraces delivers 20 traces of 50 spans, of which every fifth has failed.
func deliverTraces(t *testing.T, h *host.Host) {
	t.Helper()
	for i := range uint64(20) {
		if got := deliver(t, h, trace(i, 50, i%5 == 0)); got.Delivered != 50 {
			t.Fatalf("trace %d: %+v", i, got)
		}
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spans.json")
	h := start(t, "file", "file: {path: "+path+", flush_interval: 1h}")
	deliverTraces(t, h)
	if err := h.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var sink collected
	for line := range strings.Lines(string(text)) {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		sink.add(td)
	}
	sink.want(t, 20, 1000)
}

func TestKafka(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "spans"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	brokers := cluster.ListenAddrs()
	h := start(t, "kafka", ofPage(t, "kafka", "broker:9092", strconv.Quote(brokers[0])))
	deliverTraces(t, h)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("spans"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var sink collected
	for sink.spans() < 1000 {
		fetched := client.PollFetches(t.Context())
		if err := fetched.Err(); err != nil {
			t.Fatalf("%v, after %d spans", err, sink.spans())
		}
		for _, record := range fetched.Records() {
			td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(record.Value)
			if err != nil {
				t.Fatal(err)
			}
			sink.add(td)
		}
	}
	sink.want(t, 20, 1000)
}

func TestOTLPHTTP(t *testing.T) {
	sink := newReceiver(t)
	h := start(t, "otlphttp", "otlp_http: {endpoint: "+sink.URL+"}")
	deliverTraces(t, h)
	sink.want(t, 20, 1000)

	// The host sends again what the back end refuses for now.
	sink.answers(http.StatusServiceUnavailable, http.StatusTooManyRequests)
	if got := deliver(t, h, trace(20, 50, false)); got.Delivered != 50 {
		t.Errorf("after two refusals: %+v", got)
	}
	sink.want(t, 21, 1050)
	sink.answers(http.StatusBadRequest)
	if got := deliver(t, h, trace(21, 50, false)); got.Rejected != 50 {
		t.Errorf("after a final refusal: %+v", got)
	}
	sink.want(t, 21, 1050)
}

func TestOTLPHTTPConformance(t *testing.T) {
	sink := newReceiver(t)
	always := func(status int) func() (func() error, error) {
		return func() (func() error, error) {
			sink.answers(slices.Repeat([]int{status}, 1000)...)
			return func() error { sink.answers(); return nil }, nil
		}
	}
	plugintest.Conformance(t, plugintest.Binary(filepath.Join(bin, "otlphttp")),
		plugintest.WithConfig([]byte("otlp_http: {endpoint: "+sink.URL+"}")),
		plugintest.WithBadConfig([]byte("otlp_http: {}")),
		plugintest.WithReceived(sink.spanIDs),
		plugintest.WithState(plugintest.Retryable, always(http.StatusServiceUnavailable)),
		plugintest.WithState(plugintest.Permanent, always(http.StatusBadRequest)),
		plugintest.WithState(plugintest.Slow, sink.hold),
		plugintest.WithPatience(time.Minute))
}

func TestTailSampling(t *testing.T) {
	for name, wait := range map[string]string{"decided": "1s", "decided at the end": "1h"} {
		t.Run(name, func(t *testing.T) {
			sink := newReceiver(t)
			sink.answers(http.StatusServiceUnavailable) // released spans are sent again
			h := start(t, "tail-sampling", ofPage(t, "tail_sampling", "10s", wait, "http://collector:4318", sink.URL))
			deliverTraces(t, h)
			if wait != "1h" {
				sink.wait(t, 200)
			}
			if err := h.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			sink.want(t, 4, 200)
			if got := h.Stats().Exporters[0]; got.Delivered != 1000 {
				t.Errorf("delivered %d spans, want all that the processor took", got.Delivered)
			}
		})
	}
}

// collected counts the spans of a back end.
type collected struct {
	mu     sync.Mutex
	names  map[string]int // by the trace's name
	ids    []string
	total  int
	change chan struct{} // closed at the next change; nil if nobody waits
}

func (c *collected) add(td ptrace.Traces) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = map[string]int{}
	}
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				c.names[span.Name()]++
				c.ids = append(c.ids, span.SpanID().String())
				c.total++
			}
		}
	}
	if c.change != nil {
		close(c.change)
		c.change = nil
	}
}

func (c *collected) spans() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

func (c *collected) spanIDs() ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ids), nil
}

// wait returns when the back end has a number of spans.
func (c *collected) wait(t *testing.T, spans int) {
	t.Helper()
	for {
		c.mu.Lock()
		if c.total >= spans {
			c.mu.Unlock()
			return
		}
		if c.change == nil {
			c.change = make(chan struct{})
		}
		change := c.change
		c.mu.Unlock()
		select {
		case <-change:
		case <-t.Context().Done():
			t.Fatalf("the back end has %d of %d spans", c.spans(), spans)
		}
	}
}

func (c *collected) want(t *testing.T, traces, spans int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.names) != traces || c.total != spans {
		t.Errorf("the back end has %d traces and %d spans, want %d and %d", len(c.names), c.total, traces, spans)
	}
}

// receiver is an OTLP/HTTP back end.
type receiver struct {
	collected
	*httptest.Server

	refusal  sync.Mutex
	statuses []int         // the answers to the next requests
	held     chan struct{} // requests wait until it is closed; nil: they do not
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// answers sets the statuses of the next requests.
func (r *receiver) answers(statuses ...int) {
	r.refusal.Lock()
	defer r.refusal.Unlock()
	r.statuses = statuses
}

// hold makes requests wait until the result is called.
func (r *receiver) hold() (restore func() error, err error) {
	held := make(chan struct{})
	r.refusal.Lock()
	defer r.refusal.Unlock()
	r.held = held
	return func() error {
		r.refusal.Lock()
		defer r.refusal.Unlock()
		r.held = nil
		close(held)
		return nil
	}, nil
}

// refuses returns the status with which a request is refused, or zero. It waits while
// requests are held.
func (r *receiver) refuses() (status int) {
	r.refusal.Lock()
	held := r.held
	r.refusal.Unlock()
	if held != nil {
		<-held
	}
	r.refusal.Lock()
	defer r.refusal.Unlock()
	if len(r.statuses) > 0 {
		status, r.statuses = r.statuses[0], r.statuses[1:]
	}
	return status
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if status := r.refuses(); status != 0 {
		w.WriteHeader(status)
		return
	}
	body, err := gzip.NewReader(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text, err := io.ReadAll(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(text)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.add(td)
}
