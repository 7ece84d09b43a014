package launch

import (
	"strings"
	"unicode/utf8"
)

// printable is text for an operator's terminal, whoever shows it: control
// characters are their pictures (U+2400 on), so that no line is forged and no
// colour is set; what turns the direction of writing, and bytes that are no
// UTF-8, are U+FFFD. A tab stays.
func printable(text string) string { return shown(text, "\t") }

// printableLines is the same for a text of several lines.
func printableLines(text string) string { return shown(text, "\t\n") }

func shown(text, allowed string) string {
	if plain(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune(allowed, r):
			return r
		case r < ' ':
			return '␀' + r
		case r == 0x7f:
			return '␡'
		case r < 0xa0 && r > 0x7f, // the control characters of Latin 1, which some terminals obey
			r == '\u061c', r == '\u200e', r == '\u200f', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', // directions
			r == '\u2028', r == '\u2029': // ends of lines and paragraphs
			return utf8.RuneError
		}
		return r // of a byte that is no UTF-8, RuneError
	}, text)
}

// plain tells whether text is of printable ASCII characters alone, as most is.
func plain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
