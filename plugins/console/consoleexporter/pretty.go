package consoleexporter

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/semconv"
)

// toTerminal draws what each batch has of each trace, in the order in which the
// traces began, each in one Write. look is asked for each batch.
func toTerminal(w io.Writer, look func() look) pluginsdk.ExportFunc {
	var recent recent
	return func(ctx context.Context, batch *pluginsdk.Batch) error {
		look := look()
		for _, g := range byTrace(batch) {
			if err := ctx.Err(); err != nil {
				return err
			}
			d := lay(g.id, g.spans, recent.find(g.id), look)
			if _, err := w.Write(draw(d, look)); err != nil {
				return fmt.Errorf("write trace: %w", err)
			}
			recent.add(d)
		}
		return nil
	}
}

// group is what a batch has of a trace.
type group struct {
	id    trace.TraceID
	start int64
	spans []*span
}

// byTrace sorts a batch by traces, and these by their first start.
func byTrace(batch *pluginsdk.Batch) []*group {
	var groups []*group
	byID := map[trace.TraceID]*group{}
	var from pluginsdk.Resource // of the last span; spans of a batch share them
	var service string
	for raw := range batch.Spans() {
		if r := raw.Resource(); r != from {
			from, service = r, head(text(r.Attribute(semconv.ServiceName)), serviceBytes)
		}
		s := read(raw, service)
		g := byID[raw.TraceID()]
		if g == nil {
			g = &group{id: raw.TraceID(), start: s.start}
			byID[g.id] = g
			groups = append(groups, g)
		}
		g.start = min(g.start, s.start)
		g.spans = append(g.spans, s)
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(a.start, b.start) })
	return groups
}

// read takes from a span of a service what a drawing needs.
func read(raw pluginsdk.Span, service string) *span {
	s := &span{
		id: raw.SpanID(), parent: raw.ParentID(), elsewhere: elsewhere(raw), name: raw.Name(), kind: raw.Kind(),
		start: raw.StartTime().UnixNano(), end: raw.EndTime().UnixNano(),
		service:    service,
		attributes: slices.Collect(raw.Attributes()),
	}
	s.code, s.message = raw.Status()
	for e := range raw.Events() {
		s.events = append(s.events, event{e.Name(), e.Time().UnixNano(), slices.Collect(e.Attributes())})
	}
	for l := range raw.Links() {
		s.links = append(s.links, link{l.TraceID(), l.SpanID()})
	}
	return s
}

// elsewhere tells whether the parent is a span of another process. Where the
// sender does not say, the kinds that answer calls count as called from there.
func elsewhere(raw pluginsdk.Span) bool {
	if !raw.ParentID().IsValid() {
		return false
	}
	if remote, known := raw.ParentIsRemote(); known {
		return remote
	}
	return raw.Kind() == trace.SpanKindServer || raw.Kind() == trace.SpanKindConsumer
}
