package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace/bench/internal/suite"
)

// lines is a plot of a sweep: shapes of a suite that differ in one number. Both
// axes are logarithmic: a sweep goes over decades, and ratios are distances.
type lines struct {
	title, unit string
	names       []string // of the rows, one line each
	xs          []float64
	ys          [][]float64 // by row, then by x; zero where there is none
}

// leastPoints make a line; fewer are told well enough by tables.
const leastPoints = 3

// sweepsOf finds the sweeps of a run: shapes called by a number and a noun ("8
// producers", "10k spans/s"), of one suite and noun.
func sweepsOf(r *suite.Results) []lines {
	type point struct {
		x     float64
		shape suite.ShapeResults
	}
	var order []string
	points := map[string][]point{}
	for _, s := range r.Shapes {
		x, noun, ok := numbered(s.Shape)
		if !ok {
			continue
		}
		key := s.Suite + ", by " + noun
		if points[key] == nil {
			order = append(order, key)
		}
		points[key] = append(points[key], point{x, s})
	}
	var plots []lines
	for _, key := range order {
		sweep := points[key]
		if len(sweep) < leastPoints {
			continue
		}
		slices.SortFunc(sweep, func(a, b point) int { return int(math.Copysign(1, a.x-b.x)) })
		p := lines{title: key, unit: suite.Title(suite.CPU) + " of host and plugin, " + suite.Unit(suite.CPU)}
		for i, at := range sweep {
			p.xs = append(p.xs, at.x)
			for _, row := range at.shape.Rows {
				summary, ok := row.Summary(suite.Of(suite.CPU, "total"))
				if !ok || summary.Median <= 0 {
					continue
				}
				n := slices.Index(p.names, row.Row)
				if n < 0 {
					n = len(p.names)
					p.names, p.ys = append(p.names, row.Row), append(p.ys, make([]float64, len(sweep)))
				}
				p.ys[n][i] = summary.Median
			}
		}
		if len(p.names) > 0 {
			plots = append(plots, p)
		}
	}
	return plots
}

// numbered reads "10k spans/s" as 10,000 and "spans/s", and "1 producer" as 1
// and "producers".
func numbered(name string) (n float64, noun string, ok bool) {
	number, noun, _ := strings.Cut(name, " ")
	thousands := 1.0
	if cut, found := strings.CutSuffix(number, "k"); found {
		number, thousands = cut, 1000
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n <= 0 || noun == "" || strings.Contains(noun, ",") {
		return 0, "", false
	}
	first, rest, _ := strings.Cut(noun, "/")
	if noun = strings.TrimSuffix(first, "s") + "s"; rest != "" {
		noun += "/" + rest
	}
	return n * thousands, noun, true
}

// Measures of the plot, in pixels: of the field between the axes, and where it
// begins.
const (
	fieldLeft, fieldTop     = 80, 70
	fieldWidth, fieldHeight = 520, 300
)

// write draws the plot as an SVG of its own.
func (p lines) write(w io.Writer) {
	const height = fieldTop + fieldHeight + 50
	_, _ = fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n",
		plotWidth, height, plotWidth, height)
	_, _ = fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	_, _ = fmt.Fprintf(w, `<text x="10" y="22" font-size="16" font-weight="bold">%s</text>`+"\n", html.EscapeString(p.title))
	_, _ = fmt.Fprintf(w, `<text x="10" y="44" fill="#555555">%s; both axes are logarithmic</text>`+"\n", html.EscapeString(p.unit))
	low, high := p.decades()
	place := p.placer(low, high)
	for d := low; d <= high; d++ {
		_, y := place(p.xs[0], math.Pow10(d))
		_, _ = fmt.Fprintf(w, `<path d="M%d %.1fh%d" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			fieldLeft, y, fieldWidth, fieldLeft-8, y+4, number(math.Pow10(d)))
	}
	for _, v := range p.xs {
		x, _ := place(v, math.Pow10(low))
		_, _ = fmt.Fprintf(w, `<path d="M%.1f %dv6" stroke="#555555"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, fieldTop+fieldHeight, x, fieldTop+fieldHeight+22, number(v))
	}
	for n, name := range p.names {
		p.writeLine(w, n, name, place)
	}
	_, _ = io.WriteString(w, "</svg>\n")
}

// writeLine draws a row, and its name in the legend.
func (p lines) writeLine(w io.Writer, n int, name string, place func(x, y float64) (float64, float64)) {
	colour := colours[n%len(colours)]
	var path strings.Builder
	for i, v := range p.ys[n] {
		if v == 0 {
			continue
		}
		step := "L"
		if path.Len() == 0 {
			step = "M"
		}
		x, y := place(p.xs[i], v)
		_, _ = fmt.Fprintf(&path, "%s%.1f %.1f", step, x, y)
		_, _ = fmt.Fprintf(w, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`+"\n", x, y, colour)
	}
	_, _ = fmt.Fprintf(w, `<path d="%s" stroke="%s" stroke-width="2" fill="none"/>`+"\n", path.String(), colour)
	at := fieldTop + 10 + 22*n
	_, _ = fmt.Fprintf(w, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
		fieldLeft+fieldWidth+20, at, colour, fieldLeft+fieldWidth+38, at+11, html.EscapeString(name))
}

// decades are the powers of ten that all values lie between.
func (p lines) decades() (low, high int) {
	least, most := math.Inf(1), 0.0
	for _, row := range p.ys {
		for _, v := range row {
			if v > 0 {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	low, high = int(math.Floor(math.Log10(least))), int(math.Ceil(math.Log10(most)))
	return low, max(high, low+1)
}

// placer gives where a value lies in the field.
func (p lines) placer(low, high int) func(x, y float64) (float64, float64) {
	from, to := math.Log10(p.xs[0]), math.Log10(p.xs[len(p.xs)-1])
	return func(x, y float64) (float64, float64) {
		across := (math.Log10(x) - from) / max(to-from, 1e-9)
		up := (math.Log10(y) - float64(low)) / float64(high-low)
		return fieldLeft + across*fieldWidth, fieldTop + fieldHeight*(1-up)
	}
}
