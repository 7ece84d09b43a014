package processors

import (
	"bytes"
	"encoding/base64"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A pattern finds secrets of one form in a text.
type pattern struct {
	name string
	// hint is what a text must have for the pattern to be tried; zero: nothing.
	hint hints
	// re finds the secret: its first group that takes part, else all of it.
	re *regexp.Regexp
	// check tells whether what re found is a secret. Nil: always.
	check func(found []byte) bool
	// find is in place of re: it gives the bounds of the first secret from an
	// index on, or -1.
	find func(text []byte, from int) (start, end int)
}

// The signs by which a text shows, in one cheap pass, which patterns are worth
// a try. They are necessary for a match, never sufficient.
type hints uint16

const (
	hintAt     hints = 1 << iota // "@" or "%40"
	hintDigits                   // as many digits as a card number has
	hintAssign                   // "=" or ":" behind a telling word
	hintBearer                   // "bearer" or "basic"
	hintJWT                      // "eyJ"
	hintToken                    // the prefix of an API token
	hintAWS                      // that of an AWS key id
	hintPEM                      // "-----BEGIN"
)

// builtInPatterns are in the order in which they are applied: what takes a
// whole credential stands before what would take a piece of it.
func builtInPatterns() []pattern { return builtIns }

var builtIns = []pattern{
	{name: "private_key", hint: hintPEM, re: regexp.MustCompile(
		`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)},
	{name: "userinfo", hint: hintAt, re: regexp.MustCompile(
		`://([^/?#\s]+)@|([^\s:/@]+:\S*?)@(?:tcp6?|unix)\(`)}, // the second is a DSN of Go's MySQL driver
	{name: "bearer", hint: hintBearer, check: isBearer, re: regexp.MustCompile(
		`(?i)\bbearer(?:` + schemeSign + `token)?` + schemeSign + `["']?([a-z0-9._~+/=%-]{4,})`)},
	{name: "bearer", hint: hintBearer, check: isBasic, re: regexp.MustCompile(
		`(?i)\bbasic` + schemeSign + `["']?([a-z0-9+/_-]{4,}={0,2})`)},
	{name: "jwt", hint: hintJWT, re: regexp.MustCompile(`eyJ[\w-]{4,}\.[\w-]*(?:\.[\w-]*)+`)},
	{name: "token", hint: hintToken, re: regexp.MustCompile(`(?:^|[^A-Za-z0-9])(` + strings.Join([]string{
		`gh[pousr]_[A-Za-z0-9]{16,}`, `github_pat_\w{20,}`, `gl(?:pat|dt|rt|ptt|ft|soat|cbt|agent|imt|ffct)-[\w-]{16,}`,
		`xox[abcdeoprs]-[\w-]{10,}`, `xapp-[\w-]{10,}`, `[prs]k_(?:live|test)_\w{10,}`, `sk-[\w-]{16,}`,
		`AIza[\w-]{30,}`, `ya29\.[\w-]{10,}`, `npm_\w{20,}`, `hf_\w{20,}`, `pypi-[\w-]{20,}`, `do[opr]_v1_\w{20,}`,
		`SG\.[\w-]{16,}\.[\w-]{16,}`, `hv[bsr]\.[\w-]{20,}`, `dapi[0-9a-f]{32}`,
	}, "|") + `)`)},
	{name: "aws", hint: hintAWS, re: regexp.MustCompile(
		`(?:^|[^A-Za-z0-9])((?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA|ANVA|AIPA|APKA)[A-Z0-9]{16})(?:[^A-Za-z0-9]|$)`)},
	{name: "assignment", hint: hintAssign, re: regexp.MustCompile(
		`(?i)(?:authorization|cookie)` + assignSign + `(?:` + quotedValue + `|([^\r\n]+))`)},
	{name: "assignment", hint: hintAssign, re: regexp.MustCompile(
		`(?i)(?:(?:` + assignWords + `)` + assignSign + `|token` + assignQuote + `\s{0,8}(?:=>?|%3d)\s{0,8}|["']token\\*["']\s{0,8}:\s{0,8})(?:` +
			quotedValue + `|([^\s&;]+))`)},
	{name: "email", hint: hintAt, re: regexp.MustCompile(
		`[\pL\pN._%+'-]+(?:@|%40)(?:[\pL\pN-]+\.)+\pL{2,}`)},
	{name: "card", hint: hintDigits, find: findCard},
}

// Parts of the patterns for credentials and for "password=…". A value that opens
// with a quote or a bracket ends with it; where it does not end, because the
// text was cut, it is all that follows.
const (
	schemeSign  = `(?:\s|%20|[+:=]){1,4}`
	assignWords = `password|passwd|passphrase|pwd|secret|secret[_-]?key|api[_-]?key|access[_-]?key|account[_-]?key|` +
		`private[_-]?key|(?:access|auth|refresh|id|session|security)[_-]?token|session[_-]?id|credentials?|signature|[?&]sig`
	assignQuote = `\\*["']?(?:\[?\])?` // also "user[password]=…"
	assignSign  = assignQuote + `\s{0,8}(?:=>|:=|[=:]|%3[ad])\s{0,8}`
	quotedValue = `\\+"(?s:(.*?)\\+")|"(?s:((?:[^"\\]|\\.)*)")|'(?s:((?:[^'\\]|\\.)*)')|` +
		`\\*["'](?s:(.+))|([\[{][^\]}]*[\]}]?)`
)

// assignEnds are the ends of all words of the two patterns, for the hint.
var assignEnds = []string{
	"password", "passwd", "passphrase", "pwd", "secret", "key", "token", "id", "credential", "credentials",
	"signature", "sig", "authorization", "cookie",
}

// tokenStarts are, by the sign that ends it, the prefixes that hintToken knows.
var tokenStarts = map[byte][]string{
	'_': {"ghp", "gho", "ghu", "ghs", "ghr", "github_pat", "k_live", "k_test", "npm", "hf", "o_v1", "p_v1", "r_v1"},
	'-': {
		"xapp", "sk", "pypi", "glpat", "gldt", "glrt", "glptt", "glft", "glsoat", "glcbt", "glagent", "glimt", "glffct",
		"xoxa", "xoxb", "xoxc", "xoxd", "xoxe", "xoxo", "xoxp", "xoxr", "xoxs",
	},
	'.': {"ya29", "SG", "hvb", "hvs", "hvr"},
}

// tokenTails has, for each last byte of these prefixes, the bytes before it: two
// bytes tell most texts apart from all of them.
var tokenTails = func() (tails [256]string) {
	for _, starts := range tokenStarts {
		for _, s := range starts {
			tails[s[len(s)-1]] += s[len(s)-2 : len(s)-1]
		}
	}
	return tails
}()

// isBearer tells a credential from prose about credentials.
func isBearer(found []byte) bool {
	switch strings.ToLower(string(found)) {
	case "token", "tokens", "auth", "authentication", "authorization", "scheme", "realm", "header", "headers",
		"error", "format", "type", "credential", "credentials", "required", "missing", "invalid", "expired", "from",
		"found", "must", "provided", "rejected", "revoked", "with":
		return false
	}
	return true
}

// isBasic tells whether something is user and password in base64.
func isBasic(found []byte) bool {
	trimmed := bytes.TrimRight(found, "=")
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if plain, err := encoding.DecodeString(string(trimmed)); err == nil && bytes.ContainsRune(plain, ':') {
			return true
		}
	}
	return false
}

// interesting are the bytes at which hintsOf looks closer.
var interesting = func() (table [256]bool) {
	for _, c := range []byte("@%=:_-.bBedA0123456789") {
		table[c] = true
	}
	return table
}()

// hintsOf goes through a text once.
func hintsOf(text []byte) hints {
	var h hints
	digits := 0
	for i, c := range text {
		if !interesting[c] {
			continue
		}
		rest := text[i:]
		switch c {
		case '@':
			h |= hintAt
		case '%':
			if len(rest) >= 3 && rest[1] == '4' && rest[2] == '0' {
				h |= hintAt
			} else if len(rest) >= 3 && rest[1] == '3' && tells(text[:i]) {
				h |= hintAssign
			}
		case '=', ':':
			if h&hintAssign == 0 && tells(text[:i]) {
				h |= hintAssign
			}
		case '_', '-', '.':
			if h&hintToken == 0 && i >= 2 && strings.IndexByte(tokenTails[text[i-1]], text[i-2]) >= 0 &&
				endsInAny(text[:i], tokenStarts[c]) {
				h |= hintToken
			}
			if c == '-' && h&hintPEM == 0 && bytes.HasPrefix(rest, []byte("-----BEGIN")) {
				h |= hintPEM
			}
		case 'b', 'B':
			if foldPrefix(rest, "bearer") || foldPrefix(rest, "basic") {
				h |= hintBearer
			}
		case 'e':
			if len(rest) >= 3 && rest[1] == 'y' && rest[2] == 'J' {
				h |= hintJWT
			}
		case 'd':
			if bytes.HasPrefix(rest, []byte("dapi")) {
				h |= hintToken
			}
		case 'A':
			if len(rest) >= 4 && (rest[3] == 'A' || rest[3] == 'a') {
				h |= hintAWS | hintToken // or Google's AIza
			}
		default:
			digits++
		}
	}
	if digits >= fewestCardDigits {
		h |= hintDigits
	}
	return h
}

// tells tells whether a text ends in a word behind which a secret may be
// assigned, and perhaps quotes and spaces.
func tells(text []byte) bool {
	text = bytes.TrimRight(text, " \t\r\n\f")
	text = bytes.TrimRight(text, `\"'[]`)
	for _, word := range assignEnds {
		if len(text) >= len(word) && foldPrefix(text[len(text)-len(word):], word) {
			return true
		}
	}
	return false
}

// foldPrefix compares without regard to the case of ASCII letters. prefix is in
// lower case.
func foldPrefix(text []byte, prefix string) bool {
	if len(text) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if lower(text[i]) != prefix[i] {
			return false
		}
	}
	return true
}

func endsInAny(text []byte, ends []string) bool {
	for _, end := range ends {
		if len(text) >= len(end) && string(text[len(text)-len(end):]) == end {
			return true
		}
	}
	return false
}

// clean tells whether a text may leave as it is. What is too long or no UTF-8
// can not be checked, and so is not.
func (r *redactRules) clean(text []byte) bool {
	return len(text) == 0 || len(text) <= r.maxBytes && utf8.Valid(text) && !r.found(text)
}

// found tells whether a pattern finds a secret in text, which need not be
// UTF-8, or in what it is without percent-encoding.
func (r *redactRules) found(text []byte) bool {
	for range maxUnescape {
		if r.foundIn(text) {
			return true
		}
		if text = unescape(text); text == nil {
			return false
		}
	}
	return true // encoded over and over: nobody has looked into the rest
}

func (r *redactRules) foundIn(text []byte) bool {
	h := hintsOf(text)
	for i := range r.patterns {
		if p := &r.patterns[i]; p.hint == 0 || h&p.hint != 0 {
			if p.re != nil && !p.re.Match(text) {
				continue // without an allocation
			}
			if len(r.secrets(p, text)) > 0 {
				return true
			}
		}
	}
	return false
}

// secrets gives the bounds of what a pattern finds and nobody allows, in order,
// none empty, none overlapping.
func (r *redactRules) secrets(p *pattern, text []byte) [][2]int {
	var found [][2]int
	add := func(start, end int) {
		if start < end && (p.check == nil || p.check(text[start:end])) &&
			!isMark(text, start, end) && !r.allows(text[start:end]) {
			found = append(found, [2]int{start, end})
		}
	}
	if p.find != nil {
		for start, end := p.find(text, 0); start >= 0; start, end = p.find(text, end) {
			add(start, end)
		}
		return found
	}
	for _, m := range p.re.FindAllSubmatchIndex(text, -1) {
		start, end := m[0], m[1]
		for group := 2; group < len(m); group += 2 {
			if m[group] >= 0 {
				start, end = m[group], m[group+1]
				break
			}
		}
		add(start, end)
	}
	return found
}

func (r *redactRules) allows(found []byte) bool {
	return slices.ContainsFunc(r.allowed, func(re *regexp.Regexp) bool { return re.Match(found) })
}

// isMark tells whether a piece of text lies within a mark, so that a pattern
// that finds the mark itself does not go round for ever.
func isMark(text []byte, start, end int) bool {
	if end-start > len(Redacted) {
		return false
	}
	from := max(0, end-len(Redacted))
	at := bytes.Index(text[from:min(len(text), start+len(Redacted))], []byte(Redacted))
	return at >= 0 && from+at <= start && end <= from+at+len(Redacted)
}

// redactText gives a text with a mark in place of each secret. Its result is
// clean, or the mark alone.
func (r *redactRules) redactText(text []byte) string {
	if len(text) > r.maxBytes || !utf8.Valid(text) {
		return Redacted
	}
	// What one pattern leaves may be something to another, seldom more than
	// once. A text that does not come to rest is taken out whole.
	const rounds = 4
	for range rounds {
		changed := false
		for i := range r.patterns {
			if secrets := r.secretsEncoded(&r.patterns[i], text); len(secrets) > 0 {
				text, changed = replaced(text, secrets), true
			}
		}
		if !changed {
			break
		}
	}
	if r.found(text) {
		return Redacted
	}
	return string(text)
}

// secretsEncoded is secrets, and where text has none, those in what it is
// without percent-encoding.
func (r *redactRules) secretsEncoded(p *pattern, text []byte) [][2]int {
	var outer [][]byte // the encoding of text, the encoding of that first
	for range maxUnescape {
		if p.hint == 0 || hintsOf(text)&p.hint != 0 {
			if secrets := r.secrets(p, text); len(secrets) > 0 {
				for _, encoded := range slices.Backward(outer) {
					encodedBounds(encoded, secrets)
				}
				return secrets
			}
		}
		outer = append(outer, text)
		if text = unescape(text); text == nil {
			break
		}
	}
	return nil
}

func replaced(text []byte, secrets [][2]int) []byte {
	out := make([]byte, 0, len(text))
	from := 0
	for _, s := range secrets {
		out = append(append(out, text[from:s[0]]...), Redacted...)
		from = s[1]
	}
	return append(out, text[from:]...)
}

// leastCard is the least number with as many digits as a card has.
const leastCard = 1e12

// cleanInt is clean for a number's decimal text. It does not allocate.
func (r *redactRules) cleanInt(n int64) bool {
	if !r.own && n > -leastCard && n < leastCard {
		return true
	}
	var buf [24]byte
	return !r.found(strconv.AppendInt(buf[:0], n, 10))
}

// cleanFloat is cleanInt for floats, which is what JSON makes of numbers.
func (r *redactRules) cleanFloat(n float64) bool {
	const most = 1e20
	if math.IsNaN(n) || math.IsInf(n, 0) || !r.own && (n < leastCard || n > most) {
		return true
	}
	var buf [32]byte
	return !r.found(appendFloat(buf[:0], n))
}

// appendFloat writes a number as people write it, where that is not too long.
func appendFloat(dst []byte, n float64) []byte {
	format := byte('f')
	if abs := math.Abs(n); abs >= 1e21 || abs != 0 && abs < 1e-6 {
		format = 'g'
	}
	return strconv.AppendFloat(dst, n, format, -1, 64)
}
