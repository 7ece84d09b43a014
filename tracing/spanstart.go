package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	runtimetrace "runtime/trace"
	"strings"
	"time"
	"unsafe"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/servetrace/servetrace/internal/ended"
)

// start starts a span under its family's name, with room for so many attributes.
// The span is nil if it does not record; the returned context then still carries
// the decision. at is when, by Clock; 0 for now. It goes as the SDK's own does
// (v1.47), which counts the children of its spans.
func (p *Provider) start(
	ctx context.Context, in *Within, family *ended.Like, kind trace.SpanKind, room int, at time.Duration, links ...trace.Link,
) (context.Context, *span) {
	if p.tracer == nil {
		return ctx, nil
	}
	outer := ctx.Value(spanKey)
	switch of := outer.(type) {
	case nil:
		if p.known && p.decision == sdktrace.Drop && !p.heavy {
			return in.withSpan(ctx, &unsampled{unrecorded: &p.unrecorded}), nil
		}
	case *unsampled:
		if p.inherits {
			return ctx, nil
		}
	case *span:
		if p.inherits && of.is.Flags.IsSampled() && !p.heavy && len(links) == 0 && !runtimetrace.IsEnabled() {
			return p.startUnder(ctx, in, of, family, kind, room, at)
		}
	}
	around, is := outer.(trace.Span)
	if !is {
		around = noop.Span{}
	}
	return p.startAny(ctx, in, around, family, kind, room, at, links)
}

// startAny is what start comes to where there is no shorter way. The span of ctx is
// outer.
func (p *Provider) startAny(
	ctx context.Context, in *Within, outer trace.Span, family *ended.Like, kind trace.SpanKind, room int, at time.Duration, links []trace.Link,
) (context.Context, *span) {
	of, ours := outer.(*span)
	parent := outer.SpanContext()
	inherits := p.inherits && parent.IsValid() && (p.trust || !parent.IsRemote())
	if inherits && !parent.IsSampled() {
		// The decision has fallen: the parent's context goes on as it is, flag
		// 00, and nobody need be asked.
		return ctx, nil
	}
	result := sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample, Tracestate: parent.TraceState()}
	traceID := parent.TraceID()
	if !traceID.IsValid() {
		traceID = drawTraceID()
	}
	if !inherits {
		result = p.decide(ctx, parent, sdktrace.SamplingParameters{TraceID: traceID, Name: family.Name, Kind: kind, Links: links})
	}
	cfg := trace.SpanContextConfig{
		TraceID: traceID, SpanID: drawSpanID(), TraceState: result.Tracestate,
		TraceFlags: parent.TraceFlags().WithSampled(result.Decision == sdktrace.RecordAndSample),
	}
	if result.Decision == sdktrace.Drop {
		sc := trace.NewSpanContext(cfg)
		if p.heavy || counts(outer) {
			p.tracer.Start(decided{ctx, sc, result}, family.Name) // for what the SDK counts
		}
		s := &unsampled{unrecorded: &p.unrecorded}
		s.ids.Store(&sc)
		return in.withSpan(ctx, s), nil
	}
	s := p.newSpan(family, kind, room)
	if ours {
		s.startAfter(of, at)
	} else {
		s.startFirst(at)
	}
	s.is.TraceID, s.is.SpanID, s.is.Flags, s.is.ParentID = cfg.TraceID, cfg.SpanID, cfg.TraceFlags, parent.SpanID()
	if cfg.TraceState.Len() > 0 {
		state := cfg.TraceState
		s.is.State = &state
	}
	if !parent.Equal(trace.SpanContext{}) {
		outer := parent
		s.is.Outer = &outer
	}
	started := ctx
	if p.heavy || len(links) > 0 || len(result.Attributes) > 0 || runtimetrace.IsEnabled() {
		s.mu.Lock()
		started = s.beginLocked(decided{ctx, s.is.SpanContext(), result}, links)
		s.mu.Unlock()
	} else if counts(outer) {
		p.tracer.Start(ctx, family.Name) // does not record, but is counted
	}
	if ours {
		of.addChild()
	}
	p.pipeline.onStart(ctx, s)
	return in.withSpan(started, s), s
}

// decide has the sampler, if it need be asked, decide on a span whose parent is that
// of ctx.
func (p *Provider) decide(ctx context.Context, parent trace.SpanContext, about sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.known {
		return sdktrace.SamplingResult{Decision: p.decision, Tracestate: parent.TraceState()}
	}
	about.ParentContext = ctx
	if !parent.IsValid() && parent.TraceState().Len() == 0 {
		about.ParentContext = context.Background() // samplers look for the parent alone, each of them through all of ctx
	}
	return p.sampler.ShouldSample(about)
}

// startUnder is what start comes to for most spans: of is one of ours and decides,
// and the SDK has no part in it.
func (p *Provider) startUnder(ctx context.Context, in *Within, of *span, family *ended.Like, kind trace.SpanKind, room int, at time.Duration) (context.Context, *span) {
	s := p.newSpan(family, kind, room)
	s.startAfter(of, at)
	s.is.TraceID, s.is.SpanID, s.is.ParentID = of.is.TraceID, drawSpanID(), of.is.SpanID
	s.is.State, s.is.Flags = of.is.State, of.is.Flags
	of.addChild()
	p.pipeline.onStart(ctx, s)
	return in.withSpan(ctx, s), s
}

// newSpan gives a span that has what does not depend on its parent.
func (p *Provider) newSpan(family *ended.Like, kind trace.SpanKind, room int) *span {
	s := newSpan(room)
	s.provider, s.beside = p, p.roomy
	// One by one: a literal of them all would be copied, with what it leaves empty.
	s.is.Like, s.is.Kind = family, uint8(kind)
	return s
}

// room is about how many bytes a span's own attributes take, which has so many
// besides the texts of the call under Ray's names, and so many under today's.
func (n naming) room(ray, stable int) (bytes int) {
	if n.serve.ray() {
		bytes += ray
	}
	if n.serve.stable() {
		bytes += stable
	}
	return bytes
}

// newSpan gives a span with room for so many bytes of attributes behind it, in one
// piece, of one of the collector's sizes.
func newSpan(room int) *span {
	switch {
	case room <= 40:
		return spanBefore[[40]byte]()
	case room <= 56:
		return spanBefore[[56]byte]()
	case room <= 72:
		return spanBefore[[72]byte]()
	case room <= 104:
		return spanBefore[[104]byte]()
	case room <= 168:
		return spanBefore[[168]byte]()
	case room <= 296:
		return spanBefore[[296]byte]()
	case room <= 520:
		return spanBefore[[520]byte]()
	}
	return spanBefore[[968]byte]()
}

// spanBefore gives a span before a room, which is an array of bytes.
func spanBefore[Room any]() *span {
	s := new(struct {
		span

		behind Room
	})
	s.room = uint16(unsafe.Sizeof(s.behind))
	s.is.Bytes = uint32(unsafe.Sizeof(*s))
	return &s.span
}

// empty is a list of attributes in the room behind s.
func (s *span) empty() ended.Attributes {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(s), unsafe.Sizeof(*s))), s.room)[:0]
}

// counts tells whether a span around one of ours is to know of it by the SDK:
// ours are told by start.
func counts(outer trace.Span) bool {
	_, ours := outer.(*span)
	return !ours && outer.IsRecording()
}

// beginLocked starts the SDK's span in ctx, and gives the context of that. Name
// and status are those that s has now.
func (s *span) beginLocked(ctx decided, links []trace.Link) context.Context {
	started, inner := s.provider.tracer.Start(ctx, s.is.Like.Name,
		trace.WithSpanKind(s.SpanKind()), trace.WithTimestamp(s.StartTime()), trace.WithLinks(links...))
	status := s.is.Status()
	inner.SetStatus(status.Code, status.Description)
	s.ReadWriteSpan, _ = inner.(sdktrace.ReadWriteSpan) // the decision is to record
	return started
}

// decided is the context that a span of the SDK's is started with behind one of
// ours: its ids and the decision have fallen. In any other context, the provider
// of those spans samples none.
type decided struct {
	context.Context

	sc     trace.SpanContext
	result sdktrace.SamplingResult
}

// asDecided draws ids and samples as the context of a span says.
type asDecided struct{}

var (
	_ sdktrace.Sampler     = asDecided{}
	_ sdktrace.IDGenerator = asDecided{}
)

// ShouldSample implements [sdktrace.Sampler].
func (asDecided) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if d, is := p.ParentContext.(decided); is {
		return d.result
	}
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

// Description implements [sdktrace.Sampler].
func (asDecided) Description() string { return "as decided" }

// NewIDs implements [sdktrace.IDGenerator].
func (asDecided) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if d, is := ctx.(decided); is {
		return d.sc.TraceID(), d.sc.SpanID()
	}
	return drawTraceID(), drawSpanID()
}

// NewSpanID implements [sdktrace.IDGenerator].
func (g asDecided) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := g.NewIDs(ctx)
	return id
}

// drawTraceID draws a valid id, as the SDK does.
func drawTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

// drawSpanID draws a valid id, as the SDK does.
func drawSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// observed tells whether the SDK measures itself, an experiment of its: then it
// wants to see each span. It has no option for it, and reads the process's
// environment wherever a provider is made.
func observed() bool {
	for _, name := range []string{"OTEL_GO_X_OBSERVABILITY", "OTEL_GO_X_SELF_OBSERVABILITY"} {
		if strings.EqualFold(os.Getenv(name), "true") { //nolint:forbidigo // as the comment says
			return true
		}
	}
	return false
}
