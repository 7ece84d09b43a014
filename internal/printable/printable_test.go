package printable_test

import (
	"testing"

	"github.com/servetrace/servetrace/internal/printable"
)

func TestText(t *testing.T) {
	for _, test := range []struct{ text, want, lines string }{
		{"plain", "plain", "plain"},
		{"tab\tand größer\u00a0日本", "tab\tand größer\u00a0日本", "tab\tand größer\u00a0日本"},
		{"two\nlines\r", "two␊lines␍", "two\nlines␍"},
		{"\x1b[31mred\x07\x7f", "␛[31mred␇␡", "␛[31mred␇␡"},
		{"\x9b\u009b\u202e\u2028\u200b", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"},
	} {
		if got := printable.Text(test.text); got != test.want {
			t.Errorf("Text(%q) = %q, want %q", test.text, got, test.want)
		}
		if got := printable.Lines(test.text); got != test.lines {
			t.Errorf("Lines(%q) = %q, want %q", test.text, got, test.lines)
		}
	}
}
