package waterfall

import (
	"bytes"
	_ "embed" // for the style
	"fmt"
	"html"
	"strings"

	"go.opentelemetry.io/otel/codes"
)

// CSS is the style for the sections that WriteTraces writes.
//
//go:embed waterfall.css
var CSS string

// pageStyle is the style of a page, besides CSS.
const pageStyle = `body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem }
h1 { font-size: 1.3rem; margin: 0; overflow-wrap: anywhere }
`

// Bounds of a page. The widths of texts are in cells of a terminal.
const (
	titleCells = 200
	nameCells  = 120
	valueCells = 2000
	shownDepth = 8   // deepest indentation of a span
	shownNotes = 4   // lines of each kind below a span: errors, gaps and links
	shownRows  = 200 // rows of a trace, if WriteTraces omits values
)

// WritePage appends a page of HTML with the traces. It has its own style and needs no
// other file and no script. Attributes are folded below their span.
func WritePage(to *bytes.Buffer, title string, traces []Trace) {
	fmt.Fprintf(to, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>%[1]s</title>
<style>
%[2]s%[3]s</style>
</head>
<body>
<main>
<h1>%[1]s</h1>
`, markup(title, titleCells), pageStyle, CSS)
	WriteTraces(to, traces, true)
	to.WriteString("</main>\n</body>\n</html>\n")
}

// WriteTraces appends a section of HTML for each trace, for a page that includes CSS. If
// values is false, it omits attributes, error messages and events, because they may hold
// secrets, and its headings are of the third level.
func WriteTraces(to *bytes.Buffer, traces []Trace, values bool) {
	p := &htmlPage{Buffer: to, values: values, anchors: map[Link]bool{}}
	for _, t := range traces {
		for _, r := range t.rows {
			if r.span != nil {
				p.anchors[Link{t.id, r.id}] = false
			}
		}
	}
	for i := range traces {
		p.trace(&traces[i])
	}
}

// htmlPage is the output of WriteTraces.
type htmlPage struct {
	*bytes.Buffer
	values bool
	// anchors has each span that is drawn. The value is true if its anchor is already written.
	anchors map[Link]bool
}

// markup returns a text for HTML or XML, cut to the given number of cells.
func markup(text string, most int) string {
	text, _ = fit(text, most, false)
	return html.EscapeString(text)
}

func anchor(l Link) string { return "s-" + l.Trace.String() + "-" + l.Span.String() }

func (p *htmlPage) trace(t *Trace) {
	level := either(p.values, "h2", "h3")
	fmt.Fprintf(p.Buffer, "<section class=\"trace\">\n<%[1]s>trace %[2]s</%[1]s>\n<p>%[3]s</p>\n", level, t.id, markup(t.summary(), titleCells))
	if shares := t.shares(); len(shares) > 0 {
		var parts []string
		for _, s := range shares {
			parts = append(parts, fmt.Sprintf("%s %s (%d&nbsp;%%)",
				markup(nameOf(row{node: s.node}), shareCells), duration(s.nanos, false), s.percent))
		}
		fmt.Fprintf(p.Buffer, "<p>critical path: %s</p>\n", strings.Join(parts, ", "))
	}
	p.WriteString("<ol>\n")
	most := len(t.rows)
	if !p.values {
		most = min(most, shownRows)
	}
	for _, r := range t.rows[:most] {
		p.row(t, r)
	}
	if left := len(t.rows) - most; left > 0 {
		fmt.Fprintf(p.Buffer, "<li><p class=\"note\">+%d more</p></li>\n", left)
	}
	p.WriteString("</ol>\n</section>\n")
}

func (p *htmlPage) row(t *Trace, r row) {
	class, mark := fmt.Sprintf("d%d", min(r.depth, shownDepth)), ""
	if r.span != nil && r.span.Code == codes.Error {
		class, mark = class+" failed", `<span class="error">error:</span> `
	}
	id, own := "", Link{t.id, r.id}
	if seen, drawn := p.anchors[own]; drawn && !seen {
		p.anchors[own], id = true, ` id="`+anchor(own)+`"`
	}
	fmt.Fprintf(p.Buffer, "<li class=%q%s>", class, id)
	tag, open, end := "div", "", ""
	if r.span != nil && p.values && len(r.span.Attributes)+len(r.span.Events) > 0 {
		tag, open, end = "summary", "<details>", "</details>"
	}
	fmt.Fprintf(p.Buffer, "%s<%s class=\"span\"><b>%s%s</b>", open, tag, mark, markup(nameOf(r), nameCells))
	if r.span != nil {
		fmt.Fprintf(p.Buffer, "<i>%s</i>", durationText(r.span, false))
		p.bar(t, r.node)
	}
	fmt.Fprintf(p.Buffer, "</%s>", tag)
	if end != "" {
		p.details(r.span)
	}
	p.WriteString(end)
	if r.span != nil {
		p.notes(t, r)
	}
	p.WriteString("</li>\n")
}

// barSteps is the width of the picture of a bar, in units of its viewBox.
const barSteps = 1000

// bar writes the bar of a span: its interval in the trace, and the parts of it that are on the
// critical path.
func (p *htmlPage) bar(t *Trace, n *node) {
	if n.span.Start == 0 {
		return
	}
	label := "starts at +" + duration(max(n.span.Start-t.start, 0), false)
	rect := func(class string, i interval, y, height int) string {
		from, to := t.place(i, barSteps)
		return fmt.Sprintf(`<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`, class, from, y, max(to-from, 2), height)
	}
	rects := rect("whole", interval{n.span.Start, n.span.End}, 3, 4)
	if t.analysis != nil {
		var nanos int64
		for _, part := range t.analysis.path[n] {
			rects += rect("path", part, 1, 8)
			nanos += part.length()
		}
		if nanos > 0 {
			label += ", on the critical path for " + duration(nanos, false)
		}
	}
	fmt.Fprintf(p.Buffer, `<svg class="bar" viewBox="0 0 %d 10" preserveAspectRatio="none" role="img" aria-label="%s">%s</svg>`, barSteps, label, rects)
}

// details writes the attributes and events of a span.
func (p *htmlPage) details(s *Span) {
	p.WriteString("<dl>")
	for _, kv := range s.Attributes {
		fmt.Fprintf(p.Buffer, "<dt>%s</dt><dd>%s</dd>", markup(string(kv.Key), nameCells), markup(kv.Value.String(), valueCells))
	}
	for _, e := range s.Events {
		value := e.Name
		for _, kv := range e.Attributes {
			value += "  " + token{string(kv.Key), kv.Value.String()}.text()
		}
		fmt.Fprintf(p.Buffer, "<dt>%s</dt><dd>%s</dd>", "event"+e.since(s, false), markup(value, valueCells))
	}
	p.WriteString("</dl>")
}

// notes writes the lines below a span: errors, gaps and links.
func (p *htmlPage) notes(t *Trace, r row) {
	note := func(class, text string) { fmt.Fprintf(p.Buffer, `<p class="note%s">%s</p>`, class, text) }
	if p.values {
		messages := errorsOf(r.span)
		for _, m := range messages[:min(len(messages), shownNotes)] {
			note(" error", markup(strings.TrimSpace(m.text+" "+m.kind), valueCells))
		}
	}
	if t.analysis != nil {
		gaps := t.analysis.gaps[r.node]
		for _, gap := range gaps[:min(len(gaps), shownNotes)] {
			note("", gapText(r, gap, false))
		}
	}
	for _, l := range r.span.Links[:min(len(r.span.Links), shownNotes)] {
		text := "span " + l.Span.String() + " of trace " + l.Trace.String()
		if _, drawn := p.anchors[l]; drawn {
			text = fmt.Sprintf(`<a href="#%s">%s</a>`, anchor(l), text)
		}
		note("", "link to "+text)
	}
}
