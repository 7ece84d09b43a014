package processors

import (
	"regexp"
	"strings"
)

// glob is a compiled pattern that a whole text must match. "*" matches any number of
// characters, and "?" matches one character. A backslash makes the next character
// literal. All other characters match themselves, even dots and slashes.
type glob struct {
	re        *regexp.Regexp
	literal   string // the only text that matches, if isLiteral is true
	isLiteral bool
}

// newGlob compiles a pattern. Every text is a valid pattern.
func newGlob(pattern string) *glob {
	expression, literal, isLiteral := parseGlob(pattern)
	return &glob{regexp.MustCompile(`(?s)\A` + expression + `\z`), literal, isLiteral}
}

// matches reports whether the whole text matches the pattern.
func (g *glob) matches(text string) bool {
	if g.isLiteral {
		return text == g.literal
	}
	return g.re.MatchString(text)
}

// parseGlob converts a pattern to a regular expression. If the pattern has no wildcard,
// isLiteral is true, and literal is the only text that matches.
func parseGlob(pattern string) (expression, literal string, isLiteral bool) {
	pattern = strings.ToValidUTF8(pattern, "\uFFFD") // regular expressions must be valid UTF-8
	var re, text strings.Builder
	isLiteral = true
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '*' || c == '?':
			isLiteral = false
			re.WriteString(map[byte]string{'*': ".*", '?': "."}[c])
			continue
		case c == '\\' && i+1 < len(pattern):
			i++
		}
		text.WriteByte(pattern[i])
		re.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
	}
	return re.String(), text.String(), isLiteral
}

// newGlobs compiles a list of patterns into one regular expression, which matches a text
// that matches any of them. It ignores case. For an empty list it returns nil.
func newGlobs(patterns []string) *regexp.Regexp {
	if len(patterns) == 0 {
		return nil
	}
	expressions := make([]string, len(patterns))
	for i, pattern := range patterns {
		expressions[i], _, _ = parseGlob(pattern)
	}
	return regexp.MustCompile(`(?is)\A(?:` + strings.Join(expressions, "|") + `)\z`)
}
