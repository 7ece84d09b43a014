package waterfall

import (
	"bytes"
	"fmt"

	"go.opentelemetry.io/otel/codes"
)

// Sizes of a picture, in pixels.
const (
	svgWidth   = 1000
	svgRow     = 20
	svgNames   = 330 // right end of the names
	svgBars    = 410 // left end of the bars
	svgMargin  = 12
	svgIndent  = 10  // indentation of each level of the tree
	svgLetter  = 7.4 // largest width of a letter
	svgCells   = 130 // letters in a line
	svgHeading = 2   // lines above the rows of a trace
)

const svgStyle = `text { font: 12px ui-monospace, monospace; fill: #223 } .back { fill: #fff } .dim { fill: #5c5c6e } .bad { fill: #b3141e }
.whole { fill: #9db4d0 } .path { fill: #2563a8 } .failed.whole { fill: #e29aa0 } .failed.path { fill: #b3141e }
@media (prefers-color-scheme: dark) { text { fill: #dde } .back { fill: #15171c } .dim { fill: #a4a4b8 } .bad { fill: #ff7a80 }
.whole { fill: #4a5f7c } .path { fill: #7fb2ee } .failed.whole { fill: #7c4247 } .failed.path { fill: #ff7a80 } }`

// WriteSVG appends one picture with the traces, one below the other. For each span, it shows
// the name, the duration, the bar, and whether the span has failed.
func WriteSVG(to *bytes.Buffer, traces []Trace) {
	lines := 0
	for _, t := range traces {
		lines += svgHeading + len(t.rows) + 1
	}
	fmt.Fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %[1]d %[2]d\" width=\"%[1]d\" height=\"%[2]d\" role=\"img\">\n"+
		"<title>%[3]s</title>\n<style>%[4]s</style>\n<rect class=\"back\" width=\"%[1]d\" height=\"%[2]d\"/>\n",
		svgWidth, lines*svgRow+svgMargin, counted(len(traces), "trace", "traces"), svgStyle)
	line := 0
	text := func(class string, x int, s string) {
		fmt.Fprintf(to, "<text class=%q x=\"%d\" y=\"%d\">%s</text>\n", class, x, svgMargin+line*svgRow+svgRow/2, s)
	}
	for _, t := range traces {
		text("", svgMargin, "trace "+t.id.String())
		line++
		text("dim", svgMargin, markup(t.summary(), svgCells))
		line++
		for _, r := range t.rows {
			indent, class := svgIndent*min(r.depth, shownDepth), ""
			name := nameOf(r)
			if r.span != nil && r.span.Code == codes.Error {
				name, class = "✗ "+name, "bad"
			}
			text(class, svgMargin+indent, markup(name, int(float64(svgNames-svgMargin-indent)/svgLetter)))
			if r.span != nil {
				text("dim", svgNames+svgMargin/2, durationText(r.span, false))
				svgBar(to, &t, r.node, svgMargin+line*svgRow)
			}
			line++
		}
		line++
	}
	to.WriteString("</svg>\n")
}

// svgBar appends the bar of a span. y is the upper end of its line, in pixels.
func svgBar(to *bytes.Buffer, t *Trace, n *node, y int) {
	if n.span.Start == 0 {
		return
	}
	failed := ""
	if n.span.Code == codes.Error {
		failed = " failed"
	}
	rect := func(class string, i interval, y, height int) {
		from, end := t.place(i, svgWidth-svgMargin-svgBars)
		fmt.Fprintf(to, "<rect class=\"%s%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", class, failed, svgBars+from, y, end-from, height)
	}
	rect("whole", interval{n.span.Start, n.span.End}, y+4, 5)
	if t.analysis != nil {
		for _, part := range t.analysis.path[n] {
			rect("path", part, y+2, 9)
		}
	}
}
