package spans_test

import (
	"regexp"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/test/recorded"
	"github.com/servetrace/servetrace/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a tracer that keeps its ended spans.
type recorder struct {
	*tracing.Provider
	*spans.Tracer
	exporter *tracetest.InMemoryExporter
	// component is the replica of the golden files.
	component *identity.Component
}

// newRecorder returns a recorder of tracing.DefaultConfig as changed by the edits.
func newRecorder(tb testing.TB, edits ...func(*tracing.Config)) *recorder {
	tb.Helper()
	p, exporter := recorded.Provider(tb, edits...)
	return &recorder{Provider: p, Tracer: spans.New(p), exporter: exporter}
}

// seen is a span in a form that go-cmp compares and prints well. Ids are
// resolved to names, and a task id of the right form is blanked.
type seen struct {
	Name, Parent, Kind   string
	Status, Description  string
	Attributes           map[string]any
	Events               []seenEvent
	Links, DroppedFields int
}

type seenEvent struct {
	Name       string
	Attributes map[string]any
}

var taskID = regexp.MustCompile(`^[0-9a-f]{48}$`)

// spans returns the ended spans in the order they ended.
func (r *recorder) spans() []seen {
	stubs := r.exporter.GetSpans()
	names := map[trace.SpanID]string{}
	for _, s := range stubs {
		names[s.SpanContext.SpanID()] = s.Name
	}
	var out []seen
	for _, s := range stubs {
		parent := names[s.Parent.SpanID()]
		if s.Parent.IsRemote() {
			parent = "remote " + s.Parent.SpanID().String()
		}
		one := seen{
			Name: s.Name, Parent: parent, Kind: s.SpanKind.String(),
			Status: s.Status.Code.String(), Description: s.Status.Description,
			Attributes: asMap(s.Attributes), Links: len(s.Links),
			DroppedFields: s.DroppedAttributes + s.DroppedEvents + s.DroppedLinks,
		}
		for _, e := range s.Events {
			one.Events = append(one.Events, seenEvent{e.Name, asMap(e.Attributes)})
		}
		out = append(out, one)
	}
	return out
}

func asMap(attrs []attribute.KeyValue) map[string]any {
	m := map[string]any{}
	for _, kv := range attrs {
		v := kv.Value.AsInterface()
		if text, ok := v.(string); ok && kv.Key == semconv.ServeTaskID && taskID.MatchString(text) {
			v = "TASK"
		}
		m[string(kv.Key)] = v
	}
	return m
}
