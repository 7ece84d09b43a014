package admin

import (
	"bytes"
	"cmp"
	"html/template"
	"slices"

	"github.com/servetrace/servetrace/internal/waterfall"
)

// shownTraces is the number of traces on the page.
const shownTraces = 10

// drawTraces draws the newest traces in encoded requests, which are sorted by age, the oldest
// first. It decodes only as many of the newest requests as it needs.
func drawTraces(requests [][]byte) template.HTML {
	var spans []*waterfall.Span
	var groups []*waterfall.Group
	for _, request := range slices.Backward(requests) {
		some, _ := waterfall.Read(request) // the host has checked the request; after a fault, a part of its spans is enough
		spans = append(spans, some...)
		if groups = waterfall.ByTrace(spans); len(groups) >= shownTraces {
			break
		}
	}
	slices.Reverse(groups)
	var traces []waterfall.Trace
	for _, g := range groups[:min(len(groups), shownTraces)] {
		slices.SortStableFunc(g.Spans, func(a, b *waterfall.Span) int { return cmp.Compare(a.Start, b.Start) })
		t := waterfall.LayOut(g.ID, g.Spans, nil, waterfall.Look{Width: 80})
		t.Analyse()
		traces = append(traces, t)
	}
	var out bytes.Buffer
	waterfall.WriteTraces(&out, traces, false)
	return template.HTML(out.String()) //nolint:gosec // WriteTraces escapes each text
}
