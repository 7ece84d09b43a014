package main

import (
	"encoding/json"
	"io"
	"strings"
	"unicode"
)

// writeJSON prints v as every command with --json does.
func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// textOf is an error's text; empty for none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// printable is a text of somebody else's, on one line and without what a
// terminal would obey.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// printableLines is the same, with its lines kept.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n")
}
