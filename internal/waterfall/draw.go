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

// Trace is the known part of a trace, in the order of its drawing.
type Trace struct {
	id         trace.TraceID
	start, end int64 // first start and last end of all spans; 0: unknown
	service    string
	rows       []row
	continued  bool
	analysis   *analysis // nil before Analyse
}

// LayOut arranges the spans of a trace. There must be at least one. before is the part that
// was drawn earlier, or nil.
func LayOut(id trace.TraceID, spans []*Span, before *History, l Look) Trace {
	d := Trace{id: id, continued: before != nil}
	if before != nil {
		d.start, d.end, d.service = before.start, before.end, before.service
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
	if of.analysis != nil && len(of.analysis.path) > 0 {
		d.path()
	}
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
	shown   inherited // attributes that ancestors show
}

// heading draws the trace id, and further facts if the line has room for them.
func (d *drawing) heading() {
	d.to.put(faint, "trace ")
	d.to.put(bold, d.id.String())
	count, failed := d.count()
	part := func(st style, s string) {
		if s != "" && d.to.cells(s)+2 <= d.to.room() {
			d.to.skip(2)
			d.to.put(st, s)
		}
	}
	if d.continued {
		part(bold, "continued")
	}
	part(plain, counted(count, "span", "spans"))
	if failed > 0 {
		part(red, counted(failed, "error", "errors"))
	}
	part(plain, d.service)
	if d.start > 0 {
		part(plain, duration(d.end-d.start, d.to.ASCII))
		part(faint, time.Unix(0, d.start).UTC().Format("15:04:05.000Z"))
	}
	d.to.newline()
}

// count returns the number of spans in the rows, and of failed spans.
func (t *Trace) count() (spans, failed int) {
	for _, r := range t.rows {
		if r.span == nil {
			continue
		}
		spans++
		if r.span.Code == codes.Error {
			failed++
		}
	}
	return spans, failed
}

func counted(n int, one, several string) string {
	return strconv.Itoa(n) + " " + either(n == 1, one, several)
}

const (
	// cellsPerLevel bounds the drawn depth of the tree to one level for each 10 cells of
	// the line. Deeper spans are drawn at the last level.
	cellsPerLevel = 10
	gap           = 2
	minBar        = 10
	maxBar        = 80
)

// columns holds the widths of the columns; 0 means omitted.
type columns struct{ name, kind, status, duration, bar int }

// distribute returns the widths of the columns. Complete names have priority over the
// kind. The other columns have priority over names that are longer than half a line. All
// columns except name and bar have the width of their longest possible text, so that
// traces are aligned.
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

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// path draws the spans with the longest parts of the critical path, in one line.
func (d *drawing) path() {
	d.to.put(faint, "critical path")
	shares := d.analysis.shares()
	for _, s := range shares[:min(len(shares), shownShares)] {
		name, _ := fit(nameOf(row{node: s.node}), shareCells, d.to.ASCII)
		text := fmt.Sprintf(" %s %d%%", duration(s.nanos, d.to.ASCII), 100*s.nanos/max(d.end-d.start, 1))
		if d.to.cells(name+text)+gap > d.to.room() {
			break
		}
		d.to.skip(gap)
		d.to.put(plain, name)
		d.to.put(faint, text)
	}
	d.to.newline()
}

// shownShares and shareCells bound the line of the critical path.
const (
	shownShares = 8
	shareCells  = 32
)

// bar draws the span's time within the trace, with a resolution of half a cell. Parts on
// the critical path are thick. Without an analysis, the whole bar is thick.
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

// place returns the range of steps that an interval covers, if the trace's time is divided
// into the given number of steps. The range has at least one step.
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
