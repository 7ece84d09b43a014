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

// toTerminal returns an exporter that draws the traces of each batch in the order of
// their starts, each in a single Write.
func toTerminal(w io.Writer, look look) pluginsdk.ExportFunc {
	var recent recent
	return func(ctx context.Context, batch *pluginsdk.Batch) error {
		for _, g := range byTrace(batch) {
			if err := ctx.Err(); err != nil {
				return err
			}
			d := layOut(g.id, g.spans, recent.find(g.id), look)
			if _, err := w.Write(draw(d, look)); err != nil {
				return fmt.Errorf("write trace: %w", err)
			}
			recent.add(d)
		}
		return nil
	}
}

type group struct {
	id    trace.TraceID
	start int64
	spans []*span
}

// byTrace groups the spans of a batch by trace, sorted by the traces' first start.
func byTrace(batch *pluginsdk.Batch) []*group {
	var groups []*group
	byID := map[trace.TraceID]*group{}
	var from pluginsdk.Resource // resource of the last span; spans of a batch share it
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

func read(raw pluginsdk.Span, service string) *span {
	s := &span{
		id: raw.SpanID(), parent: raw.ParentID(), remoteParent: hasRemoteParent(raw), name: raw.Name(), kind: raw.Kind(),
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

// hasRemoteParent reports whether the parent is a span of another process. If the
// sender does not report it, a span of the kind SERVER or CONSUMER counts as having a
// remote parent.
func hasRemoteParent(raw pluginsdk.Span) bool {
	if !raw.ParentID().IsValid() {
		return false
	}
	if remote, known := raw.ParentIsRemote(); known {
		return remote
	}
	return raw.Kind() == trace.SpanKindServer || raw.Kind() == trace.SpanKindConsumer
}
