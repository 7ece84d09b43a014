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

// Extract returns ctx with the trace context and baggage that came with a
// request. What is malformed is left out, as W3C Trace Context says: a bad
// traceparent begins a new trace, a bad tracestate is dropped and leaves the
// traceparent in force, a bad member of the baggage is dropped alone. Several
// traceparent lines count as none, several tracestate lines as one list.
// Baggage is limited to 64 members and 8,192 bytes.
//
// Sources: https://www.w3.org/TR/trace-context/ and https://www.w3.org/TR/baggage/.
func (p *Provider) Extract(ctx context.Context, header http.Header) context.Context {
	if p.w3c && len(header["Traceparent"]) == 0 && len(header["Baggage"]) == 0 {
		return ctx
	}
	return p.propagator.Extract(ctx, edgeHeader(header))
}

// readsW3C says whether a propagator finds nothing where there is neither a
// traceparent nor baggage.
func readsW3C(propagator propagation.TextMapPropagator) bool {
	return !slices.ContainsFunc(propagator.Fields(), func(field string) bool {
		return field != "traceparent" && field != "tracestate" && field != "baggage"
	})
}

// ExtractMetadata is Extract for the metadata of a gRPC call, whose keys are in
// lower case; a metadata.MD is one.
func (p *Provider) ExtractMetadata(ctx context.Context, md map[string][]string) context.Context {
	if p.w3c && len(md["traceparent"]) == 0 && len(md["baggage"]) == 0 {
		return ctx
	}
	return p.propagator.Extract(ctx, edgeMetadata(md))
}

// Inject writes the trace context and baggage of ctx into header, for a
// request that leaves the process.
func (p *Provider) Inject(ctx context.Context, header http.Header) {
	p.propagator.Inject(ctx, edgeHeader(header))
}

// TraceContext returns a context that carries the current span of ctx, its
// baggage and its Request, and nothing else: no cancellation, no deadline and
// no other value. It is Ray's get_trace_context, for work that outlives the
// request but belongs to its trace. Inside a handler the handler's own ctx does
// as well. Where ctx has none of the three, it is the background context.
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

// edgeHeader is a carrier over HTTP headers that treats repeated lines as W3C
// Trace Context asks; OpenTelemetry's takes the first of each.
type edgeHeader http.Header

var (
	_ propagation.TextMapCarrier = edgeHeader{}
	_ propagation.ValuesGetter   = edgeHeader{}
)

func (h edgeHeader) Get(key string) string { return edgeValue(key, h.Values(key)) }

// edgeValue is the one value that the lines of a key stand for.
func edgeValue(key string, values []string) string {
	switch {
	case len(values) == 0:
		return ""
	case key == "tracestate" && len(values) > 1:
		return strings.Join(values, ",")
	case key == "traceparent":
		if len(values) > 1 {
			return "" // which of them is meant can not be known
		}
		return edgeParent(values[0])
	}
	return values[0]
}

// edgeParent mends where OpenTelemetry's parser is not what the recommendation
// says of version 00: a hyphen behind the flags makes it malformed, and flags
// that this version of the recommendation does not know yet do not.
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
		return "" // no digits, or upper-case ones
	}
	return parent[:length-2] + "0" + strconv.FormatUint(n&known, 10)
}

func (h edgeHeader) Values(key string) []string {
	// The three that every request is asked for are spelt out: net/http makes
	// the canonical form of a name that it does not know anew each time.
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

// edgeMetadata is edgeHeader for gRPC's metadata.
type edgeMetadata map[string][]string

var (
	_ propagation.TextMapCarrier = edgeMetadata{}
	_ propagation.ValuesGetter   = edgeMetadata{}
)

func (m edgeMetadata) Get(key string) string { return edgeValue(key, m.Values(key)) }

func (m edgeMetadata) Values(key string) []string { return m[strings.ToLower(key)] }

func (m edgeMetadata) Set(key, value string) { m[strings.ToLower(key)] = []string{value} }

func (m edgeMetadata) Keys() []string { return slices.Collect(maps.Keys(m)) }
