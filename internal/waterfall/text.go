package waterfall

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// The texts of a span are not trusted: a name contains a request's path, an attribute a
// caller's header. The functions below keep them from affecting the terminal. They escape
// control characters, escape sequences, marks that change the direction of writing,
// invisible characters and invalid UTF-8 (\x1b, \u202e). No text takes more cells than
// allowed.

// take escapes as much from the beginning of s as fits into a number of cells (most). It
// returns the escaped text, its width in cells, and the number of bytes of s that it took.
func take(s string, most int, ascii bool) (text string, cells, n int) {
	var b strings.Builder
	marks := 0 // number of combining marks after the last character
	for n < len(s) {
		r, size := utf8.DecodeRuneInString(s[n:])
		piece, wide := s[n:n+size], cellsOf(r)
		switch {
		case !ascii && unicode.Is(unicode.Variation_Selector, r), marks == maxMarks && wide == 0:
			piece, wide = "", 0 // omitted: in some terminals, a selector makes a character wider
		case !ascii && wide == 0 && b.Len() > 0:
			marks++
		case r == utf8.RuneError && size == 1:
			piece = fmt.Sprintf(`\x%02x`, s[n])
			wide, marks = len(piece), 0
		case ascii && r > '~' || !unicode.IsGraphic(r) || wide == 0: // a combining mark without a preceding character is escaped
			piece = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
			wide, marks = len(piece), 0
		default:
			marks = 0
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

// maxMarks bounds the number of combining marks of one character. Writing systems need three
// marks. A high pile of marks would cover the lines above.
const maxMarks = 4

// cellsOf returns the number of cells of a character. It returns 0 for a combining mark, which
// modifies the preceding character. A character of ambiguous width has one cell, as in
// terminals outside East Asia.
func cellsOf(r rune) int {
	const zeroWidthNonJoiner, zeroWidthJoiner = '\u200c', '\u200d'
	if unicode.In(r, unicode.Mn, unicode.Me) || r == zeroWidthNonJoiner || r == zeroWidthJoiner {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// fit is like take, but ends a text that it cuts with an ellipsis, or with "~" in ASCII.
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

// wrap breaks s into lines of at most a number of cells (most). It breaks at line ends and at
// spaces, and inside a long word. It cuts the text after the given number of lines.
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
