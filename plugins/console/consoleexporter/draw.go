package consoleexporter

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// drawn is the known part of a trace, in the order of its drawing.
type drawn struct {
	id         trace.TraceID
	start, end int64 // 0: unknown
	service    string
	rows       []row
	continued  bool
}

// layOut arranges the spans of a trace, at least one. before is the part that was drawn
// earlier, or nil.
func layOut(id trace.TraceID, spans []*span, before *history, l look) drawn {
	d := drawn{id: id, continued: before != nil}
	if before != nil {
		d.start, d.end, d.service = before.start, before.end, before.service
	}
	for _, s := range spans {
		if s.timed() {
			d.end = max(d.end, s.end)
			if d.start == 0 || s.start < d.start {
				d.start = s.start
			}
		}
	}
	d.rows = arrange(spans, before, l.width/cellsPerLevel)
	for _, r := range d.rows {
		if d.service == "" && r.span != nil {
			d.service = r.span.service
		}
	}
	return d
}

// draw returns the drawing of a trace. It has a heading, and for each span a row with
// the name in the tree, kind, status, duration and time bar, followed by lines of
// details. It ends with an empty line. No line is longer than the terminal allows, and
// only the drawing's own escape sequences affect the terminal.
func draw(of drawn, l look) []byte {
	d := &drawing{drawn: of, to: &paper{look: l}, sign: l.signs()}
	d.heading()
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
	drawn
	to      *paper
	sign    signs
	columns columns
	shown   inherited // attributes
}

// heading draws the trace id, and further facts as far as the line has room.
func (d *drawing) heading() {
	d.to.put(faint, "trace ")
	d.to.put(bold, d.id.String())
	count, failed := 0, 0
	for _, r := range d.rows {
		if r.span == nil {
			continue
		}
		count++
		if r.span.code == codes.Error {
			failed++
		}
	}
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
		part(plain, duration(d.end-d.start, d.to.ascii))
		part(faint, time.Unix(0, d.start).UTC().Format("15:04:05.000Z"))
	}
	d.to.newline()
}

func counted(n int, one, several string) string {
	return strconv.Itoa(n) + " " + either(n == 1, one, several)
}

const (
	// cellsPerLevel bounds the drawn depth of the tree: a line of 80 cells has 8 levels
	// of levelCells each. Deeper spans are drawn at the last level.
	cellsPerLevel = 10
	levelCells    = 3
	gap           = 2
	minBar        = 10
	maxBar        = 80
)

// columns holds the widths of the columns; 0 means omitted.
type columns struct{ name, kind, status, duration, bar int }

// distribute returns the widths of the columns. Complete names have priority over the kind, and the
// other columns have priority over names longer than half a line. All columns except
// names have the width of their longest possible text, so that traces are aligned.
func (d *drawing) distribute() columns {
	want := columns{kind: len("internal"), status: len("ERROR"), duration: len("99.9ms")}
	for _, r := range d.rows {
		want.name = max(want.name, d.to.cells(d.branch(r))+d.to.cells(nameOf(r)))
	}
	want.name = min(want.name, d.to.width)
	half := min(want.name, d.to.width/2)
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
		left := d.to.width
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
	return columns{name: d.to.width}
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
			d.to.putIn(faint, kindText(s.kind), at.kind)
		}
		st, fill := green, cyan
		if s.code == codes.Error {
			st, fill = red, red
		}
		if at.status > 0 {
			d.to.skip(gap)
			d.to.putIn(st, statusText(s.code), at.status)
		}
		if at.duration > 0 {
			d.to.skip(gap)
			d.to.putRight(plain, durationText(s, d.to.ascii), at.duration)
		}
		if at.bar > 0 && s.start > 0 {
			d.to.skip(gap)
			d.bar(fill, s, at.bar)
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
	case r.depth == 0 || d.to.width < cellsPerLevel:
		return ""
	case r.isFar():
		return d.rails(r) + d.sign.far
	}
	return d.rails(r) + either(r.more, d.sign.branch, d.sign.last)
}

// margin returns the tree to the left of a row's detail lines.
func (d *drawing) margin(r row) string {
	below := either(len(r.children) > 0 && !r.isFar(), d.sign.rail, d.sign.gap)
	if r.depth == 0 || d.to.width < cellsPerLevel {
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

// bar draws the span's time within the trace, with a resolution of half a cell.
func (d *drawing) bar(st style, s *span, width int) {
	steps := 2 * width
	place := func(at int64) float64 {
		if d.end <= d.start {
			return 0
		}
		return float64(at-d.start) / float64(d.end-d.start) * float64(steps)
	}
	from := min(max(int(place(s.start)), 0), steps-1)
	to := from + 1
	if s.timed() {
		to = min(max(int(place(s.end)+0.999), to), steps)
	}
	if d.end <= d.start && s.timed() {
		to = steps // the whole trace has no duration
	}
	text := ""
	if from%2 == 1 {
		text = d.sign.barStart
	}
	whole := to/2 - (from+1)/2
	text += strings.Repeat(d.sign.bar, max(whole, 0))
	if to%2 == 1 && whole >= 0 {
		text += d.sign.barEnd
	}
	d.to.skip(from / 2)
	d.to.put(st, text)
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
	return statusName(code)
}

func durationText(s *span, ascii bool) string {
	if !s.timed() {
		return "?"
	}
	return duration(s.end-s.start, ascii)
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
