package waterfall

// Look holds the capabilities of a terminal.
type Look struct {
	// Width is the number of cells in a line, at least 1.
	Width int
	// Colour allows SGR sequences. ASCII restricts the output to ASCII.
	Colour, ASCII bool
}

// style is the number in the escape sequence of a terminal that selects a colour or a weight of
// text. Empty means the default. All styles use the sixteen basic colours, which the user's
// theme defines.
type style string

const (
	plain style = ""
	bold  style = "1"
	faint style = "2"
	red   style = "31"
	green style = "32"
	cyan  style = "36"
)

// signs are the symbols of a drawing.
type signs struct {
	rail, gap, branch, last, far, lost string
	// bars are the symbols for one cell of a time bar. The index is three times the weight of
	// the left half of the cell, plus the weight of its right half. A weight is 0 for none, 1
	// for thin and 2 for thick.
	bars                                     [9]string
	fault, hang, event, link, earlier, pause string
}

// boxes are the symbols for a terminal with Unicode, and letters for ASCII. The symbols in the
// first line of each literal are three cells wide, except the last symbol with two. The
// symbols in the second line have one cell, and those in the third line two.
var (
	boxes = signs{
		"│  ", "   ", "├─ ", "└─ ", "┄┄ ", "┄ ",
		[9]string{" ", "╶", "╺", "╴", "─", "╼", "╸", "╾", "━"},
		"✗ ", "  ", "• ", "→ ", "↑ ", "⋯ ",
	}
	letters = signs{
		"|  ", "   ", "|- ", "`- ", "~~ ", "~ ",
		[9]string{" ", "-", "=", "-", "-", "=", "=", "=", "="},
		"x ", "  ", "* ", "> ", "^ ", ". ",
	}
)

func (l Look) signs() signs {
	if l.ASCII {
		return letters
	}
	return boxes
}

// cells returns the width of s in cells, at most the width of a line.
func (l Look) cells(s string) int {
	_, cells := fit(s, l.Width, l.ASCII)
	return cells
}

// paper is the output buffer of a drawing. It cuts lines at Width.
type paper struct {
	Look
	buf []byte
	// at is the column of the next text, counted from 0. written is the end of the text that
	// the line has so far. The method put fills the columns between them with spaces.
	at, written int
}

// room returns the number of free cells in the line.
func (p *paper) room() int { return max(p.Width-p.at, 0) }

// put writes s, cut at the end of the line.
func (p *paper) put(st style, s string) {
	text, cells := fit(s, p.room(), p.ASCII)
	if cells == 0 {
		return
	}
	for ; p.written < p.at; p.written++ {
		p.buf = append(p.buf, ' ')
	}
	if p.Colour && st != plain {
		text = "\x1b[" + string(st) + "m" + text + "\x1b[0m"
	}
	p.buf = append(p.buf, text...)
	p.at += cells
	p.written = p.at
}

// putIn writes s into a column of the given width, and moves to the end of the column.
func (p *paper) putIn(st style, s string, column int) {
	start := p.at
	text, _ := fit(s, column, p.ASCII)
	p.put(st, text)
	p.at = start + column
}

// putRight is like putIn, but aligns s with the right end of the column.
func (p *paper) putRight(st style, s string, column int) {
	start := p.at
	p.at += max(column-p.cells(s), 0)
	p.put(st, s)
	p.at = max(start+column, p.written)
}

func (p *paper) skip(cells int) { p.at += cells }

func (p *paper) newline() {
	p.buf = append(p.buf, '\n')
	p.at, p.written = 0, 0
}
