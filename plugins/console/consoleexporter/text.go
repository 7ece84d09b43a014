package consoleexporter

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// The texts of a span are not trusted: a name contains a request's path, an attribute a
// caller's header. The functions below keep them from affecting the terminal. Control
// characters, escape sequences, marks that change the direction of writing, invisible
// characters and invalid UTF-8 are escaped (\x1b, \u202e), and no text takes more cells
// than allowed.

// take escapes as much of s as fits into most cells. It returns the text, its width in
// cells, and the number of bytes of s in it.
func take(s string, most int, ascii bool) (text string, cells, n int) {
	var b strings.Builder
	marks := maxMarks // a mark needs a preceding character
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

// fit is like take, but marks a cut text with an ellipsis, or "~" in ASCII.
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

// cellsOf returns the width of s, at most most.
func cellsOf(s string, most int, ascii bool) int {
	_, cells := fit(s, most, ascii)
	return cells
}

// wrap breaks s into lines of at most most cells: at its line ends, at spaces, or else
// anywhere. Text beyond the given number of lines is cut.
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

// class is the behaviour of a character on a terminal.
type class int

const (
	// escaped characters are escaped.
	escaped class = iota
	// single and double characters take one and two cells.
	single
	double
	// mark characters modify the preceding character and take no cell.
	mark
	// unseen characters are omitted.
	unseen
)

// maxMarks bounds the marks of a character. Writing systems need three; more would
// cover the lines above.
const maxMarks = 4

const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
)

// classOf returns the class of r, which was decoded from size bytes. Characters of
// ambiguous width count as a single cell, as in terminals outside East Asia.
func classOf(r rune, size int, ascii bool) class {
	switch {
	case ' ' <= r && r <= '~':
		return single
	case ascii, r == utf8.RuneError && size == 1:
		return escaped
	case unicode.Is(unicode.Variation_Selector, r):
		return unseen // they make some characters wider, depending on the terminal
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

// escape returns r escaped like in Go. piece is its original encoding.
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
