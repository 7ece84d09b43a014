package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRedactDocument(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"none", "", ""},
		{"JSON", `{"url": "https://hush", "port": 1, "on": true, "off": null}`, "url: <12 bytes>\nport: 1\non: true\noff: null\n"},
		{"kinds", "a: hush\nb: 'hush'\nc: \"12\"\nd: 12\ne: 0x1F\nf: 1.5\ng: .inf\nh: true\ni: ~\nj: yes\n", "a: <4 bytes>\nb: <4 bytes>\nc: <2 bytes>\nd: 12\ne: 0x1F\nf: 1.5\ng: .inf\nh: true\ni: ~\nj: <3 bytes>\n"},
		{"blocks", "a: |\n  hush\n  hush\nb: >-\n  hush\n", "a: <10 bytes>\nb: <4 bytes>\n"},
		{"comments", "# hush\na: 1 # hush\n# hush\n", "a: 1\n"},
		{"comment of a key", "a:\n  # hush\n  b: 1\n", "a:\n  b: 1\n"},
		{"time", "at: 2026-01-02\n", "at: <10 bytes>\n"},
		{"one byte", "a: x\n", "a: <1 byte>\n"},
		{"empty", "a: ''\n", "a: <0 bytes>\n"},
		{"a tag that lies", "a: !!int hush\nb: !!bool hush\nc: !hush hush\nd: !!binary aHVzaA==\n", "a: <4 bytes>\nb: <4 bytes>\nc: <4 bytes>\nd: <8 bytes>\n"},
		{"a tag of anything", "a: !hush [1]\nb: !hush {c: 1}\n!hush d: 1\n", "a:\n- 1\nb:\n  c: 1\nd: 1\n"},
		{"a quoted number with a tag", "a: !!int \"12\"\n", "a: <2 bytes>\n"},
		{"alias", "a: &x hush\nb: *x\nc: &y {k: hush}\nd:\n  <<: *y\n", "a: &x <4 bytes>\nb: *x\nc: &y\n  k: <4 bytes>\nd:\n  <<: *y\n"},
		{"list", "- hush\n- [hush, 1]\n", "- <4 bytes>\n- - <4 bytes>\n  - 1\n"},
		{"a key that is no word", "? {hush: hush}\n: 1\n? [hush]\n: 2\n", "? hush: <4 bytes>\n: 1\n? - <4 bytes>\n: 2\n"},
		{"a key of two lines", "? |\n  hush\n  hush\n: 1\n\"hush\\nhush\": 2\n", "<10 bytes>: 1\n<9 bytes>: 2\n"},
		{"several", "a: hush\n---\nb: hush\n", "# <20 bytes> that are not one document in YAML or JSON\n"},
		{"a text alone", "hush", "<4 bytes>\n"},
		{"broken", "a: [hush", "# <8 bytes> that are not one document in YAML or JSON\n"},
		{"broken behind", "a: hush\n---\n: : [hush", "# <21 bytes> that are not one document in YAML or JSON\n"},
		{"no alias", "a: *hush", "# <8 bytes> that are not one document in YAML or JSON\n"},
		{"no text", "\xff\xfe\xfd", "# <3 bytes> that are not one document in YAML or JSON\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, redactDocument([]byte(c.in))); diff != "" {
				t.Errorf("redacted (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzRedactDocument hides a word in documents: as a value it never comes out.
func FuzzRedactDocument(f *testing.F) {
	const hush = "Xhush4711X"
	f.Add("a: %s\n")
	f.Add("a: &b [%s, \"%s\", '%s']\nc: *b\n")
	f.Add("a: |\n  %s\n# %s\nb: !!int %s # %s\n")
	f.Add("{\"a\": {\"b\": \"%s\"}}")
	f.Add("? [%s]\n: - %s\n  - !x %s\n")
	f.Add("? 000\n\n %s")
	f.Fuzz(func(t *testing.T, form string) {
		if !strings.Contains(form, "%s") || strings.Contains(form, "Xhush") {
			t.Skip()
		}
		got := redactDocument([]byte(strings.ReplaceAll(form, "%s", hush)))
		for line := range strings.Lines(got) {
			// Keys, anchors and aliases are names, and stay.
			if at := strings.LastIndex(line, hush); at >= 0 && !isName(line, at, at+len(hush)) {
				t.Errorf("%q gives %q", form, got)
			}
		}
	})
}

// isName reports whether the word from at to end of a line of YAML is part of a key, or
// of the name of an anchor.
func isName(line string, at, end int) bool {
	before := strings.LastIndexAny(line[:at], " \t,[{")
	return strings.Contains(line[end:], ":") || strings.HasPrefix(strings.TrimLeft(line, "- "), "?") ||
		before+1 < len(line) && strings.ContainsRune("&*", rune(line[before+1]))
}
