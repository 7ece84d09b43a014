package processors

// glob is a pattern over a whole text: "*" stands for any run of characters,
// the empty one too, "?" for one character, a backslash takes the next
// character as it is, and all others stand for themselves. Dots and slashes are
// characters like any other.
type glob struct {
	tokens []token
	fold   bool // ASCII letters match in either case
	// literal is the text where no token is a wildcard, which is frequent.
	literal   string
	isLiteral bool
}

// A token is a byte to meet, or a wildcard.
type token uint16

const (
	anyRun token = 256 + iota
	anyOne
)

// newGlob compiles a pattern. Every text is one.
func newGlob(pattern string, fold bool) glob {
	g := glob{fold: fold, isLiteral: true}
	var literal []byte
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '*':
			g.isLiteral = false
			if n := len(g.tokens); n == 0 || g.tokens[n-1] != anyRun {
				g.tokens = append(g.tokens, anyRun)
			}
			continue
		case c == '?':
			g.isLiteral = false
			g.tokens = append(g.tokens, anyOne)
			continue
		case c == '\\' && i+1 < len(pattern):
			i++
			c = pattern[i]
		}
		if fold {
			c = lower(c)
		}
		literal = append(literal, c)
		g.tokens = append(g.tokens, token(c))
	}
	g.literal = string(literal)
	return g
}

// matches tells whether g stands for all of text. It takes time in proportion
// to the product of both lengths at worst, and does not allocate.
func matches[T string | []byte](g *glob, text T) bool {
	if g.isLiteral && !g.fold {
		return string(text) == g.literal
	}
	at, in := 0, 0        // in tokens, in text
	star, resume := -1, 0 // the last anyRun met, and where in text it ends so far
	for in < len(text) {
		if at < len(g.tokens) {
			switch t := g.tokens[at]; {
			case t == anyRun:
				star, resume = at, in
				at++
				continue
			case t == anyOne:
				at++
				in = nextRune(text, in)
				continue
			case t == token(text[in]), g.fold && t == token(lower(text[in])):
				at++
				in++
				continue
			}
		}
		if star < 0 {
			return false
		}
		resume++
		at, in = star+1, resume
	}
	for at < len(g.tokens) && g.tokens[at] == anyRun {
		at++
	}
	return at == len(g.tokens)
}

// nextRune is the index after the character at i. Bytes that are no UTF-8 count
// as one each.
func nextRune[T string | []byte](text T, i int) int {
	lead := text[i]
	i++
	if lead < 0xc0 {
		return i
	}
	for end := min(len(text), i+3); i < end && text[i]&0xc0 == 0x80; i++ {
	}
	return i
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// globs is a list of patterns, of which one must match.
type globs []glob

func newGlobs(patterns []string, fold bool) globs {
	list := make(globs, 0, len(patterns))
	for _, p := range patterns {
		list = append(list, newGlob(p, fold))
	}
	return list
}

func anyMatches[T string | []byte](list globs, text T) bool {
	for i := range list {
		if matches(&list[i], text) {
			return true
		}
	}
	return false
}
