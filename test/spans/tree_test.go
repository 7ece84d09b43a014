package spans

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// familyOf is the first word of a name.
func familyOf(name string) string {
	family, _, _ := strings.Cut(name, " ")
	return family
}

// scope is the scope's name in table 1.1: the import path of our package.
const scope = "github.com/servetrace/servetrace/tracing"

// userScope is the scope of spans that tests start in their own code.
const userScope = "user"

// foreign stands for the attributes of a span of another instrumentation, which are not
// checked.
func foreign(scope string) attributes { return attributes{"(those of the scope)": scope} }

// treeOf joins the spans of one trace by their parents. It checks the rules for all
// trees (1.1, 1.6 and the identity), and returns the root as it was recorded, and the
// tree in the form for comparison.
func treeOf(t testing.TB, spans []sdktrace.ReadOnlySpan) (sdktrace.ReadOnlySpan, *span) {
	t.Helper()
	b := &builder{t: t, below: map[trace.SpanID][]sdktrace.ReadOnlySpan{}, names: map[trace.SpanID]string{}}
	for _, s := range spans {
		b.names[s.SpanContext().SpanID()] = s.Name()
	}
	var roots []sdktrace.ReadOnlySpan
	for _, s := range spans {
		parent := s.Parent().SpanID()
		if _, here := b.names[parent]; here {
			b.below[parent] = append(b.below[parent], s)
		} else {
			roots = append(roots, s)
		}
	}
	if len(roots) != 1 {
		var names []string
		for _, s := range spans {
			names = append(names, s.Name()+" under "+b.names[s.Parent().SpanID()])
		}
		t.Fatalf("the trace has %d roots, want one connected tree: %q", len(roots), names)
	}
	return roots[0], b.build(roots[0], nil)
}

type builder struct {
	t     testing.TB
	below map[trace.SpanID][]sdktrace.ReadOnlySpan
	names map[trace.SpanID]string
}

func (b *builder) build(s, parent sdktrace.ReadOnlySpan) *span {
	b.t.Helper()
	b.checkCommon(s)
	b.checkIdentity(s, parent)
	if parent != nil {
		b.checkTimes(s, parent)
	}
	out := &span{
		Name:        s.Name(),
		Kind:        s.SpanKind().String(),
		Status:      s.Status().Code.String(),
		Description: s.Status().Description,
		Attributes:  b.attributes(s.Attributes()),
	}
	if from := s.InstrumentationScope().Name; from != scope && from != userScope {
		out.Attributes = foreign(from)
	}
	for _, e := range s.Events() {
		out.Events = append(out.Events, event{Name: e.Name, Attributes: b.attributes(e.Attributes)})
	}
	for _, l := range s.Links() {
		out.Links = append(out.Links, b.names[l.SpanContext.SpanID()])
	}
	slices.Sort(out.Links)
	children := b.below[s.SpanContext().SpanID()]
	inOrder(children)
	for _, child := range children {
		out.Children = append(out.Children, b.build(child, s))
	}
	return out
}

// checkCommon: table 1.1.
func (b *builder) checkCommon(s sdktrace.ReadOnlySpan) {
	b.t.Helper()
	if !isFamily(s.Name()) {
		return
	}
	if got := s.InstrumentationScope().Name; got != scope {
		b.t.Errorf("span %q has the scope %q, want %q", s.Name(), got, scope)
	}
	if got, _ := attributeOf(s, "resource.name"); got.AsString() != s.Name() {
		b.t.Errorf("span %q has resource.name %q", s.Name(), got.AsString())
	}
	if len(s.Links()) != 0 {
		b.t.Errorf("span %q has links: %v", s.Name(), s.Links())
	}
	if s.DroppedAttributes()+s.DroppedEvents()+s.DroppedLinks() != 0 {
		b.t.Errorf("span %q has dropped something", s.Name())
	}
}

// checkTimes: 1.6, and the times of each child against its parent. A router span may end
// before its replica span. So may the span of a proxy that did not wait for a handler,
// because its time was over or its client had left.
func (b *builder) checkTimes(s, parent sdktrace.ReadOnlySpan) {
	b.t.Helper()
	if s.StartTime().Before(parent.StartTime()) {
		b.t.Errorf("span %q starts before its parent %q", s.Name(), parent.Name())
	}
	if s.EndTime().Before(s.StartTime()) {
		b.t.Errorf("span %q ends before it starts", s.Name())
	}
	outlives := familyOf(parent.Name()) == "route_to_replica" || wasCutShort(parent)
	if isFamily(s.Name()) && !outlives && s.EndTime().After(parent.EndTime()) {
		b.t.Errorf("span %q ends after its parent %q", s.Name(), parent.Name())
	}
}

// wasCutShort reports whether a span has a timeout or a client that left.
func wasCutShort(s sdktrace.ReadOnlySpan) bool {
	return slices.ContainsFunc(s.Events(), func(e sdktrace.Event) bool {
		return slices.ContainsFunc(e.Attributes, func(kv attribute.KeyValue) bool {
			return kv.Key == "exception.type" && strings.HasPrefix(kv.Value.AsString(), "context.")
		})
	})
}

var (
	replicaForm = regexp.MustCompile(`^[a-z0-9]{8}$`)
	taskForm    = regexp.MustCompile(`^[0-9a-f]{40}` + jobID + `$`)
)

// checkIdentity: each span of a request names request, task and, inside a replica, the
// replica. A proxy span and a replica span begin a task of their own. All other spans
// have the task of their parent. A program that calls by handle outside of a request is
// not part of the runtime, and has no task.
func (b *builder) checkIdentity(s, parent sdktrace.ReadOnlySpan) {
	b.t.Helper()
	b.checkSameRequest(s, parent)
	task, _ := attributeOf(s, "serve.task_id")
	replica, _ := attributeOf(s, "serve.replica_id")
	var outerTask, outerReplica attribute.Value
	if parent != nil {
		outerTask, _ = attributeOf(parent, "serve.task_id")
		outerReplica, _ = attributeOf(parent, "serve.replica_id")
	}
	isReplica := familyOf(s.Name()) == "replica_handle_request"
	if begins := isReplica || strings.HasPrefix(s.Name(), "proxy_"); begins {
		if !taskForm.MatchString(task.AsString()) || task == outerTask {
			b.t.Errorf("span %q has serve.task_id %q, its caller %q", s.Name(), task.AsString(), outerTask.AsString())
		}
		outerTask = task
	}
	if isReplica {
		app, _ := attributeOf(s, "app")
		deployment, _ := attributeOf(s, "deployment")
		id, _ := attributeOf(s, "replica_id")
		outerReplica = attribute.StringValue(app.AsString() + "#" + deployment.AsString() + "#" + id.AsString())
	}
	if task != outerTask || replica != outerReplica {
		b.t.Errorf("span %q has task and replica %q %q, want %q %q",
			s.Name(), task.AsString(), replica.AsString(), outerTask.AsString(), outerReplica.AsString())
	}
}

// checkSameRequest: 1.6, all spans of a request share its id.
func (b *builder) checkSameRequest(s, parent sdktrace.ReadOnlySpan) {
	b.t.Helper()
	if !isFamily(s.Name()) && parent == nil {
		return
	}
	id, _ := attributeOf(s, "serve.request_id")
	want, _ := attributeOf(s, "request_id")
	if !isFamily(s.Name()) {
		want, _ = attributeOf(parent, "serve.request_id")
	}
	if id.AsString() == "" || id != want {
		b.t.Errorf("span %q has serve.request_id %q, want %q", s.Name(), id.AsString(), want.AsString())
	}
}

// attributes returns the attributes with their types, without those that checkIdentity
// has checked. Values that are not known in advance become placeholders.
func (b *builder) attributes(list []attribute.KeyValue) attributes {
	b.t.Helper()
	out := attributes{}
	for _, kv := range list {
		key, value := string(kv.Key), kv.Value.AsInterface()
		if _, twice := out[key]; twice {
			b.t.Errorf("attribute %q is there twice", key)
		}
		switch key {
		case "serve.request_id", "serve.task_id", "serve.replica_id":
			continue
		case "replica_id":
			if id, ok := value.(string); ok && replicaForm.MatchString(id) {
				value = someReplica
			}
		case "serve.queue_wait_ms":
			if wait, ok := value.(float64); ok && wait >= 0 {
				value = someWait
			}
		case "exception.stacktrace":
			if stack, ok := value.(string); ok && strings.Contains(stack, "goroutine") {
				value = someStack
			}
		}
		out[key] = value
	}
	return out
}
