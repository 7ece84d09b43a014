// Package printable makes text of plugins, back ends and files safe to show to operators, in logs,
// on pages and in terminals.
package printable

import (
	"strings"
	"unicode"
)

// Text returns text in a form that is safe in one line of a terminal. Control characters become
// visible symbols (U+2400 and following), so that the text cannot forge a line or set a colour.
// Other unprintable characters, such as marks that change the direction of writing, become
// U+FFFD, and so do bytes that are not UTF-8. Tabs stay.
func Text(text string) string { return shown(text, "\t") }

// Lines is like Text, for text of several lines. Line breaks stay.
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
