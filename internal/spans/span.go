package spans

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/tracing"
)

// Tracer starts the spans of the families. It is safe for concurrent use.
type Tracer struct {
	// Provider makes the spans and propagates their context. It is never nil.
	Provider *tracing.Provider

	tracer trace.Tracer // nil if the provider is off
	naming naming       // the attribute names in use: Ray's, OpenTelemetry's, or both
	jobID  string
}

// New returns a Tracer for the provider, which the caller shuts down.
func New(p *tracing.Provider) *Tracer {
	cfg := p.Config()
	t := &Tracer{Provider: p, naming: newNaming(cfg), jobID: cfg.JobID}
	if !p.Enabled() {
		return t
	}
	var schema []trace.TracerOption
	if t.naming.current() {
		schema = append(schema, trace.WithSchemaURL(semconv.SchemaURL))
	}
	t.tracer = p.TracerProvider().Tracer(tracing.ScopeName, schema...)
	return t
}

// NewProxy returns a new identity for a proxy.
func (t *Tracer) NewProxy() *identity.Component { return identity.NewProxy(t.jobID) }

// NewReplica returns a new identity for a replica of the deployment of app.
func (t *Tracer) NewReplica(app, deployment string) *identity.Component {
	return identity.NewReplica(t.jobID, app, deployment)
}

// Span is a span of one of the families, from its start to its end. The zero value is
// the span of an unsampled request: its methods do nothing.
type Span struct {
	span   trace.Span // nil if the span does not record
	naming naming
	call   call
}

// call has the data about a request that its span needs at the start and at the end.
type call struct {
	deployment, app        string // the called deployment and its application
	method, route, modelID string // the called method, the route, and the multiplexed model's id
	verb                   string // HTTP verb, as the client sent it
	rpcMethod              string // full name of the method; for gRPC only
	protocol               Protocol
	streaming              bool
}

// Recording reports whether the span records, so that callers can skip work that is
// only for its attributes.
func (s Span) Recording() bool { return s.span != nil }

// Context returns the span's context, or zero if it does not record.
func (s Span) Context() trace.SpanContext {
	if s.span == nil {
		return trace.SpanContext{}
	}
	return s.span.SpanContext()
}

// The kinds of the span families, as options.
var (
	kindServer   = trace.WithSpanKind(trace.SpanKindServer)
	kindInternal = trace.WithSpanKind(trace.SpanKindInternal)
)

// dropUnsampled reports whether a new child of the span in ctx need not be started, because
// the child is certainly not sampled, or because tracing is off. It returns the context to
// use for the request.
//
// In an unsampled trace, dropUnsampled starts the first span of this process itself, without
// a name and attributes, so that outgoing calls carry a span id of this process. family is
// the first word of the name of the span. Further spans are not started.
func (t *Tracer) dropUnsampled(ctx context.Context, family string) (context.Context, bool) {
	if t.tracer == nil {
		return ctx, true
	}
	parent := trace.SpanContextFromContext(ctx)
	if !t.Provider.Drops(parent) {
		return ctx, false
	}
	switch {
	case !parent.IsValid(): // with ctx, the SDK would look for a parent three times
		_, span := t.tracer.Start(context.Background(), family)
		ctx = trace.ContextWithSpan(ctx, span)
	case parent.IsRemote(), parent.IsSampled():
		ctx, _ = t.tracer.Start(ctx, family)
	}
	return ctx, true
}

// start starts a span with the SDK. The returned context carries the sampling decision. If
// the span does not record, the returned Span is zero.
func (t *Tracer) start(
	ctx context.Context, name string, attrs []attribute.KeyValue, c call, kind trace.SpanStartOption, more ...trace.SpanStartOption,
) (context.Context, Span) {
	ctx, span := t.tracer.Start(ctx, name, append(more, kind, trace.WithAttributes(attrs...))...)
	if !span.IsRecording() {
		return ctx, Span{}
	}
	return ctx, Span{span: span, naming: t.naming, call: c}
}
