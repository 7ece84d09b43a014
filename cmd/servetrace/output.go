package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// writeJSON writes v as indented JSON. It escapes all characters that may control a
// terminal; encoding/json escapes only the characters below U+0020.
func writeJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	var escaped strings.Builder
	for _, r := range text.String() {
		switch {
		case r == '\n', unicode.IsPrint(r):
			escaped.WriteRune(r)
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&escaped, `\u%04x`, unit)
			}
		}
	}
	_, err := io.WriteString(w, escaped.String())
	return err
}

// textOf returns the text of an error, or "" if err is nil.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// shellWord returns a text as one word for a POSIX shell, in quotes if necessary.
func shellWord(path string) string {
	if path != "" && !strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
