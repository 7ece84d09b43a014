package waterfall

import (
	"cmp"
	"math"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/semconv"
)

// Span is a span of a trace. Its texts are not trusted, see text.go.
type Span struct {
	Trace      trace.TraceID
	ID, Parent trace.SpanID
	// RemoteParent reports that the parent is a span of another process.
	RemoteParent bool
	Name         string
	Kind         trace.SpanKind
	Code         codes.Code
	Message      string
	// Start and End are the times in nanoseconds since 1970, or 0 if the span does not have
	// them.
	Start, End int64
	Service    string
	Attributes []attribute.KeyValue
	Events     []Event
	Links      []Link
}

// Event is an event of a span.
type Event struct {
	Name       string
	At         int64 // time in nanoseconds since 1970, or 0 if the event has no time
	Attributes []attribute.KeyValue
}

// Link is the target of a link from a span to another span.
type Link struct {
	Trace trace.TraceID
	Span  trace.SpanID
}

// timed reports whether the span has a start, and an end that is not before it.
func (s *Span) timed() bool { return s.Start > 0 && s.End >= s.Start }

// Read returns the spans of an encoded ExportTraceServiceRequest of OTLP, in the order of the
// request. For malformed bytes, it returns an error and the spans that can be read.
func Read(request []byte) ([]*Span, error) {
	r, err := otlpwire.Parse(request)
	if err != nil {
		return nil, err
	}
	var spans []*Span
	var from otlpwire.Resource // resource of the previous span; most spans have the same resource
	var service string         // name of the service of this resource
	for raw := range r.Spans() {
		if next := raw.Resource(); next != from {
			from, service = next, ""
			if value, has := next.Attribute(string(semconv.ServiceName)); has {
				service = head(value.String(), serviceBytes)
			}
		}
		spans = append(spans, read(raw, service))
	}
	return spans, r.Err()
}

func read(raw otlpwire.Span, service string) *Span {
	s := &Span{
		Trace: raw.TraceID(), ID: raw.SpanID(), Parent: raw.ParentID(), RemoteParent: hasRemoteParent(raw),
		Name: raw.Name(), Kind: trace.SpanKind(raw.Kind()), Start: nanos(raw.Start()), End: nanos(raw.End()),
		Service: service, Attributes: slices.Collect(raw.Attributes()),
	}
	code, message := raw.Status()
	if s.Code = otlpwire.StatusCode(code); s.Code == codes.Error {
		s.Message = message
	}
	for e := range raw.Events() {
		s.Events = append(s.Events, Event{e.Name(), nanos(e.Time()), slices.Collect(e.Attributes())})
	}
	for l := range raw.Links() {
		s.Links = append(s.Links, Link{l.TraceID(), l.SpanID()})
	}
	return s
}

func nanos(t uint64) int64 { return int64(min(t, math.MaxInt64)) } //nolint:gosec // fits after the minimum

// hasRemoteParent reports whether the parent is a span of another process. If the
// sender does not report it, a span of the kind SERVER or CONSUMER counts as having a
// remote parent.
func hasRemoteParent(raw otlpwire.Span) bool {
	switch kind := trace.SpanKind(raw.Kind()); {
	case raw.ParentID() == [8]byte{}:
		return false
	case raw.Flags()&otlpwire.FlagRemoteKnown != 0:
		return raw.Flags()&otlpwire.FlagRemote != 0
	default:
		return kind == trace.SpanKindServer || kind == trace.SpanKindConsumer
	}
}

// Group holds the known spans of a trace. There is at least one.
type Group struct {
	ID    trace.TraceID
	Spans []*Span
	start int64 // first start of the spans
}

// ByTrace groups spans by their trace, sorted by the first start of each trace.
func ByTrace(spans []*Span) []*Group {
	var groups []*Group
	byID := map[trace.TraceID]*Group{}
	for _, s := range spans {
		g := byID[s.Trace]
		if g == nil {
			g = &Group{ID: s.Trace, start: s.Start}
			byID[g.ID] = g
			groups = append(groups, g)
		}
		g.start = min(g.start, s.Start)
		g.Spans = append(g.Spans, s)
	}
	slices.SortStableFunc(groups, func(a, b *Group) int { return cmp.Compare(a.start, b.start) })
	return groups
}
