package consoleexporter

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// A span's texts come from anywhere: a request's path is in a name, a caller's
// header in an attribute. What is here lets none of it do more on a terminal
// than be read: control characters, escape sequences, marks that turn the
// direction of writing around, invisible characters and broken UTF-8 are written
// out (\x1b, \u202e), and nothing takes more cells than it is given.

// take makes s harmless, as far as it goes into most cells. It gives the text,
// its width in cells, and how many bytes of s are in it.
func take(s string, most int, ascii bool) (text string, cells, n int) {
	var b strings.Builder
	marks := maxMarks // a mark needs something to stand on
	for n < len(s) {
		r, size := utf8.DecodeRuneInString(s[n:])
		piece, wide := s[n:n+size], 1
		switch class := classOf(r, size, ascii); {
		case class == unseen, class == mark && marks >= maxMarks && b.Len() > 0:
			n += size
			continue
		case class == mark && marks < maxMarks:
			wide = 0
			marks++
		case class == double:
			wide, marks = 2, 0
		case class == single:
			marks = 0
		default:
			piece = escape(r, piece)
			wide, marks = len(piece), 0
		}
		if cells+wide > most {
			break
		}
		b.WriteString(piece)
		cells += wide
		n += size
	}
	return b.String(), cells, n
}

// fit is take for a text that has to be cut where it is too long, and shows
// that it was: with an ellipsis, or "~" in ASCII.
func fit(s string, most int, ascii bool) (text string, cells int) {
	text, cells, n := take(s, most, ascii)
	if n == len(s) || most <= 0 {
		return text, cells
	}
	text, cells, _ = take(s, most-1, ascii)
	if ascii {
		return text + "~", cells + 1
	}
	return text + "…", cells + 1
}

// cellsOf is the width of s, up to most.
func cellsOf(s string, most int, ascii bool) int {
	_, cells := fit(s, most, ascii)
	return cells
}

// wrap breaks s into lines of at most most cells, at its line ends, at spaces
// where there are any, else anywhere; what does not go into the number of lines
// is cut.
func wrap(s string, most, lines int, ascii bool) []string {
	var all []string
	for s = strings.Trim(s, "\r\n"); s != ""; {
		one, rest, _ := strings.Cut(s, "\n")
		one = strings.TrimSuffix(one, "\r")
		_, _, n := take(one, most, ascii)
		if n < len(one) {
			if space := strings.LastIndexByte(one[:n], ' '); space > n/2 {
				n = space
			}
			rest = strings.TrimPrefix(s[n:], " ")
		}
		if n == 0 && one != "" || len(all) == lines-1 && rest != "" {
			text, _ := fit(s, most, ascii)
			return append(all, text)
		}
		text, _, _ := take(one[:n], most, ascii)
		all = append(all, text)
		s = rest
	}
	return all
}

// class is what a terminal does with a character.
type class int

const (
	// escaped: it is written out.
	escaped class = iota
	// single and double: it takes one cell, or two.
	single
	double
	// mark: it changes the character before it and takes no cell.
	mark
	// unseen: it is left out.
	unseen
)

// maxMarks is how many marks a character may carry. Writing systems need three;
// more pile up over the lines above.
const maxMarks = 4

const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
)

// classOf gives the class of r, which was decoded from size bytes. Characters
// whose width Unicode calls ambiguous count as one cell, as terminals outside
// East Asia have them.
func classOf(r rune, size int, ascii bool) class {
	switch {
	case ' ' <= r && r <= '~':
		return single
	case ascii, r == utf8.RuneError && size == 1:
		return escaped
	case unicode.Is(unicode.Variation_Selector, r):
		return unseen // they make some characters wider, in some terminals
	case unicode.In(r, unicode.Mn, unicode.Me), r == zeroWidthNonJoiner, r == zeroWidthJoiner:
		return mark
	case !unicode.IsGraphic(r):
		return escaped
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return double
	}
	return single
}

// escape writes r out as Go does. piece is how it was encoded.
func escape(r rune, piece string) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r == utf8.RuneError && len(piece) == 1:
		return fmt.Sprintf(`\x%02x`, piece[0])
	case r < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, r)
	case r <= 0xffff:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
