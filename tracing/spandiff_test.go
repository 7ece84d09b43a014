package tracing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/ended"
	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// pair is a span of ours and one of the SDK's, begun with the same ids.
type pair struct {
	ours     *span
	sdk      sdktrace.ReadWriteSpan
	children func() // starts a child of each
}

// newPair starts both in ctx, under a provider with an OnStart that does as told.
func newPair(tb testing.TB, ctx context.Context, onStart func(sdktrace.ReadWriteSpan), edits ...func(*Config)) pair { //nolint:revive // tb first, as everywhere
	tb.Helper()
	cfg := DefaultConfig()
	for _, edit := range edits {
		edit(&cfg)
	}
	p, err := NewProvider(cfg, starter{on: onStart})
	if err != nil {
		tb.Fatal(err)
	}
	// The SDK's tracer is the same as that behind ours: what is compared is what
	// ours does by itself.
	ctx, ours := p.start(ctx, nil, ended.Like{Origin: &p.origin}.Named("family"), trace.SpanKindServer, 432, 0)
	result := sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample, Tracestate: ours.SpanContext().TraceState()}
	parent := trace.ContextWithSpanContext(context.Background(), ours.Parent())
	same, inner := p.tracer.Start(decided{parent, ours.SpanContext(), result}, "family",
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(ours.StartTime()))
	sdk := inner.(sdktrace.ReadWriteSpan)
	onStart(sdk)
	return pair{ours: ours, sdk: sdk, children: func() {
		p.start(ctx, nil, ended.Like{Origin: &p.origin}.Named("child"), trace.SpanKindInternal, 432, 0)
		p.tracer.Start(same, "child")
	}}
}

// starter is a processor that does something as a span starts.
type starter struct {
	sink
	on func(sdktrace.ReadWriteSpan)
}

func (s starter) OnStart(_ context.Context, span sdktrace.ReadWriteSpan) { s.on(span) }

// look is all that can be seen of a span. Attributes are compared as a set.
func look(s sdktrace.ReadOnlySpan, recording bool) map[string]any {
	seen := map[string]any{"recording": recording}
	for m, i := reflect.TypeFor[sdktrace.ReadOnlySpan](), 0; i < m.NumMethod(); i++ {
		name := m.Method(i).Name
		if name == "private" {
			continue
		}
		seen[name] = reflect.ValueOf(s).MethodByName(name).Call(nil)[0].Interface()
	}
	attrs := map[attribute.Key]attribute.Value{}
	for _, kv := range s.Attributes() {
		attrs[kv.Key] = kv.Value
	}
	seen["Attributes"] = attrs
	seen["count"] = len(s.Attributes())
	return seen
}

var equal = cmp.Options{
	cmp.Comparer(func(a, b attribute.Value) bool { return reflect.DeepEqual(a, b) }),
	cmp.Comparer(func(a, b *resource.Resource) bool { return a == b }),
	cmp.Comparer(func(a, b trace.SpanContext) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b instrumentation.Scope) bool { return reflect.DeepEqual(a, b) }),
	cmpopts.EquateApproxTime(time.Minute), // of RecordError, and of the end
}

// ownValues are what the attributes of our families may have for values.
var ownValues = []attribute.Value{
	attribute.StringValue(""), attribute.StringValue("text"), attribute.StringValue("Größe \u65e5\u672c"),
	attribute.StringValue("bad \xff\xfe\xc3"), attribute.StringValue(strings.Repeat("long ", 26)), attribute.StringValue(strings.Repeat("x", 300)),
	attribute.BoolValue(true), attribute.BoolValue(false),
	attribute.IntValue(0), attribute.IntValue(200), attribute.IntValue(-1), attribute.Int64Value(math.MaxInt64),
	attribute.Float64Value(0), attribute.Float64Value(0.125), attribute.Float64Value(math.Inf(-1)),
}

// add is what our families do by the methods for each type.
func (a *attributes) add(kvs []attribute.KeyValue) {
	for _, kv := range kvs {
		switch key := string(kv.Key); kv.Value.Type() {
		case attribute.STRING:
			a.text(key, kv.Value.AsString())
		case attribute.BOOL:
			a.flag(key, kv.Value.AsBool())
		case attribute.INT64:
			a.number(key, int(kv.Value.AsInt64()))
		case attribute.FLOAT64:
			a.decimal(key, kv.Value.AsFloat64())
		}
	}
}

// methods is a span of which nothing but its methods is known.
type methods struct{ sdktrace.ReadOnlySpan }

func encoded(s sdktrace.ReadOnlySpan) []byte {
	var e sdkspan.Encoder
	e.Append(s)
	return e.AppendRequest(nil)
}

// TestSpanIsAsTheSDKs does the same, drawn by lot, to a span of ours and to one of
// the SDK's, and looks at both after each step.
func TestSpanIsAsTheSDKs(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	state, err := trace.ParseTraceState("a=1,b=2")
	if err != nil {
		t.Fatal(err)
	}
	remote := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true,
	})
	few := func(c *Config) {
		c.Limits.EventCountLimit, c.Limits.LinkCountLimit, c.Limits.AttributePerEventCountLimit = 2, 1, 1
	}
	tight := func(c *Config) { c.Limits.AttributeCountLimit, c.Limits.AttributeValueLengthLimit = 3, 4 }
	seed := rand.Uint64()
	for round := range 600 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		ctx, edits := t.Context(), []func(*Config){}
		switch r.IntN(4) {
		case 0:
			ctx = trace.ContextWithSpanContext(ctx, remote)
		case 1:
			ctx = trace.ContextWithSpanContext(ctx, remote.WithTraceState(trace.TraceState{}))
		}
		if r.IntN(3) == 0 {
			edits = append(edits, few)
		}
		if r.IntN(6) == 0 {
			edits = append(edits, tight)
		}
		early := r.IntN(8) == 0
		p := newPair(t, ctx, func(s sdktrace.ReadWriteSpan) {
			if early && s.Name() == "family" {
				s.SetAttributes(attribute.Int("early", 1))
			}
		}, edits...)
		kv := func() attribute.KeyValue {
			return attribute.String(fmt.Sprintf("k%d", r.IntN(6)), fmt.Sprintf("value %d", r.IntN(3)))
		}
		steps := []struct {
			name string
			do   func() func(trace.Span)
		}{
			{"nothing", func() func(trace.Span) { return func(s trace.Span) { s.SetAttributes(); s.RecordError(nil) } }},
			{"name", func() func(trace.Span) {
				name := []string{"name", "another", "Größe", "bad \xff\xc3", ""}[r.IntN(5)]
				return func(s trace.Span) { s.SetName(name) }
			}},
			{"status", func() func(trace.Span) {
				code := codes.Code(r.IntN(3))
				return func(s trace.Span) { s.SetStatus(code, "why") }
			}},
			{"attributes", func() func(trace.Span) {
				kvs := []attribute.KeyValue{kv(), kv()}
				return func(s trace.Span) { s.SetAttributes(kvs...) }
			}},
			{"event", func() func(trace.Span) {
				opt := trace.WithAttributes(attribute.Int("n", r.IntN(9)), attribute.Int("m", 1))
				return func(s trace.Span) { s.AddEvent("event", opt, trace.WithTimestamp(at)) }
			}},
			{"error", func() func(trace.Span) {
				return func(s trace.Span) { s.RecordError(errors.New("broken"), trace.WithTimestamp(at)) }
			}},
			{"link", func() func(trace.Span) {
				return func(s trace.Span) { s.AddLink(trace.Link{SpanContext: remote}) }
			}},
			{"child", func() func(trace.Span) { return nil }},
			{"ours", func() func(trace.Span) {
				kvs := make([]attribute.KeyValue, 1+r.IntN(4))
				for i := range kvs {
					key := attribute.Key(fmt.Sprintf("own%d", r.Uint64())) // ours are never set twice
					kvs[i] = attribute.KeyValue{Key: key, Value: ownValues[r.IntN(len(ownValues))]}
				}
				return func(s trace.Span) {
					if own, is := s.(*span); is {
						attrs := own.attributes()
						attrs.add(kvs)
						attrs.set()
						return
					}
					s.SetAttributes(kvs...)
				}
			}},
			{"end", func() func(trace.Span) {
				if r.IntN(3) > 0 {
					return func(trace.Span) {}
				}
				return func(s trace.Span) { s.End(trace.WithTimestamp(at.Add(time.Hour)), trace.WithStackTrace(true)) }
			}},
		}
		did, theirs := "", early
		for range r.IntN(12) {
			step := steps[r.IntN(len(steps))]
			did += " " + step.name
			theirs = theirs || step.name == "attributes"
			if do := step.do(); do != nil {
				do(p.ours)
				do(p.sdk)
			} else {
				p.children()
			}
			if got := p.ours.Ended() != nil; got == p.ours.IsRecording() {
				t.Fatalf("seed %d, round %d:%s: recording %v and ended %v", seed, round, did, p.ours.IsRecording(), got)
			}
			if diff := cmp.Diff(look(p.sdk, p.sdk.IsRecording()), look(p.ours, p.ours.IsRecording()), equal); diff != "" {
				t.Fatalf("seed %d, round %d:%s (-SDK's +ours):\n%s", seed, round, did, diff)
			}
		}
		p.ours.End(trace.WithTimestamp(at.Add(time.Minute)))
		p.sdk.End(trace.WithTimestamp(at.Add(time.Minute)))
		if diff := cmp.Diff(encoded(methods{p.ours}), encoded(p.ours)); diff != "" {
			t.Fatalf("seed %d, round %d:%s, and as bytes (-by its methods +itself):\n%s", seed, round, did, diff)
		}
		if diff := cmp.Diff(encoded(p.sdk), encoded(p.ours)); !theirs && diff != "" { // else ours come first
			t.Fatalf("seed %d, round %d:%s, and as bytes (-SDK's +ours):\n%s", seed, round, did, diff)
		}
		if diff := cmp.Diff(look(p.sdk, false), look(p.ours, p.ours.IsRecording()), equal); diff != "" {
			t.Fatalf("seed %d, round %d:%s, and the end (-SDK's +ours):\n%s", seed, round, did, diff)
		}
	}
}

// TestStatusThatIsNone is of a code that is an error's if it is cut to a byte.
func TestStatusThatIsNone(t *testing.T) {
	for _, heavy := range []bool{false, true} {
		p := newPair(t, t.Context(), func(sdktrace.ReadWriteSpan) {})
		for _, s := range []trace.Span{p.ours, p.sdk} {
			if heavy {
				s.SetAttributes(attribute.Int("n", 1))
			}
			s.SetStatus(codes.Error+256, "why")
			s.SetStatus(codes.Error, "lower")
			s.End(trace.WithTimestamp(time.Unix(1_700_000_000, 0)))
		}
		if diff := cmp.Diff(encoded(p.sdk), encoded(p.ours)); diff != "" {
			t.Errorf("heavy %v (-SDK's +ours):\n%s", heavy, diff)
		}
	}
}

// TestEndedIsWhatTheMethodsSay: who reads the fields sees what others see.
func TestEndedIsWhatTheMethodsSay(t *testing.T) {
	for _, heavy := range []bool{false, true} {
		p := newPair(t, t.Context(), func(sdktrace.ReadWriteSpan) {})
		attrs := p.ours.attributes()
		attrs.text("own", "1")
		attrs.set()
		p.children()
		if heavy {
			p.ours.SetAttributes(attribute.Int("theirs", 2))
			p.ours.AddEvent("event")
			p.ours.AddLink(trace.Link{Attributes: []attribute.KeyValue{attribute.Int("n", 1)}})
		}
		p.ours.SetStatus(codes.Error, "why")
		if p.ours.Ended() != nil {
			t.Error("a span that has not ended tells how it did")
		}
		p.ours.End()
		var all ended.Span
		p.ours.Ended().Fill(&all)
		all.Attributes = append(p.ours.Ended().List(), all.Attributes...)
		is := reflect.ValueOf(all)
		for _, f := range reflect.VisibleFields(is.Type()) {
			if f.Name == "ChildSpanCount" {
				continue // which is not for who reads the fields
			}
			method := map[string]string{
				"DroppedAttributeCount": "DroppedAttributes", "DroppedEventCount": "DroppedEvents", "DroppedLinkCount": "DroppedLinks",
			}[f.Name]
			if method == "" {
				method = f.Name
			}
			said := reflect.ValueOf(p.ours).MethodByName(method).Call(nil)[0]
			if diff := cmp.Diff(said.Interface(), is.FieldByIndex(f.Index).Interface(), equal, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("heavy %v: %s (-method +field):\n%s", heavy, f.Name, diff)
			}
		}
	}
}

// TestNoMethodOfALightSpanIsMissing calls all that a span has, while nothing is
// behind it: a method that a new SDK adds, and span lacks, would be a nil one's.
func TestNoMethodOfALightSpanIsMissing(t *testing.T) {
	_ = ended.Holder((*span)(nil))
	for m, i := reflect.TypeFor[sdktrace.ReadWriteSpan](), 0; i < m.NumMethod(); i++ {
		method := m.Method(i)
		if !method.IsExported() {
			continue
		}
		for _, over := range []bool{false, true} {
			p := newPair(t, t.Context(), func(sdktrace.ReadWriteSpan) {})
			if p.ours.ReadWriteSpan != nil {
				t.Fatal("the span is not light")
			}
			if over {
				p.ours.End()
			}
			var args []reflect.Value
			for in := range method.Type.Ins() {
				args = append(args, reflect.Zero(in))
			}
			if method.Type.IsVariadic() {
				args = args[:len(args)-1]
			}
			reflect.ValueOf(p.ours).MethodByName(method.Name).Call(args)
		}
	}
}

// TestSDKCountsOurSpans: a span of user code has one of ours as its child, once,
// whether or not there is one of the SDK's behind it.
func TestSDKCountsOurSpans(t *testing.T) {
	r := newRecorder(t)
	ctx, user := r.TracerProvider().Tracer("user").Start(t.Context(), "user")
	other, _ := r.StartRouter(t.Context(), RouterStart{})
	for i, start := range []func(){
		func() { r.StartRouter(ctx, RouterStart{}) },
		func() { r.StartBatch([]context.Context{ctx, other}, BatchStart{}) }, // which has a link
	} {
		start()
		if got := user.(sdktrace.ReadOnlySpan).ChildSpanCount(); got != i+1 {
			t.Errorf("%d children after %d", got, i+1)
		}
	}
	user.End()
}

// TestLinksAreThereAtTheStart as the SDK has them: processors may look at them.
func TestLinksAreThereAtTheStart(t *testing.T) {
	links := -1
	p, err := NewProvider(DefaultConfig(), starter{on: func(s sdktrace.ReadWriteSpan) { links = len(s.Links()) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	members := []context.Context{}
	for range 3 {
		one, _ := p.StartRouter(ctx, RouterStart{})
		members = append(members, one)
	}
	p.StartBatch(members, BatchStart{})
	if links != 2 {
		t.Errorf("%d links, want 2", links)
	}
}

// An SDK that measures itself sees all spans.
func TestObservedSpansAreTheSDKs(t *testing.T) {
	t.Setenv("OTEL_GO_X_OBSERVABILITY", "True")
	p := newPair(t, t.Context(), func(sdktrace.ReadWriteSpan) {})
	if p.ours.ReadWriteSpan == nil {
		t.Error("the span is light")
	}
	of := p.ours.provider
	if _, child := of.start(trace.ContextWithSpan(t.Context(), p.ours), nil, of.families.router, trace.SpanKindServer, 0, 0); child.ReadWriteSpan == nil {
		t.Error("its child is light")
	}
	p.ours.End()
}

// TestHeavySpanConcurrentSafe: whoever writes while a span ends writes before it
// or not at all, and what it was never changes afterwards.
func TestHeavySpanConcurrentSafe(t *testing.T) {
	for range 200 {
		p := newPair(t, t.Context(), func(sdktrace.ReadWriteSpan) {})
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				p.ours.AddEvent("event")
				p.ours.SetAttributes(attribute.Int("n", i))
				p.ours.SetName("name")
				p.ours.RecordError(errors.New("broken"))
				p.ours.addChild()
				look(p.ours, p.ours.IsRecording())
			})
		}
		group.Go(func() {
			p.ours.End()
			before, is := *p.ours.Ended(), p.ours.Ended()
			p.ours.SetStatus(codes.Error, "late")
			if !reflect.DeepEqual(before, *is) {
				t.Error("a span that has ended changed")
			}
		})
		group.Wait()
	}
}
