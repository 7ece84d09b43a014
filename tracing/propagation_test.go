package tracing_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/tracing"
)

// The incoming context goes out again if the request is recorded, unsampled, or tracing is
// off. Only a recorded or newly decided span has an id of its own.
func TestContextIsKept(t *testing.T) {
	never := func(c *tracing.Config) { c.Sampler = tracing.AlwaysOff }
	for _, tc := range []struct {
		name     string
		provider *spans.Tracer
		flags    string
		want     string // flags that go out
		sameSpan bool
	}{
		{"recorded", newRecorder(t).Tracer, "01", "01", false},
		{"random flag", newRecorder(t).Tracer, "03", "03", false},
		// The SDK sets an id for the user's unrecorded span.
		{"unsampled", newRecorder(t).Tracer, "00", "00", false},
		{"sampled but switched off by the sampler", newRecorder(t, never).Tracer, "01", "00", false},
		{"off, 01", spans.New(tracing.Off()), "01", "01", true},
		{"off, 00", spans.New(tracing.Off()), "00", "00", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := inbound(tc.flags)
			in["Tracestate"] = []string{"ot=th:8;rv:1234567890abcd", "vendor=x"}
			in.Set("Baggage", "user=alice;secret,tenant=t%20one")
			ctx := serveOne(tc.provider, in)
			out := http.Header{}
			tc.provider.Provider.Inject(ctx, out)
			parts := strings.Split(out.Get("Traceparent"), "-")
			if len(parts) != 4 || parts[1] != inboundTrace || parts[3] != tc.want {
				t.Fatalf("traceparent %q, want the trace %s and flags %s", out.Get("Traceparent"), inboundTrace, tc.want)
			}
			if (parts[2] == inboundSpan) != tc.sameSpan {
				t.Errorf("parent id %s; the inbound one: %t, want %t", parts[2], parts[2] == inboundSpan, tc.sameSpan)
			}
			want := "ot=th:8;rv:1234567890abcd,vendor=x"
			if tc.provider.Provider.Config().Sampler == tracing.AlwaysOff {
				want = "ot=rv:1234567890abcd,vendor=x" // the threshold is that of a decision that does not count
			}
			if got := out.Get("Tracestate"); got != want {
				t.Errorf("tracestate %q, want %q", got, want)
			}
			b := baggage.FromContext(ctx)
			if b.Member("user").Value() != "alice" || b.Member("tenant").Value() != "t one" {
				t.Errorf("baggage %q, want user=alice and tenant=t one", b.String())
			}
			if !strings.Contains(out.Get("Baggage"), "user=alice;secret") {
				t.Errorf("outgoing baggage %q has lost a member or its property", out.Get("Baggage"))
			}
		})
	}
}

// The table of https://www.w3.org/TR/trace-context/ and its test suite: a malformed
// header begins a new trace, and has no other effect.
func TestExtractMalformed(t *testing.T) {
	const id, span = inboundTrace, inboundSpan
	for _, tc := range []struct {
		name   string
		header http.Header
		want   string // "trace-span-flags tracestate"; empty for no context
	}{
		{"none", http.Header{}, ""},
		{"good", h("00-" + id + "-" + span + "-01"), id + "-" + span + "-01 "},
		{"in lower-case letters", http.Header{"traceparent": {"00-" + id + "-" + span + "-01"}}, ""},
		{"empty", h(""), ""},
		{"words", h("not a traceparent"), ""},
		{"upper-case trace id", h("00-" + strings.ToUpper(id) + "-" + span + "-01"), ""},
		{"zero trace id", h("00-" + strings.Repeat("0", 32) + "-" + span + "-01"), ""},
		{"zero span id", h("00-" + id + "-" + strings.Repeat("0", 16) + "-01"), ""},
		{"short trace id", h("00-" + id[1:] + "-" + span + "-01"), ""},
		{"long trace id", h("00-0" + id + "-" + span + "-01"), ""},
		{"short span id", h("00-" + id + "-" + span[1:] + "-01"), ""},
		{"letters beyond f", h("00-" + "g" + id[1:] + "-" + span + "-01"), ""},
		{"version ff", h("ff-" + id + "-" + span + "-01"), ""},
		{"version of one digit", h("0-" + id + "-" + span + "-01"), ""},
		{"later version", h("cc-" + id + "-" + span + "-01"), id + "-" + span + "-01 "},
		{"later version with more fields", h("cc-" + id + "-" + span + "-01-what-ever"), id + "-" + span + "-01 "},
		{"version 00 with more fields", h("00-" + id + "-" + span + "-01-what"), ""},
		{"version 00 with a hyphen more", h("00-" + id + "-" + span + "-01-"), ""},
		{"flags of the future", h("00-" + id + "-" + span + "-ff"), id + "-" + span + "-03 "},
		{"flags of the future, unsampled", h("00-" + id + "-" + span + "-04"), id + "-" + span + "-00 "},
		{"flags in upper case", h("00-" + id + "-" + span + "-0F"), ""},
		{"flags that have a sign", h("00-" + id + "-" + span + "-+1"), ""},
		{"no flags", h("00-" + id + "-" + span), ""},
		{"flags of one digit", h("00-" + id + "-" + span + "-1"), ""},
		{"flags that are no number", h("00-" + id + "-" + span + "-0x"), ""},
		{"two headers", http.Header{"Traceparent": {"00-" + id + "-" + span + "-01", "00-" + id + "-" + span + "-00"}}, ""},
		{"state", hs("a=1,b=2"), id + "-" + span + "-01 a=1,b=2"},
		{"state over two lines", hs("a=1", "b=2"), id + "-" + span + "-01 a=1,b=2"},
		{"state of a bad form leaves the parent", hs("a=1,=,"), id + "-" + span + "-01 "},
		{"state with a key twice leaves the parent", hs("a=1,a=2"), id + "-" + span + "-01 "},
		{"state of 33 members leaves the parent", hs(members(33)), id + "-" + span + "-01 "},
		{"state without a parent", http.Header{"Tracestate": {"a=1"}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sc := trace.SpanContextFromContext(tracing.Off().Extract(t.Context(), tc.header))
			got := ""
			if sc.IsValid() {
				got = fmt.Sprintf("%s-%s-%s %s", sc.TraceID(), sc.SpanID(), sc.TraceFlags(), sc.TraceState())
			}
			if got != tc.want {
				t.Errorf("context %q, want %q", got, tc.want)
			}
		})
	}
}

func h(traceparent string) http.Header { return http.Header{"Traceparent": {traceparent}} }

// hs is a good parent with these lines of state.
func hs(states ...string) http.Header {
	return http.Header{"Traceparent": {inboundHeader + "-01"}, "Tracestate": states}
}

func members(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("k%d=%d", i, i)
	}
	return strings.Join(list, ",")
}

func TestBaggageLimits(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headers []string
		want    int
	}{
		{"64 members", []string{members(64)}, 64},
		{"65 members", []string{members(65)}, 64},
		{"two lines", []string{"a=1", "b=2"}, 2},
		{"a bad member is dropped alone", []string{"a=1,=,b=2"}, 2},
		{"more than 8,192 bytes", []string{"a=" + strings.Repeat("x", 8192)}, 0},
		{"more than 8,192 bytes together", []string{"a=" + strings.Repeat("x", 5000), "b=" + strings.Repeat("x", 5000)}, 0},
	} {
		ctx := tracing.Off().Extract(t.Context(), http.Header{"Baggage": tc.headers})
		if got := baggage.FromContext(ctx).Len(); got != tc.want {
			t.Errorf("%s: %d members, want %d", tc.name, got, tc.want)
		}
	}
}

func TestPropagators(t *testing.T) {
	const b3 = inboundTrace + "-" + inboundSpan + "-1"
	for _, tc := range []struct {
		names []string
		in    http.Header
		trace string // of the handler's context; empty for a new one
		out   []string
	}{
		{[]string{"b3"}, http.Header{"B3": {b3}}, inboundTrace, []string{"B3"}},
		{[]string{"b3"}, inbound("01"), "", []string{"B3"}},
		{[]string{"tracecontext", "b3"}, inbound("01"), inboundTrace, []string{"B3", "Traceparent"}},
		{[]string{"none"}, inbound("01"), "", nil},
		{nil, inbound("01"), "", nil},
	} {
		r := newRecorder(t, func(c *tracing.Config) { c.Propagators = tc.names })
		ctx := serveOne(r.Tracer, tc.in)
		if got := trace.SpanContextFromContext(ctx).TraceID().String(); (got == inboundTrace) != (tc.trace != "") {
			t.Errorf("%v: trace %s, want %q", tc.names, got, tc.trace)
		}
		out := http.Header{}
		r.Inject(ctx, out)
		for _, key := range tc.out {
			if out.Get(key) == "" {
				t.Errorf("%v: no %s in %v", tc.names, key, out)
			}
		}
		if len(out) != len(tc.out) {
			t.Errorf("%v: outgoing headers %v, want %v", tc.names, out, tc.out)
		}
	}
}

// Off: no span of ours or of the user's, no processor is asked, and a user's
// tracer keeps the context.
func TestOffMakesNoSpans(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	cfg := tracing.DefaultConfig()
	cfg.DisabledBy = "OTEL_SDK_DISABLED=true"
	disabled, err := tracing.NewProvider(cfg, sdktrace.NewSimpleSpanProcessor(exporter))
	if err != nil {
		t.Fatal(err)
	}
	alone, err := tracing.NewProvider(tracing.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*tracing.Provider{"disabled": disabled, "no processor": alone, "Off": tracing.Off()} {
		if p.Enabled() {
			t.Errorf("%s: enabled", name)
		}
		if p.Drops(trace.SpanContext{}) {
			t.Errorf("%s: Drops reports a decision", name)
		}
		ctx := serveOne(spans.New(p), inbound("01"))
		if span := trace.SpanFromContext(ctx); span.IsRecording() {
			t.Errorf("%s: a span records", name)
		}
		if ctx := serveOne(spans.New(p), http.Header{}); trace.SpanContextFromContext(ctx).IsValid() {
			t.Errorf("%s: a trace began", name)
		}
		if err := p.ForceFlush(t.Context()); err != nil {
			t.Errorf("%s: ForceFlush: %v", name, err)
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Errorf("%s: Shutdown: %v", name, err)
		}
	}
	if spans := exporter.GetSpans(); len(spans) != 0 {
		t.Errorf("%d spans of a disabled provider", len(spans))
	}
}

type otherKey struct{}

func TestTraceContext(t *testing.T) {
	r := newRecorder(t)
	header := inbound("01")
	header.Set("Baggage", "user=alice")
	ctx, cancel := context.WithTimeout(r.Extract(t.Context(), header), time.Hour)
	ctx = context.WithValue(ctx, otherKey{}, "other")
	req := &identity.Request{ID: "r1"}
	ctx, span := r.StartReplica(ctx, spans.ReplicaStart{Request: req})
	cancel()

	got := tracing.TraceContext(ctx)
	if err := got.Err(); err != nil {
		t.Errorf("it ended with the request: %v", err)
	}
	if _, has := got.Deadline(); has {
		t.Error("it has a deadline")
	}
	if got.Value(otherKey{}) != nil {
		t.Error("it carries another value")
	}
	if identity.RequestFromContext(got) != req {
		t.Error("it does not carry the Request")
	}
	if b := baggage.FromContext(got); b.Member("user").Value() != "alice" {
		t.Errorf("its baggage is %q", b.String())
	}
	_, late := r.TracerProvider().Tracer("user").Start(got, "late")
	late.End()
	span.EndReplica(spans.ReplicaResult{})
	ended := r.exporter.GetSpans()
	if got := ended[0].Attributes; ended[0].Parent.SpanID() != ended[1].SpanContext.SpanID() || len(got) != 1 || got[0] != attribute.String("serve.request_id", "r1") {
		t.Errorf("span started from it: %+v", ended[0])
	}
	if got := tracing.TraceContext(context.WithValue(t.Context(), otherKey{}, 1)); got != context.Background() {
		t.Errorf("of a context without a trace: %v, want the background context", got)
	}
}

// FuzzExtract: no header stops a request, and accepted headers are propagated in a valid
// form.
func FuzzExtract(f *testing.F) {
	f.Add("00-"+inboundTrace+"-"+inboundSpan+"-01", "a=1,b=2", "user=alice;p=1")
	f.Add("cc-"+inboundTrace+"-"+inboundSpan+"-ff-", "=,", "%zz")
	f.Fuzz(func(t *testing.T, parent, state, bag string) {
		p := tracing.Off()
		ctx := p.Extract(t.Context(), http.Header{"Traceparent": {parent}, "Tracestate": {state}, "Baggage": {bag}})
		out := http.Header{}
		p.Inject(ctx, out)
		again := p.Extract(t.Context(), out)
		if a, b := trace.SpanContextFromContext(ctx), trace.SpanContextFromContext(again); !a.Equal(b) {
			t.Errorf("out and in again: %v became %v", a, b)
		}
		if a, b := baggage.FromContext(ctx), baggage.FromContext(again); a.Len() != b.Len() {
			t.Errorf("baggage %q became %q", a, b)
		}
	})
}
