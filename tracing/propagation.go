package tracing

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
)

// Extract returns ctx with the trace context and the baggage of a request. It ignores
// malformed parts, as W3C Trace Context requires. If traceparent is malformed or occurs several
// times, the request starts a new trace. A malformed tracestate is ignored, but its traceparent
// is used. A malformed member of baggage is ignored, but the other members are used. Several
// tracestate lines count as one list. Baggage is limited to 64 members and 8,192 bytes.
//
// Sources: https://www.w3.org/TR/trace-context/ and https://www.w3.org/TR/baggage/.
func (p *Provider) Extract(ctx context.Context, header http.Header) context.Context {
	if p.w3c && len(header["Traceparent"]) == 0 && len(header["Baggage"]) == 0 {
		return ctx
	}
	return p.propagator.Extract(ctx, edgeHeader(header))
}

// readsW3C reports whether the propagator reads only the headers of W3C. If so, it finds
// nothing in a request without traceparent and baggage.
func readsW3C(propagator propagation.TextMapPropagator) bool {
	return !slices.ContainsFunc(propagator.Fields(), func(field string) bool {
		return field != "traceparent" && field != "tracestate" && field != "baggage"
	})
}

// ExtractMetadata is Extract for the metadata of a gRPC call, such as a metadata.MD. The keys
// of md must be in lower case.
func (p *Provider) ExtractMetadata(ctx context.Context, md map[string][]string) context.Context {
	if p.w3c && len(md["traceparent"]) == 0 && len(md["baggage"]) == 0 {
		return ctx
	}
	return p.propagator.Extract(ctx, edgeMetadata(md))
}

// Inject writes the trace context and baggage of ctx into the header of an outgoing
// request.
func (p *Provider) Inject(ctx context.Context, header http.Header) {
	p.propagator.Inject(ctx, edgeHeader(header))
}

// InjectMetadata is Inject for the metadata of a gRPC call.
func (p *Provider) InjectMetadata(ctx context.Context, md map[string][]string) {
	p.propagator.Inject(ctx, edgeMetadata(md))
}

// TraceContext returns a context that carries only the current span of ctx, its baggage
// and its Request: no cancellation, no deadline and no other value. It corresponds to
// Ray's get_trace_context, for work that outlives the request but belongs to its trace.
// Inside a handler, use the handler's ctx. If ctx has none of the three, the result is
// the background context.
func TraceContext(ctx context.Context) context.Context {
	out := context.Background()
	if span := trace.SpanFromContext(ctx); span.SpanContext().IsValid() {
		out = trace.ContextWithSpan(out, span)
	}
	if b := baggage.FromContext(ctx); b.Len() > 0 {
		out = baggage.ContextWithBaggage(out, b)
	}
	if r := identity.RequestFromContext(ctx); r != nil {
		out = identity.ContextWithRequest(out, r)
	}
	return out
}

// edgeHeader is a carrier for HTTP headers. If a header occurs several times, it returns the
// value that W3C Trace Context requires. OpenTelemetry's carrier returns only the first value.
type edgeHeader http.Header

var (
	_ propagation.TextMapCarrier = edgeHeader{}
	_ propagation.ValuesGetter   = edgeHeader{}
)

func (h edgeHeader) Get(key string) string { return edgeValue(key, h.Values(key)) }

// edgeValue returns the value to use for a header that occurs with all these values.
func edgeValue(key string, values []string) string {
	switch {
	case len(values) == 0:
		return ""
	case key == "tracestate" && len(values) > 1:
		return strings.Join(values, ",")
	case key == "traceparent":
		if len(values) > 1 {
			return "" // it is unknown which value is right, so the request starts a new trace
		}
		return edgeParent(values[0])
	}
	return values[0]
}

// edgeParent changes a traceparent of version 00, so that OpenTelemetry's parser treats it as
// W3C Trace Context requires. It clears unknown flags. It returns "" for a value of the wrong
// length, because a value with a hyphen after the flags is malformed.
//
// Source: https://www.w3.org/TR/trace-context-2/#trace-flags
func edgeParent(parent string) string {
	const length, known = len("00-") + 32 + len("-") + 16 + len("-01"), 0b11
	switch {
	case !strings.HasPrefix(parent, "00-"):
		return parent
	case len(parent) != length:
		return ""
	case parent[length-2] == '0' && parent[length-1] <= '0'+known:
		return parent
	}
	flags := parent[length-2:]
	n, err := strconv.ParseUint(flags, 16, 8)
	if err != nil || strings.ToLower(flags) != flags {
		return "" // the flags are not lower-case hexadecimal digits
	}
	return parent[:length-2] + "0" + strconv.FormatUint(n&known, 10)
}

func (h edgeHeader) Values(key string) []string {
	// These three headers are read for every request. With literal keys, net/http need not
	// allocate their canonical form each time.
	switch key {
	case "traceparent":
		return h["Traceparent"]
	case "tracestate":
		return h["Tracestate"]
	case "baggage":
		return h["Baggage"]
	}
	return http.Header(h).Values(key)
}

func (h edgeHeader) Set(key, value string) { http.Header(h).Set(key, value) }

func (h edgeHeader) Keys() []string { return slices.Collect(maps.Keys(h)) }

// edgeMetadata is the same as edgeHeader for the metadata of a gRPC call.
type edgeMetadata map[string][]string

var (
	_ propagation.TextMapCarrier = edgeMetadata{}
	_ propagation.ValuesGetter   = edgeMetadata{}
)

func (m edgeMetadata) Get(key string) string { return edgeValue(key, m.Values(key)) }

func (m edgeMetadata) Values(key string) []string { return m[strings.ToLower(key)] }

func (m edgeMetadata) Set(key, value string) { m[strings.ToLower(key)] = []string{value} }

func (m edgeMetadata) Keys() []string { return slices.Collect(maps.Keys(m)) }
