package tracing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/tracing"
)

// remote is a caller's context; each call draws another.
func remote(t *testing.T) context.Context {
	t.Helper()
	tid, err := trace.TraceIDFromHex(fmt.Sprintf("%032x", rand.Uint64())) // what 64-bit formats carry too
	if err != nil {
		t.Fatal(err)
	}
	sid, err := trace.SpanIDFromHex(fmt.Sprintf("%016x", rand.Uint64()))
	if err != nil {
		t.Fatal(err)
	}
	return trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: tid, SpanID: sid, TraceFlags: trace.FlagsSampled,
	}))
}

// innermost is the handler's own span, two deployments deep in a request that
// came with header.
func (r *recorder) innermost(t *testing.T, header http.Header) context.Context {
	ctx := serveOne(r.Tracer, header)
	ctx, _ = r.StartRouter(ctx, spans.RouterStart{Deployment: "B", Protocol: spans.Handle})
	ctx, _ = r.StartReplica(ctx, spans.ReplicaStart{Request: &identity.Request{ID: "r1", Deployment: "B"}, Protocol: spans.Handle})
	ctx, span := r.TracerProvider().Tracer("user").Start(ctx, "think")
	t.Cleanup(func() { span.End() })
	return ctx
}

// In every format, the request's own headers leave a handler at its span, and
// another caller's take it there.
func TestUserPropagatorEveryFormat(t *testing.T) {
	for _, names := range []string{
		"tracecontext", "b3", "b3multi", "jaeger", "xray", "ottrace", "tracecontext,baggage,b3", "xray,b3multi,tracecontext",
	} {
		t.Run(names, func(t *testing.T) {
			r := newRecorder(t, func(c *tracing.Config) { c.Propagators = strings.Split(names, ",") })
			in, other := http.Header{}, http.Header{}
			r.Inject(remote(t), in)
			there := remote(t)
			r.Inject(there, other)

			ctx := r.innermost(t, in)
			again := r.Propagator().Extract(ctx, propagation.HeaderCarrier(in))
			if trace.SpanFromContext(again) != trace.SpanFromContext(ctx) {
				t.Errorf("its own headers lead to %v, away from %v", trace.SpanContextFromContext(again), trace.SpanContextFromContext(ctx))
			}
			away := trace.SpanContextFromContext(r.Propagator().Extract(ctx, propagation.HeaderCarrier(other)))
			if want := trace.SpanContextFromContext(there); away.SpanID() != want.SpanID() || !away.IsRemote() {
				t.Errorf("another caller's headers lead to %v, want %v", away, want)
			}
		})
	}
}

func TestUserPropagatorIsExact(t *testing.T) {
	const other = "00f067aa0ba902b8"
	twoLines := hs("a=1", "b=2")
	twice := http.Header{"Traceparent": {inboundHeader + "-01", inboundHeader + "-01"}}
	for _, tc := range []struct {
		name    string
		in      http.Header
		carrier propagation.TextMapCarrier
		stays   bool
	}{
		{"the same", hs("a=1"), propagation.HeaderCarrier(hs("a=1")), true},
		{"the same, in a map", hs("a=1"), propagation.MapCarrier{"traceparent": inboundHeader + "-01", "tracestate": "a=1"}, true},
		{"tracestate in two lines", twoLines, propagation.HeaderCarrier(twoLines), true},
		{"two parents, which are none", twice, propagation.HeaderCarrier(twice), true},
		{"a random flag", h(inboundHeader + "-03"), propagation.HeaderCarrier(h(inboundHeader + "-03")), true},
		{"no parent came, and none is there", http.Header{}, propagation.HeaderCarrier{}, true},
		{"no parent there", hs("a=1"), propagation.HeaderCarrier{}, true},
		{"a malformed one there", hs("a=1"), propagation.HeaderCarrier(h("00-what")), true},
		{"another span", hs("a=1"), propagation.MapCarrier{"traceparent": "00-" + inboundTrace + "-" + other + "-01", "tracestate": "a=1"}, false},
		{"another trace", hs("a=1"), propagation.MapCarrier{"traceparent": "00-1" + inboundTrace[1:] + "-" + inboundSpan + "-01", "tracestate": "a=1"}, false},
		{"other flags", hs("a=1"), propagation.MapCarrier{"traceparent": inboundHeader + "-03", "tracestate": "a=1"}, false},
		{"another state", hs("a=1"), propagation.HeaderCarrier(hs("a=2")), false},
		{"no state", hs("a=1"), propagation.HeaderCarrier(h(inboundHeader + "-01")), false},
		{"no parent came", http.Header{}, propagation.HeaderCarrier(h(inboundHeader + "-01")), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRecorder(t)
			ctx := r.innermost(t, tc.in)
			out := r.Propagator().Extract(ctx, tc.carrier)
			if got := trace.SpanFromContext(out) == trace.SpanFromContext(ctx); got != tc.stays {
				t.Errorf("the handler stays at its span: %t, want %t (now %v)", got, tc.stays, trace.SpanContextFromContext(out))
			}
		})
	}
}

// Outside of a request, and where there is no span to keep, extraction is as
// ever.
func TestUserPropagatorOutside(t *testing.T) {
	r := newRecorder(t)
	in := inbound("01")
	inside := r.innermost(t, in)
	for name, ctx := range map[string]context.Context{
		"no request":              t.Context(),
		"no proxy":                identity.ContextWithRequest(t.Context(), &identity.Request{ID: "r1"}),
		"the request, not a span": identity.ContextWithRequest(t.Context(), identity.RequestFromContext(inside)),
		"gone to another caller":  trace.ContextWithRemoteSpanContext(inside, trace.SpanContextFromContext(remote(t))),
		"off":                     serveOne(spans.New(tracing.Off()), in),
	} {
		sc := trace.SpanContextFromContext(r.Propagator().Extract(ctx, propagation.HeaderCarrier(in)))
		if !sc.IsRemote() || sc.SpanID().String() != inboundSpan {
			t.Errorf("%s: extraction leads to %v, want the caller's span", name, sc)
		}
	}
}

// Changes of the baggage by the handler stay; new members of the carrier are added.
func TestUserPropagatorBaggage(t *testing.T) {
	const in = "user=alice;p=1,tenant=one,plan=free"
	for _, tc := range []struct {
		name    string
		carrier string
		want    map[string]string
	}{
		{"the same", in, map[string]string{"user": "bob", "plan": "free", "mine": "1"}},
		{"none", "", map[string]string{"user": "bob", "plan": "free", "mine": "1"}},
		{"a new member", in + ",new=2", map[string]string{"user": "bob", "plan": "free", "mine": "1", "new": "2"}},
		{"other values", "user=carol,plan=paid", map[string]string{"user": "carol", "plan": "paid", "mine": "1"}},
		{"another property", "user=alice;p=2", map[string]string{"user": "alice", "plan": "free", "mine": "1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRecorder(t)
			header := inbound("01")
			header.Set("Baggage", in)
			ctx := r.innermost(t, header)
			b := baggage.FromContext(ctx).DeleteMember("tenant")
			for key, value := range map[string]string{"user": "bob", "mine": "1"} {
				m, err := baggage.NewMemberRaw(key, value)
				if err != nil {
					t.Fatal(err)
				}
				if b, err = b.SetMember(m); err != nil {
					t.Fatal(err)
				}
			}
			ctx = baggage.ContextWithBaggage(ctx, b)

			carrier := propagation.HeaderCarrier(inbound("01"))
			if tc.carrier != "" {
				carrier.Set("Baggage", tc.carrier)
			}
			out := baggage.FromContext(r.Propagator().Extract(ctx, carrier))
			got := map[string]string{}
			for _, m := range out.Members() {
				got[m.Key()] = m.Value()
			}
			if len(got) != len(tc.want) {
				t.Errorf("baggage %v, want %v", got, tc.want)
			}
			for key, want := range tc.want {
				if got[key] != want {
					t.Errorf("baggage %v, want %v", got, tc.want)
				}
			}
			// Another caller's replaces it, as always.
			carrier.Set("Traceparent", "00-1"+inboundTrace[1:]+"-"+inboundSpan+"-01")
			carrier.Set("Baggage", "only=this")
			if b := baggage.FromContext(r.Propagator().Extract(ctx, carrier)); b.String() != "only=this" {
				t.Errorf("another caller's baggage gives %q", b)
			}
		})
	}
}

// gRPC's metadata is read as headers are.
func TestExtractMetadata(t *testing.T) {
	parent := []string{inboundHeader + "-01"}
	for _, tc := range []struct {
		name string
		md   map[string][]string
		want string // "span tracestate"; empty for no context
	}{
		{"none", nil, ""},
		{"good", map[string][]string{"traceparent": parent, "tracestate": {"a=1", "b=2"}}, inboundSpan + " a=1,b=2"},
		{"two parents", map[string][]string{"traceparent": append(parent, parent...)}, ""},
		{"malformed", map[string][]string{"traceparent": {"what"}}, ""},
	} {
		got := ""
		ctx := tracing.Off().ExtractMetadata(t.Context(), tc.md)
		if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
			got = sc.SpanID().String() + " " + sc.TraceState().String()
		}
		if got != tc.want {
			t.Errorf("%s: context %q, want %q", tc.name, got, tc.want)
		}
	}
	r := newRecorder(t, func(c *tracing.Config) { c.Propagators = []string{"b3multi", "ottrace"} })
	in := http.Header{}
	r.Inject(remote(t), in)
	md := map[string][]string{}
	for key, values := range in {
		md[strings.ToLower(key)] = values
	}
	want := trace.SpanContextFromContext(r.Extract(t.Context(), in))
	if got := trace.SpanContextFromContext(r.ExtractMetadata(t.Context(), md)); !got.Equal(want) || !got.IsValid() {
		t.Errorf("in the formats b3multi and ottrace: %v, want %v", got, want)
	}
}
