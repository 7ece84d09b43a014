// Package printable makes text of plugins, back ends and files safe to show to operators,
// in logs, on pages and in terminals. It holds two functions and no state.
package printable

import (
	"strings"
	"unicode"
)

// Text returns text for one line of a terminal. Control characters become their
// pictures (U+2400 on), so that no line is forged and no colour is set. Characters
// that are not printed, such as those that turn the direction of writing, and bytes
// that are not UTF-8, become U+FFFD. Tabs stay.
func Text(text string) string { return shown(text, "\t") }

// Lines is Text for text of several lines.
func Lines(text string) string { return shown(text, "\t\n") }

func shown(text, allowed string) string {
	if ascii(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune(allowed, r), unicode.IsPrint(r), unicode.Is(unicode.Zs, r):
			return r
		case r < ' ':
			return '␀' + r
		case r == 0x7f:
			return '␡'
		}
		return unicode.ReplacementChar
	}, text)
}

// ascii reports whether text has only printable ASCII characters, as most texts do.
func ascii(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
