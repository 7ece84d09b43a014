package waterfall

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Trace is a trace, or the part of it that is known, arranged for its drawing.
type Trace struct {
	extent
	rows      []row     // one for each span, and for each earlier ancestor
	continued bool      // an earlier drawing has shown other spans of the trace
	analysis  *analysis // nil before Analyse
}

// extent describes all spans of a trace that are or were drawn.
type extent struct {
	id         trace.TraceID
	start, end int64  // first start and last end, in nanoseconds since 1970; 0 if unknown
	service    string // name of the service of the first span
}

// LayOut arranges the spans of a trace. There must be at least one span. before is the part of
// the trace that an earlier drawing has shown, or nil.
func LayOut(id trace.TraceID, spans []*Span, before *History, l Look) Trace {
	d := Trace{extent: extent{id: id}}
	if before != nil {
		d.extent, d.continued = before.extent, true
	}
	for _, s := range spans {
		if s.timed() {
			d.end = max(d.end, s.End)
			if d.start == 0 || s.Start < d.start {
				d.start = s.Start
			}
		}
	}
	d.rows = arrange(spans, before, l.Width/cellsPerLevel)
	for _, r := range d.rows {
		if d.service == "" && r.span != nil {
			d.service = r.span.Service
		}
	}
	return d
}

// Draw returns the drawing of a trace. It has a heading, and for each span a row with
// the name in the tree, kind, status, duration and time bar, followed by lines of
// details. It ends with an empty line. No line is longer than the terminal allows, and
// only the drawing's own escape sequences affect the terminal.
func Draw(of Trace, l Look) []byte {
	d := &drawing{Trace: of, to: &paper{Look: l}, sign: l.signs()}
	d.heading()
	d.path()
	d.columns = d.distribute()
	for _, r := range d.rows {
		d.row(r)
		if r.span != nil {
			d.details(r)
		}
	}
	d.to.newline()
	return d.to.buf
}

type drawing struct {
	Trace
	to      *paper
	sign    signs
	columns columns
	shown   inherited // attributes that the rows of ancestors show
}

// fact is a part of the heading of a trace.
type fact struct {
	style style
	text  string
}

// facts returns the parts of the heading after the trace's id.
func (t *Trace) facts(ascii bool) []fact {
	var list []fact
	add := func(st style, text string) { list = append(list, fact{st, text}) }
	if t.continued {
		add(bold, "continued")
	}
	spans, failed := 0, 0
	for _, r := range t.rows {
		if r.span != nil {
			spans++
			failed += either(r.span.Code == codes.Error, 1, 0)
		}
	}
	add(plain, counted(spans, "span", "spans"))
	if failed > 0 {
		add(red, counted(failed, "error", "errors"))
	}
	if t.service != "" {
		add(plain, t.service)
	}
	if t.start > 0 {
		add(plain, duration(t.end-t.start, ascii))
		add(faint, time.Unix(0, t.start).UTC().Format("15:04:05.000Z"))
	}
	return list
}

// summary returns the facts of a trace in one line.
func (t *Trace) summary() string {
	var texts []string
	for _, f := range t.facts(false) {
		texts = append(texts, f.text)
	}
	return strings.Join(texts, ", ")
}

// heading draws the trace id, and each fact for which the line has room.
func (d *drawing) heading() {
	d.to.put(faint, "trace ")
	d.to.put(bold, d.id.String())
	for _, f := range d.facts(d.to.ASCII) {
		if d.to.cells(f.text)+gap <= d.to.room() {
			d.to.skip(gap)
			d.to.put(f.style, f.text)
		}
	}
	d.to.newline()
}

func counted(n int, one, several string) string {
	return strconv.Itoa(n) + " " + either(n == 1, one, several)
}

const (
	// cellsPerLevel bounds the drawn depth of the tree to one level for each 10 cells of
	// the line. Deeper spans are drawn at the last level.
	cellsPerLevel = 10
	gap           = 2  // cells between two columns
	minBar        = 10 // least width of a time bar, in cells
	maxBar        = 80 // largest width of a time bar, in cells
)

// columns holds the widths of the columns in cells. A column of width 0 is omitted.
type columns struct{ name, kind, status, duration, bar int }

// distribute returns the widths of the columns for the width of the line. Showing the names
// completely is more important than showing the kind. The other columns are more important
// than the part of a name beyond half a line. Each column except name and bar has the width of
// its longest possible text, so that the columns of several traces are aligned.
func (d *drawing) distribute() columns {
	want := columns{kind: len("internal"), status: len("ERROR"), duration: len("99.9ms")}
	for _, r := range d.rows {
		want.name = max(want.name, d.to.cells(d.branch(r))+d.to.cells(nameOf(r)))
	}
	want.name = min(want.name, d.to.Width)
	half := min(want.name, d.to.Width/2)
	for _, try := range []struct {
		columns
		name int
	}{
		{columns{0, want.kind, want.status, want.duration, minBar}, want.name},
		{columns{0, 0, want.status, want.duration, minBar}, half},
		{columns{0, 0, 0, want.duration, minBar}, half},
		{columns{0, 0, want.status, want.duration, 0}, half},
		{columns{0, 0, 0, want.duration, 0}, half},
		{columns{}, 0},
	} {
		got := try.columns
		left := d.to.Width
		for _, column := range []int{got.kind, got.status, got.duration, got.bar} {
			if column > 0 {
				left -= column + gap
			}
		}
		if left < try.name {
			continue
		}
		got.name = min(want.name, left)
		if got.bar > 0 {
			got.bar = min(got.bar+left-got.name, maxBar)
		}
		return got
	}
	return columns{name: d.to.Width}
}

func (d *drawing) row(r row) {
	at := d.columns
	d.to.put(faint, d.branch(r))
	st := plain
	if r.span == nil {
		st = faint
	}
	d.to.putIn(st, nameOf(r), max(at.name-d.to.at, 0))
	if s := r.span; s != nil {
		if at.kind > 0 {
			d.to.skip(gap)
			d.to.putIn(faint, kindText(s.Kind), at.kind)
		}
		st, fill := green, cyan
		if s.Code == codes.Error {
			st, fill = red, red
		}
		if at.status > 0 {
			d.to.skip(gap)
			d.to.putIn(st, statusText(s.Code), at.status)
		}
		if at.duration > 0 {
			d.to.skip(gap)
			d.to.putRight(plain, durationText(s, d.to.ASCII), at.duration)
		}
		if at.bar > 0 && s.Start > 0 {
			d.to.skip(gap)
			d.bar(fill, r.node, at.bar)
		}
	}
	d.to.newline()
}

// rails returns the vertical lines to the left of a row.
func (d *drawing) rails(r row) string {
	var b strings.Builder
	for _, more := range r.rails {
		b.WriteString(either(more, d.sign.rail, d.sign.gap))
	}
	return b.String()
}

// branch returns the tree to the left of a row's name.
func (d *drawing) branch(r row) string {
	switch {
	case r.depth == 0 && r.lost:
		return d.sign.lost
	case r.depth == 0 || d.to.Width < cellsPerLevel:
		return ""
	case r.isFar():
		return d.rails(r) + d.sign.far
	}
	return d.rails(r) + either(r.more, d.sign.branch, d.sign.last)
}

// margin returns the tree to the left of a row's detail lines.
func (d *drawing) margin(r row) string {
	below := either(len(r.children) > 0 && !r.isFar(), d.sign.rail, d.sign.gap)
	if r.depth == 0 || d.to.Width < cellsPerLevel {
		return below
	}
	return d.rails(r) + either(r.more && !r.isFar(), d.sign.rail, d.sign.gap) + below
}

// either returns a if first is true, otherwise b.
func either[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// path draws the spans with the longest parts of the critical path, in one line. It draws
// nothing before Analyse.
func (d *drawing) path() {
	shares := d.shares()
	if len(shares) == 0 {
		return
	}
	d.to.put(faint, "critical path")
	for _, s := range shares {
		name, _ := fit(nameOf(row{node: s.node}), shareCells, d.to.ASCII)
		text := fmt.Sprintf(" %s %d%%", duration(s.nanos, d.to.ASCII), s.percent)
		if d.to.cells(name+text)+gap > d.to.room() {
			break
		}
		d.to.skip(gap)
		d.to.put(plain, name)
		d.to.put(faint, text)
	}
	d.to.newline()
}

// bar draws the span's interval within the trace as a bar, with a resolution of half a cell.
// Its parts on the critical path are thick. Before Analyse, the whole bar is thick.
func (d *drawing) bar(st style, n *node, width int) {
	const none, thin, thick = 0, 1, 2
	steps := 2 * width
	halves := make([]int, steps)
	mark := func(i interval, weight int) {
		from, to := d.place(i, steps)
		for at := from; at < to; at++ {
			halves[at] = weight
		}
	}
	whole := interval{n.span.Start, n.span.End}
	if d.analysis == nil {
		mark(whole, thick)
	} else {
		mark(whole, thin)
		for _, part := range d.analysis.path[n] {
			mark(part, thick)
		}
	}
	first := slices.IndexFunc(halves, func(weight int) bool { return weight != none }) / 2
	var text strings.Builder
	for at := 2 * first; at < steps && halves[at]+halves[at+1] != none; at += 2 {
		text.WriteString(d.sign.bars[3*halves[at]+halves[at+1]])
	}
	d.to.skip(first)
	d.to.put(st, text.String())
}

// place divides the duration of the trace into the given number of steps, and returns the
// range of steps that an interval covers. The range has at least one step.
func (t *Trace) place(i interval, steps int) (from, to int) {
	if t.end <= t.start { // the whole trace has no duration
		if i.to >= i.from {
			return 0, steps
		}
		return 0, 1
	}
	at := func(moment int64) float64 {
		return float64(moment-t.start) / float64(t.end-t.start) * float64(steps)
	}
	from = min(max(int(at(i.from)), 0), steps-1)
	to = from + 1
	if i.to >= i.from {
		to = min(max(int(at(i.to)+0.999), to), steps)
	}
	return from, to
}

// nameOf returns the name of a row's span, or two quotes for an empty name.
func nameOf(r row) string { return cmp.Or(r.name, `""`) }

// kindText returns the kind, or "" if it is unspecified or unknown.
func kindText(kind trace.SpanKind) string {
	if text := kind.String(); text != trace.SpanKindUnspecified.String() {
		return text
	}
	return ""
}

func statusText(code codes.Code) string {
	if code == codes.Unset {
		return ""
	}
	return strings.ToUpper(code.String())
}

func durationText(s *Span, ascii bool) string {
	if !s.timed() {
		return "?"
	}
	return duration(s.End-s.Start, ascii)
}

// duration formats a duration with three significant digits, or in minutes and hours.
func duration(nanos int64, ascii bool) string {
	d := time.Duration(nanos)
	seconds, minutes := d.Round(time.Second), d.Round(time.Minute)
	switch {
	case d < time.Microsecond:
		return strconv.FormatInt(nanos, 10) + "ns"
	case d < 999_500*time.Nanosecond:
		return digits(d, time.Microsecond) + either(ascii, "us", "µs")
	case d < 999_500*time.Microsecond:
		return digits(d, time.Millisecond) + "ms"
	case d < 59_950*time.Millisecond:
		return digits(d, time.Second) + "s"
	case seconds < time.Hour:
		return fmt.Sprintf("%dm%02ds", seconds/time.Minute, seconds%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh%02dm", minutes/time.Hour, minutes%time.Hour/time.Minute)
}

// digits returns d in the unit, with three significant digits.
func digits(d, unit time.Duration) string {
	return strings.TrimSuffix(fmt.Sprintf("%#.3g", float64(d)/float64(unit)), ".")
}
