package pywire

import (
	"unicode/utf8"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// text writes a string field, unless s is empty.
func text(w *otlpwire.Writer, num int, s []byte) {
	if len(s) > 0 {
		wholeText(w, num, s)
	}
}

// wholeText writes a string field, even if it is empty. If the text is not valid UTF-8, the Writer
// replaces the wrong bytes.
func wholeText(w *otlpwire.Writer, num int, s []byte) {
	if utf8.Valid(s) {
		w.Content(num, s)
	} else {
		w.Text(num, string(s))
	}
}

// content writes a bytes field, unless b is empty.
func content(w *otlpwire.Writer, num int, b []byte) {
	if len(b) > 0 {
		w.Content(num, b)
	}
}
