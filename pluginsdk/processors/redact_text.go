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
	// hint is what a text must have, all of it, for the pattern to be tried;
	// zero: nothing.
	hint hints
	// re finds the secret: its first group that takes part, else all of it.
	re *regexp.Regexp
	// check tells whether what re found is a secret. Nil: always.
	check func(found []byte) bool
	// find is in place of re: it gives the bounds of the first secret from an
	// index on, or -1.
	find func(text []byte, from int) (start, end int)
}

// builtInPatterns are in the order in which they are applied: what takes a
// whole credential stands before what would take a piece of it.
func builtInPatterns() []pattern { return builtIns }

var builtIns = []pattern{
	{name: "private_key", hint: hintPEM, re: regexp.MustCompile(
		`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)},
	{name: "userinfo", hint: hintAt, re: regexp.MustCompile(
		`://([^/?#\s]+)@|` +
			`://([^\s/?#@:\["'<>]*:[0-9]*[^0-9/?#\s@"'<>][^\s"'<>]*)@|` + // with signs in it that a URL wants encoded
			`//([^\s/?#@:"'<>]*:[^\s/?#@"'<>]+)@|` + // without a scheme
			`([^\s:/@]+:\S*?)@(?:tcp6?|unix)\(|` + // a DSN of Go's MySQL driver
			`\bjdbc:oracle:\w+:([^\s/@:]+/[^\s@"']+)@|` +
			`(?:^|[\s"'=(])([\w.-]+:[^\s:/@"',;]+)@[A-Za-z0-9][\w.-]*:[0-9]{2,5}(?:[/\s"',)?;]|$)`)},
	{name: "bearer", hint: hintBearer, check: isBearer, re: regexp.MustCompile(
		`(?i)\bbearer(?:` + schemeSign + `token)?` + schemeSign + `["']?([a-z0-9._~+/=%-]{4,})`)},
	{name: "bearer", hint: hintBearer, check: isBasic, re: regexp.MustCompile(
		`(?i)\bbasic` + schemeSign + `["']?([a-z0-9+/_-]{4,}={0,2})`)},
	{name: "bearer", hint: hintBearer, re: regexp.MustCompile(
		`(?i)\b(?:negotiate|ntlm)\s{1,4}([a-z0-9+/]{16,}=*)|\bdigest\s{1,4}((?:username|realm|nonce)=[^\r\n]+)`)},
	{name: "jwt", hint: hintJWT, re: regexp.MustCompile(`eyJ[\w-]{4,}\.[\w-]*(?:\.[\w-]*)+`)},
	{name: "token", hint: hintHook, re: regexp.MustCompile(
		`hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{8,})|` +
			`/webhooks/(\d+/[\w-]{16,})|` + // Discord
			`/webhook(?:b2)?/([\w-]{8,}@[\w/-]{16,})|` + // Teams
			`/bot(\d{6,}:[\w-]{20,})`)}, // Telegram
	{name: "token", hint: hintToken, re: regexp.MustCompile(`(?:^|[^A-Za-z0-9])(` + strings.Join([]string{
		`gh[pousr]_[A-Za-z0-9]{16,}`, `github_pat_\w{20,}`, `gl(?:pat|dt|rt|ptt|ft|soat|cbt|agent|imt|ffct)-[\w-]{16,}`,
		`xox[abcdeoprs]-[\w-]{10,}`, `xapp-[\w-]{10,}`, `[prs]k_(?:live|test)_\w{10,}`, `sk-[\w-]{16,}`,
		`AIza[\w-]{30,}`, `ya29\.[\w-]{10,}`, `GOCSPX-[\w-]{20,}`, `npm_\w{20,}`, `hf_\w{20,}`, `pypi-[\w-]{20,}`,
		`do[opr]_v1_\w{20,}`, `SG\.[\w-]{16,}\.[\w-]{16,}`, `hv[bsr]\.[\w-]{20,}`, `dapi[0-9a-f]{32}`,
		`whsec_[\w+/=]{16,}`, `shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}`, `lin_api_\w{20,}`, `dckr_[op]at_[\w-]{20,}`,
		`gsk_\w{20,}`, `r8_\w{20,}`, `glsa_\w{20,}`, `sntr(?:ys|yu)_[\w+/=]{20,}`, `xai-\w{20,}`, `pplx-\w{20,}`,
		`tskey-[a-z]+-[\w-]{8,}`, `NRAK-[A-Z0-9]{20,}`, `pul-[0-9a-f]{40}`, `sq0(?:atp|csp|idp)-[\w-]{20,}`,
		`ATATT3[\w=-]{20,}`, `AGE-SECRET-KEY-1[A-Z0-9]{50,}`,
	}, "|") + `)`)},
	{name: "aws", hint: hintAWS, find: findAWSSecret},
	{name: "aws", hint: hintAWS, re: regexp.MustCompile(
		`(?:^|[^A-Za-z0-9])((?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA|ANVA|AIPA|APKA)[A-Z0-9]{16})(?:[^A-Za-z0-9]|$)`)},
	{name: "command", hint: hintCommand, re: regexp.MustCompile(
		`(?i)\b(?:curl|wget|https?|xh)(?:\.exe)?\s(?:[^|;\n]*?\s)?(?:-[a-z]*u|-a|--user|--proxy-user|--auth)\s{0,8}=?` +
			optionQuote + `([^\s"':]*:[^\s"']+)`)},
	{name: "command", hint: hintCommand, re: regexp.MustCompile(
		`\b(?:sshpass|redis-cli|mongo\w*|ldap\w+|[a-z]+\s[^|;\n]*?\blogin)(?:\.exe)?\s(?:[^|;\n]*?\s)?-[pawk]\s{0,8}=?` +
			optionQuote + `([^\s"'-][^\s"']*)|` +
			`\b(?:mysql\w*|mariadb[\w-]*)(?:\.exe)?\s(?:[^|;\n]*?\s)?-p` + optionQuote + `([^\s"']+)|` +
			`\s-pass(?:in|out)?\s{1,8}["']?pass:([^\s"']+)`)},
	{name: "assignment", hint: hintIdentified, re: regexp.MustCompile(
		`(?i)\bidentified\s+(?:with\s+\S+\s+)?(?:by|as)\s+(?:password\s+|values\s+)?(?:` + sqlText + `|([^\s;,)'"]+))`)},
	{name: "assignment", hint: hintAssign | hintQuote, re: regexp.MustCompile(
		`(?i)pass(?:word|wd)["\x60\]]?\s*(?:\(\s*|\sfor\s+\S+\s*=\s*(?:password\s*\(\s*)?|\s(?:not\s+)?(?:i?like|in)\s*\(?\s*|<>\s*|!=\s*|=\s*\w+\(\s*|\s)` + sqlText)},
	{name: "assignment", hint: hintAssign | hintQuote, re: regexp.MustCompile(
		`(?is)\binsert\s+into\s[^()]*\([^()]*(?:passw|secret|pwd|token|api_?key|credential)[^()]*\)\s*values\s*(\(.*'.*\))`)},
	{name: "assignment", hint: hintAssign, find: findAssigned},
	{name: "email", hint: hintAt, re: regexp.MustCompile(
		`[\pL\pN._%+'-]+@(?:[\pL\pN-]+\.)+\pL{2,}`)},
	{name: "card", hint: hintDigits, find: findCard},
}

// Parts of the patterns.
const (
	schemeSign  = `(?:\s|%20|[+:=]){1,4}`
	optionQuote = `\s{0,8}["']?`
	sqlText     = `(?:'((?:[^'\\]|\\.|'')*)|"((?:[^"\\]|\\.|"")*))`
)

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

// clean tells whether a text may leave as it is. What is too long or no UTF-8
// can not be checked, and so is not.
func (r *redactRules) clean(text []byte) bool {
	return len(text) == 0 || len(text) <= r.maxBytes && utf8.Valid(text) && !r.found(text)
}

// found tells whether a pattern finds a secret in text, which need not be
// UTF-8, or in what it is without its escapes.
func (r *redactRules) found(text []byte) bool {
	for range maxUnescape {
		h := hintsOf(text)
		if r.foundIn(text, h) {
			return true
		}
		if h&hintEscape == 0 {
			return false
		}
		if text = unescape(text); text == nil {
			return false
		}
	}
	return true // encoded over and over: nobody has looked into the rest
}

func (r *redactRules) foundIn(text []byte, h hints) bool {
	if h == 0 && !r.own {
		return false // most texts
	}
	for i := range r.patterns {
		if p := &r.patterns[i]; h&p.hint == p.hint {
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
// without its escapes.
func (r *redactRules) secretsEncoded(p *pattern, text []byte) [][2]int {
	var outer [][]byte // the encoding of text, the encoding of that first
	for range maxUnescape {
		if hintsOf(text)&p.hint == p.hint {
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
