package report

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/servetrace/servetrace/bench/internal/suite"
)

// Measures of a plot, in pixels.
const (
	plotWidth  = 860
	labelWidth = 250
	barHeight  = 20
	rowHeight  = 28
	topMargin  = 64
	endMargin  = 90 // behind the longest bar, for its figure
)

// colours of the parts of a bar, in the order of parts; readable for people who
// do not see colours well (Okabe and Ito).
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7"}

// bars is a plot of one bar a row, each made of parts.
type bars struct {
	title, unit string
	parts       []string
	rows        []bar
}

type bar struct {
	name   string
	values []float64 // by part
	// low and high are the ends of the spread of the sum.
	low, high float64
}

func (b bar) sum() (sum float64) {
	for _, v := range b.values {
		sum += v
	}
	return sum
}

// stacked are the metrics that are plotted, with the parts that make the whole,
// and the one whose spread is shown.
var stacked = []struct {
	metric, whole string
	parts         []string
}{
	{suite.CPU, "total", []string{"host", "plugin"}},
	{suite.RequestCPU, "total", []string{"server", "plugin"}},
}

// plotsOf gives the plots of a shape: a bar of CPU time for each row.
func plotsOf(s suite.ShapeResults) []bars {
	var plots []bars
	for _, k := range stacked {
		p := bars{title: s.Suite + ", " + s.Shape, unit: suite.Title(k.metric) + ", " + suite.Unit(k.metric), parts: k.parts}
		for _, row := range s.Rows {
			b := bar{name: row.Row}
			found := false
			for _, part := range k.parts {
				summary, ok := row.Summary(suite.Of(k.metric, part))
				b.values, found = append(b.values, summary.Median), found || ok
			}
			if !found {
				continue
			}
			if whole, ok := row.Summary(suite.Of(k.metric, k.whole)); ok {
				b.low, b.high = whole.Min, whole.Max
			}
			p.rows = append(p.rows, b)
		}
		if len(p.rows) > 1 {
			plots = append(plots, p)
		}
	}
	return plots
}

// write draws the plot as an SVG of its own.
func (p bars) write(w io.Writer) {
	longest := 0.0
	for _, r := range p.rows {
		longest = max(longest, r.sum(), r.high)
	}
	if longest == 0 {
		longest = 1
	}
	scale := float64(plotWidth-labelWidth-endMargin) / longest
	height := topMargin + rowHeight*len(p.rows) + 12
	_, _ = fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n",
		plotWidth, height, plotWidth, height)
	_, _ = fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	_, _ = fmt.Fprintf(w, `<text x="10" y="22" font-size="16" font-weight="bold">%s</text>`+"\n", html.EscapeString(p.title))
	p.writeLegend(w)
	for i, r := range p.rows {
		y := topMargin + i*rowHeight
		_, _ = fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labelWidth-8, y+barHeight-5, html.EscapeString(r.name))
		x := float64(labelWidth)
		for part, v := range r.values {
			_, _ = fmt.Fprintf(w, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y, v*scale, barHeight, colours[part%len(colours)])
			x += v * scale
		}
		if r.high > r.low {
			from, to, middle := labelWidth+r.low*scale, labelWidth+r.high*scale, y+barHeight/2
			_, _ = fmt.Fprintf(w, `<path d="M%.1f %dH%.1fM%.1f %dv8M%.1f %dv8" stroke="#333333" fill="none"/>`+"\n", from, middle, to, from, middle-4, to, middle-4)
			x = max(x, to)
		}
		_, _ = fmt.Fprintf(w, `<text x="%.1f" y="%d">%s</text>`+"\n", x+6, y+barHeight-5, number(r.sum()))
	}
	_, _ = io.WriteString(w, "</svg>\n")
}

func (p bars) writeLegend(w io.Writer) {
	_, _ = fmt.Fprintf(w, `<text x="10" y="44" fill="#555555">%s; lines: lowest to highest</text>`+"\n", html.EscapeString(p.unit))
	x := 420
	for i, part := range p.parts {
		_, _ = fmt.Fprintf(w, `<rect x="%d" y="33" width="12" height="12" fill="%s"/><text x="%d" y="44">%s</text>`+"\n", x, colours[i%len(colours)], x+17, html.EscapeString(part))
		x += 90
	}
}

// plotFile is the name of a plot's file: letters and digits of its title, and
// its number if a shape has several.
func plotFile(title string, n int) string {
	var name strings.Builder
	gap := false
	for _, r := range strings.ToLower(title) {
		if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
			if gap && name.Len() > 0 {
				name.WriteByte('-')
			}
			gap = false
			name.WriteRune(r)
			continue
		}
		gap = true
	}
	if n > 0 {
		_, _ = fmt.Fprintf(&name, "-%d", n+1)
	}
	return name.String() + ".svg"
}
