package consoleexporter

import "strings"

// look is what a terminal can show.
type look struct {
	// width is the number of cells in a line, 1 or more.
	width int
	// colour allows SGR sequences, ascii nothing beyond ASCII.
	colour, ascii bool
}

// style is the parameter of an SGR sequence; empty is the terminal's own. They
// are of the sixteen colours that every terminal has its own idea of.
type style string

const (
	plain style = ""
	bold  style = "1"
	faint style = "2"
	red   style = "31"
	green style = "32"
	cyan  style = "36"
)

// signs are the characters that are not a span's own.
type signs struct {
	rail, gap, branch, last, far, lost string
	bar, barStart, barEnd              string
	fault, hang, event, link, earlier  string
}

// Each of the first line is three cells wide, lost and those of the last line
// two, the others one.
var (
	boxes = signs{
		"│  ", "   ", "├─ ", "└─ ", "┄┄ ", "┄ ",
		"━", "╺", "╸",
		"✗ ", "  ", "• ", "→ ", "↑ ",
	}
	letters = signs{
		"|  ", "   ", "|- ", "`- ", "~~ ", "~ ",
		"=", "=", "=",
		"x ", "  ", "* ", "> ", "^ ",
	}
)

func (l look) signs() signs {
	if l.ascii {
		return letters
	}
	return boxes
}

// cells is the width of s, up to that of a line.
func (l look) cells(s string) int { return cellsOf(s, l.width, l.ascii) }

// paper is where lines are written, none of them longer than look.width.
type paper struct {
	look
	buf []byte
	// at is the column where the next text goes, counted from 0; it may be
	// ahead of what is written, which is spaces then.
	at, written int
}

// room is how many cells are left in the line.
func (p *paper) room() int { return max(p.width-p.at, 0) }

// put writes s, cut where the line ends.
func (p *paper) put(st style, s string) {
	text, cells := fit(s, p.room(), p.ascii)
	if cells == 0 {
		return
	}
	for ; p.written < p.at; p.written++ {
		p.buf = append(p.buf, ' ')
	}
	if p.colour && st != plain {
		text = "\x1b[" + string(st) + "m" + text + "\x1b[0m"
	}
	p.buf = append(p.buf, text...)
	p.at += cells
	p.written = p.at
}

// putIn writes s into a column of that width and moves behind it.
func (p *paper) putIn(st style, s string, column int) {
	start := p.at
	text, _ := fit(s, column, p.ascii)
	p.put(st, text)
	p.at = start + column
}

// putRight is putIn with the spaces in front.
func (p *paper) putRight(st style, s string, column int) {
	start := p.at
	p.at += max(column-p.cells(s), 0)
	p.put(st, s)
	p.at = max(start+column, p.written)
}

// skip moves on by some cells.
func (p *paper) skip(cells int) { p.at += cells }

// newline ends the line.
func (p *paper) newline() {
	p.buf = append(p.buf, '\n')
	p.at, p.written = 0, 0
}

// repeat is n times s, for n of 0 and more.
func repeat(s string, n int) string { return strings.Repeat(s, max(n, 0)) }
