package processors

import (
	"path"
	"strings"
	"testing"
)

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		fold, want    bool
	}{
		{"", "", false, true}, {"", "a", false, false}, {"a", "", false, false},
		{"GET /health", "GET /health", false, true}, {"GET /health", "GET /healthz", false, false},
		{"GET /health*", "GET /healthz", false, true}, {"*", "", false, true}, {"*", "any.thing/at all", false, true},
		{"a*b*c", "a/b/b/c", false, true}, {"a*b*c", "a/b/b/cd", false, false}, {"**a", "bba", false, true},
		{"?", "", false, false}, {"?", "é", false, true}, {"??", "é", false, false}, {"a?c", "a世c", false, true}, {"?", "\xff", false, true},
		{`\*`, "*", false, true}, {`\*`, "a", false, false}, {`a\?`, "a?", false, true}, {`\`, `\`, false, true}, {`a\\`, `a\`, false, true},
		{"*Password*", "user.pASSWORD.x", true, true}, {"a", "A", false, false}, {"A", "a", true, true}, {"É", "é", true, true}, {"a\xff", "a\uFFFD", false, true},
	} {
		got := newGlob(c.pattern).matches(c.text)
		if c.fold {
			got = newGlobs([]string{"other", c.pattern}).MatchString(c.text)
		}
		if got != c.want {
			t.Errorf("%q matches %q (fold %v): %v, want %v", c.pattern, c.text, c.fold, got, c.want)
		}
	}
}

// FuzzGlob compares with path.Match, which differs for slashes and classes only.
func FuzzGlob(f *testing.F) {
	f.Add("GET /health*", "GET /healthz")
	f.Add("a*?b", "aéb")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if strings.ContainsAny(pattern+text, "/[\\") || strings.ToValidUTF8(pattern+text, "") != pattern+text {
			return
		}
		want, err := path.Match(pattern, text)
		if err != nil {
			return
		}
		if got := newGlob(pattern).matches(text); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, text, got, want)
		}
	})
}
