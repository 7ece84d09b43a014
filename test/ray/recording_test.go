package ray

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
)

// recording is the file that record.py has written.
type recording struct {
	Versions  map[string]string
	Scenarios []*scenario
}

// scenario is a sequence of requests, with the outcomes that were seen in Ray Serve. A
// scenario without a race has one outcome.
type scenario struct {
	Send     sent
	Outcomes []outcome
}

// outcome are the responses that clients got, and the traces.
type outcome struct {
	Saw    seen
	Traces []*span // by their roots
}

// sent is the work of a client. record.py explains it.
type sent struct {
	Name    string
	ID      string // of its requests
	Do      string
	Path    string
	Verb    string
	Headers map[string]string
	Before  []string
	Times   int
	Hold    []struct{ Path, App string }
	Say     string
	Close   *int
	App     string
	Method  string
	Kind    string
}

// seen is the result of a client: an HTTP status, a close code, or a gRPC code.
type seen struct {
	Status int
	Code   codes.Code
	Cut    bool
}

// span is a span as it is compared, with all below it.
type span struct {
	Name        string
	Kind        string
	Status      string
	Description string
	TraceState  string `json:"trace_state"`
	Attributes  map[string]any
	Links       int
	Events      []event
	Children    []*span

	// Of roots alone.
	Parent string // "none", "the caller"
	Trace  string // "its own", "the caller's"
}

type event struct {
	Name       string
	Attributes map[string]any
}

// load reads the recording.
func load(t testing.TB) *recording {
	t.Helper()
	file, err := os.Open("testdata/ray-2.60.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	d := json.NewDecoder(file)
	d.UseNumber() // an integer is not a float
	var r recording
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// family is the first word of a span's name, and "own" for one of user code.
func (s *span) family() string {
	first, _, _ := strings.Cut(s.Name, " ")
	if strings.HasPrefix(first, "proxy_") || first == "route_to_replica" || first == "replica_handle_request" || additions[first] {
		return first
	}
	return "own"
}

// additions are the families that Ray Serve does not have.
var additions = map[string]bool{"batch_execute": true, "model_load": true}

// recorder is the span processor in the exporter's place: it keeps every span.
type recorder struct {
	mu    sync.Mutex
	ended []sdktrace.ReadOnlySpan
}

func (r *recorder) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (r *recorder) ForceFlush(context.Context) error                { return nil }
func (r *recorder) Shutdown(context.Context) error                  { return nil }

func (r *recorder) OnEnd(s sdktrace.ReadOnlySpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, s)
}

// traces gives the trees of the requests with an id. To be called when nothing
// more can come.
func (r *recorder) traces(t testing.TB, id string) (roots []*span) {
	t.Helper()
	b := builder{t: t, below: map[trace.SpanID][]sdktrace.ReadOnlySpan{}, here: map[trace.SpanID]bool{}}
	for _, s := range r.ended {
		b.here[s.SpanContext().SpanID()] = true
		b.below[s.Parent().SpanID()] = append(b.below[s.Parent().SpanID()], s)
	}
	for _, s := range r.ended {
		if !b.here[s.Parent().SpanID()] && slices.Contains(s.Attributes(), attribute.String("request_id", id)) {
			roots = append(roots, b.root(s))
		}
	}
	return roots
}

type builder struct {
	t     testing.TB
	below map[trace.SpanID][]sdktrace.ReadOnlySpan
	here  map[trace.SpanID]bool
}

func (b builder) root(s sdktrace.ReadOnlySpan) *span {
	b.t.Helper()
	out := b.build(s)
	out.Parent, out.Trace = "none", "its own"
	if s.Parent().SpanID().IsValid() {
		out.Parent = "the caller"
		if got := s.Parent().SpanID().String(); got != callerSpan {
			b.t.Errorf("span %q has the parent %s, which nobody has sent", s.Name(), got)
		}
	}
	if s.SpanContext().TraceID().String() == callerTrace {
		out.Trace = "the caller's"
	}
	return out
}

func (b builder) build(s sdktrace.ReadOnlySpan) *span {
	b.t.Helper()
	out := &span{
		Name:        s.Name(),
		Kind:        strings.ToUpper(s.SpanKind().String()),
		Status:      strings.ToUpper(s.Status().Code.String()),
		Description: s.Status().Description,
		Attributes:  plain(s.Attributes()),
		Links:       len(s.Links()),
	}
	if state := s.SpanContext().TraceState(); state.Len() > 0 {
		out.TraceState = state.String()
	}
	if id, ok := out.Attributes["replica_id"].(string); ok && len(id) == 8 {
		out.Attributes["replica_id"] = "(replica)"
	}
	for _, e := range s.Events() {
		attributes := plain(e.Attributes)
		if _, ok := attributes["exception.stacktrace"]; ok {
			attributes["exception.stacktrace"] = "(stack)"
		}
		out.Events = append(out.Events, event{e.Name, attributes})
	}
	for _, child := range b.below[s.SpanContext().SpanID()] {
		out.Children = append(out.Children, b.build(child))
	}
	return out
}

// plain gives attributes as the recording has them.
func plain(list []attribute.KeyValue) map[string]any {
	out := map[string]any{}
	for _, kv := range list {
		switch v := kv.Value.AsInterface().(type) {
		case int64:
			out[string(kv.Key)] = json.Number(strconv.FormatInt(v, 10))
		case float64:
			out[string(kv.Key)] = "a float"
		default:
			out[string(kv.Key)] = v
		}
	}
	return out
}

// size is how many spans a tree has.
func (s *span) size() int {
	n := 1
	for _, child := range s.Children {
		n += child.size()
	}
	return n
}

// inOrder sorts siblings so that spans of the same call are at the same place on both
// sides.
func inOrder(siblings []*span) {
	slices.SortStableFunc(siblings, func(a, b *span) int {
		return cmp.Or(cmp.Compare(a.key(), b.key()), cmp.Compare(a.size(), b.size()))
	})
}

// key distinguishes siblings. The name of a proxy's span may differ.
func (s *span) key() string {
	if strings.HasPrefix(s.Name, "proxy_") {
		return s.family()
	}
	return s.Name
}
