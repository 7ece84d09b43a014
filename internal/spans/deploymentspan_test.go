package spans_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/tracing"
)

// member is a request inside a replica whose trace is sampled or not.
func (r *recorder) member(t *testing.T, c *identity.Component, id string, flags string) (context.Context, spans.Span) {
	header := http.Header{"Traceparent": {fmt.Sprintf("00-%016x%016x-%016x-%s", rand.Uint64(), rand.Uint64(), rand.Uint64(), flags)}}
	return r.StartReplica(r.Extract(t.Context(), header), spans.ReplicaStart{
		Request: &identity.Request{ID: id, App: "default", Deployment: "D", ModelID: "m", Component: c},
	})
}

// The batch runs in the trace of its first sampled request and points at the
// other sampled ones, each once.
func TestBatchSpan(t *testing.T) {
	r := newRecorder(t)
	c := r.NewReplica("default", "D")
	var members []context.Context
	for i, flags := range []string{"00", "01", "00", "01", "01"} {
		ctx, span := r.member(t, c, "r"+string(rune('0'+i)), flags)
		defer span.EndReplica(spans.ReplicaResult{})
		members = append(members, ctx)
	}
	members = append(members, members[4], members[1]) // two of them ask twice
	parent := trace.SpanContextFromContext(members[1])

	ctx, cancel := context.WithCancel(members[1])
	cancel()
	members[1] = ctx
	inBatch, span := r.StartBatch(members, "embed")
	if inBatch.Err() != nil {
		t.Errorf("the batch ended with a member: %v", inBatch.Err())
	}
	if got := identity.RequestFromContext(inBatch); got == nil || got.ID != "r1" {
		t.Errorf("the batch runs for %+v, want r1", got)
	}
	_, user := r.TracerProvider().Tracer("user").Start(inBatch, "forward")
	user.End()
	span.EndWork(nil)

	got := r.spans()
	if got[0].Name != "forward" || got[0].Parent != "batch_execute D embed" {
		t.Errorf("the function's own span is %q below %q", got[0].Name, got[0].Parent)
	}
	want := seen{
		Name: "batch_execute D embed", Kind: "internal", Status: "Unset", Links: 2,
		Attributes: map[string]any{
			"request_id": "r1", "deployment": "D", "app": "default", "replica_id": c.UniqueID(),
			"multiplexed_model_id": "m", "serve.batch_size": int64(7), "resource.name": "batch_execute D embed",
			"serve.request_id": "r1", "serve.task_id": "TASK", "serve.replica_id": "default#D#" + c.UniqueID(),
		},
	}
	if diff := cmp.Diff(want, got[1]); diff != "" {
		t.Errorf("span of the batch (-want +got):\n%s", diff)
	}
	stub := r.exporter.GetSpans()[1]
	if stub.Parent.SpanID() != parent.SpanID() || stub.SpanContext.TraceID() != parent.TraceID() {
		t.Errorf("parent %v, want %v", stub.Parent, parent)
	}
	for i, n := range []int{3, 4} {
		link := stub.Links[i]
		if sc := trace.SpanContextFromContext(members[n]); !link.SpanContext.Equal(sc) {
			t.Errorf("link %d is to %v, want member %d, %v", i, link.SpanContext, n, sc)
		}
		id := []attribute.KeyValue{attribute.String(semconv.ServeRequestID, identity.RequestFromContext(members[n]).ID)}
		if diff := cmp.Diff(id, link.Attributes, cmp.AllowUnexported(attribute.Value{})); diff != "" {
			t.Errorf("attributes of link %d (-want +got):\n%s", i, diff)
		}
	}
}

// Without a sampled member the batch runs in the first one's trace, flag 00.
func TestBatchUnsampled(t *testing.T) {
	r := newRecorder(t)
	a, _ := r.member(t, nil, "r0", "00")
	b, _ := r.member(t, nil, "r1", "00")
	for name, p := range map[string]*spans.Tracer{"unsampled": r.Tracer, "off": spans.New(tracing.Off())} {
		ctx, span := p.StartBatch([]context.Context{a, b}, "embed")
		span.EndWork(errors.New("not seen"))
		if !trace.SpanContextFromContext(ctx).Equal(trace.SpanContextFromContext(a)) || identity.RequestFromContext(ctx).ID != "r0" {
			t.Errorf("%s: the batch runs in %v, want that of the first member", name, trace.SpanContextFromContext(ctx))
		}
	}
	if got := r.spans(); len(got) != 0 {
		t.Errorf("spans of unsampled requests: %+v", got)
	}
}

// The SDK's limit bounds the links, and the dropped links are counted.
func TestBatchLinkLimit(t *testing.T) {
	r := newRecorder(t, func(c *tracing.Config) { c.Limits.LinkCountLimit = 3 })
	var members []context.Context
	for range 10 {
		ctx, span := r.member(t, nil, "r", "01")
		defer span.EndReplica(spans.ReplicaResult{})
		members = append(members, ctx)
	}
	_, span := r.StartBatch(members, "embed")
	span.EndWork(nil)
	if got := r.spans()[0]; got.Links != 3 || got.DroppedFields != 6 {
		t.Errorf("%d links and %d dropped, want 3 and 6", got.Links, got.DroppedFields)
	}
}

// A load is a child of the span that asked for the model.
func TestModelLoadSpan(t *testing.T) {
	r := newRecorder(t)
	c := r.NewReplica("default", "D")
	ctx, replica := r.member(t, c, "r1", "01")
	ctx, user := r.TracerProvider().Tracer("user").Start(ctx, "think")
	inLoad, span := r.StartModelLoad(ctx, "m2")
	_, read := r.TracerProvider().Tracer("user").Start(inLoad, "read")
	read.End()
	span.EndWork(nil)
	user.End()
	replica.EndReplica(spans.ReplicaResult{})

	got := r.spans()
	if got[0].Parent != "model_load D m2" {
		t.Errorf("a span of the loader is below %q", got[0].Parent)
	}
	want := seen{
		Name: "model_load D m2", Parent: "think", Kind: "internal", Status: "Unset",
		Attributes: map[string]any{
			"request_id": "r1", "deployment": "D", "app": "default", "replica_id": c.UniqueID(),
			"multiplexed_model_id": "m2", "resource.name": "model_load D m2",
			"serve.request_id": "r1", "serve.task_id": "TASK", "serve.replica_id": "default#D#" + c.UniqueID(),
		},
	}
	if diff := cmp.Diff(want, got[1]); diff != "" {
		t.Errorf("span of the load (-want +got):\n%s", diff)
	}
}

// A model that a replica loads at its start belongs to no request.
func TestModelLoadOutsideOfRequest(t *testing.T) {
	r := newRecorder(t)
	_, span := r.StartModelLoad(t.Context(), "m")
	span.EndWork(nil)
	want := seen{
		Name: "model_load m", Kind: "internal", Status: "Unset",
		Attributes: map[string]any{"multiplexed_model_id": "m", "resource.name": "model_load m"},
	}
	if diff := cmp.Diff([]seen{want}, r.spans()); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// The two families that Ray lacks tell their failure themselves.
func TestInternalSpanFailure(t *testing.T) {
	for _, tc := range []struct {
		err         error
		description string
		events      []seenEvent
	}{
		{failure{}, "out of memory", exception("spans_test.failure", "out of memory", "True")},
		{context.Canceled, "", exception("context.Canceled", "context canceled", "True")},
	} {
		r := newRecorder(t)
		_, batch := r.StartBatch([]context.Context{t.Context()}, "embed")
		batch.EndWork(tc.err)
		_, load := r.StartModelLoad(t.Context(), "m")
		load.EndWork(tc.err)
		for _, s := range r.spans() {
			if s.Status != "Error" || s.Description != tc.description {
				t.Errorf("%s of %v: status %s %q, want Error %q", s.Name, tc.err, s.Status, s.Description, tc.description)
			}
			if diff := cmp.Diff(tc.events, s.Events); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", s.Name, diff)
			}
		}
	}
}
