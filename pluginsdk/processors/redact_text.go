package processors

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
)

type pattern struct {
	rule string
	re   *regexp.Regexp
	// whole reports that the whole match is the secret. Otherwise the secret is the last
	// group of the expression that has matched.
	whole bool
	// named reports that the first group is a name, and that a value follows after the
	// match. The value is a secret if the name matches a glob for blocked keys.
	named bool
	// sign and chars save time: a text is searched only if it contains the text sign, and at
	// least one of the characters in chars. If sign or chars is empty, it is not checked.
	sign, chars string
	// least is the length of the shortest match, in bytes. A shorter text is not searched,
	// to save time.
	least int
	// valid reports whether text[start:end], the candidate in a match, is a secret. nil
	// means that every candidate is a secret.
	valid func(text string, start, end int) bool
}

// headers matches HTTP headers that hold credentials. The value is in quotes together
// with the name, or in quotes by itself, or it is the rest of the line.
var headers = func() *regexp.Regexp {
	const name = `(?:authorization|(?:set-)?cookie)`
	return regexp.MustCompile(`(?i)` +
		`"` + name + `[ \t]*[:=][ \t]*([^"\s\[][^"\r\n]*)"(?:[\s,)\]}]|$)|` +
		`'` + name + `[ \t]*[:=][ \t]*([^'\s\[][^'\r\n]*)'(?:[\s,)\]}]|$)|` +
		`\b` + name + `["']?[ \t]*[:=][ \t]*(?:"((?:[^"\\\r\n]|\\.)+)|'((?:[^'\\\r\n]|\\.)+)|([^\s"'\[][^\r\n]*))`)
}()

// patterns are the built-in patterns for secrets in texts, in the order in which they are
// applied.
var patterns = append(tokenPatterns(), []pattern{
	{rule: "private_key", sign: "PRIVATE KEY", whole: true, re: regexp.MustCompile(
		`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)},
	{rule: "userinfo", sign: "@", re: regexp.MustCompile(`://([^/?#\s"<>]+)@`)},
	{rule: "bearer", sign: " ", least: 11, valid: hasDigit, re: regexp.MustCompile(`(?i)\bbearer:? +([a-z0-9._~+/=-]{4,})`)},
	{rule: "bearer", sign: " ", least: 10, valid: isBasic, re: regexp.MustCompile(`(?i)\bbasic +([a-z0-9+/]{4,}={0,2})`)},
	{rule: "token", sign: "eyJ", re: regexp.MustCompile(`(?:^|[^A-Za-z0-9])(eyJ[\w-]{4,}\.[\w-]*(?:\.[\w-]*)+)`)},
	{rule: "token", sign: "hooks.slack.com/", re: regexp.MustCompile(`hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{8,})`)},
	{rule: "token", sign: "/webhooks/", re: regexp.MustCompile(`/webhooks/(\d+/[\w-]{16,})`)},            // webhooks of Discord
	{rule: "token", sign: "/webhook", re: regexp.MustCompile(`/webhook(?:b2)?/([\w-]{8,}@[\w/-]{16,})`)}, // webhooks of Microsoft Teams
	{rule: "token", sign: "/bot", re: regexp.MustCompile(`/bot(\d{6,}:[\w-]{20,})`)},                     // bots of Telegram
	{rule: "assignment", chars: "=:", re: headers},
	{rule: "assignment", chars: "=:", named: true, re: regexp.MustCompile(`([A-Za-z_][\w.\[\]-]*)(?:["']?\s{0,4}(?::=|=>|=)\s{0,4}|["']\s{0,4}:\s{0,4}|:\s{1,4})`)},
	{rule: "email", sign: "@", whole: true, re: regexp.MustCompile(`[\pL\pN._%+'-]+@(?:[\pL\pN-]+\.)+\pL{2,}`)},
	{rule: "card", chars: "0123456789", least: 13, whole: true, valid: isCard, re: regexp.MustCompile(
		`\b(?:\d{13,19}|(?:\d{4}[ -]){3}\d{4}|\d{4}[ -]\d{6}[ -]\d{4,5})\b`)},
}...)

// assigned matches the value after the name in an assignment: a text in quotes, possibly
// without the closing quote, or a word.
var assigned = regexp.MustCompile(`^(?:"((?:[^"\\]|\\(?s:.))+)|'((?:[^'\\]|\\(?s:.))+)|([^\s&;,"'<>{}()\[\]?$:][^\s&;,"'<>{}()\[\]]*))`)

// tokens lists the forms of API tokens as regular expressions. Each token contains the
// text sign, which is searched first because that is faster.
var tokens = []struct{ sign, form string }{
	{"gh", `gh[pousr]_[A-Za-z0-9]{16,}`}, {"github_pat_", `github_pat_\w{20,}`},
	{"gl", `gl(?:pat|dt|rt|ptt|ft|soat|cbt|agent|imt|ffct)-[\w-]{16,}`}, {"xox", `xox[abcdeoprs]-[\w-]{10,}`},
	{"xapp-", `xapp-[\w-]{10,}`}, {"k_", `[prs]k_(?:live|test)_\w{10,}`}, {"sk-", `sk-[\w-]{16,}`}, {"AIza", `AIza[\w-]{30,}`},
	{"ya29.", `ya29\.[\w-]{10,}`}, {"GOCSPX-", `GOCSPX-[\w-]{20,}`}, {"npm_", `npm_\w{20,}`}, {"hf_", `hf_\w{20,}`},
	{"pypi-", `pypi-[\w-]{20,}`}, {"_v1_", `do[opr]_v1_\w{20,}`}, {"SG.", `SG\.[\w-]{16,}\.[\w-]{16,}`},
	{"hv", `hv[bsr]\.[\w-]{20,}`}, {"dapi", `dapi[0-9a-f]{32}`}, {"whsec_", `whsec_[\w+/=]{16,}`},
	{"shp", `shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}`}, {"lin_api_", `lin_api_\w{20,}`}, {"dckr_", `dckr_[op]at_[\w-]{20,}`},
	{"gsk_", `gsk_\w{20,}`}, {"r8_", `r8_\w{20,}`}, {"glsa_", `glsa_\w{20,}`}, {"sntry", `sntr(?:ys|yu)_[\w+/=]{20,}`},
	{"xai-", `xai-\w{20,}`}, {"pplx-", `pplx-\w{20,}`}, {"tskey-", `tskey-[a-z]+-[\w-]{8,}`}, {"NRAK-", `NRAK-[A-Z0-9]{20,}`},
	{"pul-", `pul-[0-9a-f]{40}`}, {"sq0", `sq0(?:atp|csp|idp)-[\w-]{20,}`}, {"ATATT3", `ATATT3[\w=-]{20,}`},
	{"AGE-SECRET-KEY-1", `AGE-SECRET-KEY-1[A-Z0-9]{50,}`},
	{"A", `A(?:KIA|SIA|BIA|CCA|ROA|IDA|GPA|NPA|NVA|IPA|PKA)[A-Z0-9]{16}\b`},
}

// tokenPatterns returns a pattern for each form of token. The character before a token must
// not be a letter or a digit.
func tokenPatterns() []pattern {
	list := make([]pattern, len(tokens))
	for i, t := range tokens {
		list[i] = pattern{rule: "token", sign: t.sign, least: 10, re: regexp.MustCompile(`(?:^|[^A-Za-z0-9])(` + t.form + `)`)}
	}
	return list
}

// hasDigit reports whether text[start:end] contains a digit. A bearer token contains one,
// but the second word of "bearer authentication" does not.
func hasDigit(text string, start, end int) bool {
	return strings.ContainsAny(text[start:end], "0123456789")
}

// isBasic reports whether text[start:end] is a user name and a password, in the base64
// encoding of HTTP's Basic authentication.
func isBasic(text string, start, end int) bool {
	trimmed := strings.TrimRight(text[start:end], "=")
	plain, err := base64.RawStdEncoding.DecodeString(trimmed)
	return err == nil && strings.Contains(string(plain), ":")
}

// issued matches the digits of payment cards by Visa, Mastercard, American Express,
// Diners Club, JCB, Discover, UnionPay, Maestro, RuPay and Mir.
//
// Source: https://en.wikipedia.org/wiki/Payment_card_number
var issued = regexp.MustCompile(`^(?:4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|` +
	`3(?:0|[689])\d{12}|3(?:0|[689])\d{14}|35\d{14,17}|(?:6\d|81|5[06-9])\d{14,17})$`)

// joinDigits removes the spaces and dashes between the groups of digits in a card number.
var joinDigits = strings.NewReplacer(" ", "", "-", "")

// isCard reports whether text[start:end] is a payment card's number, with a known issuer
// and a valid check digit. Digits after a decimal point are not a card number.
//
// Source: https://en.wikipedia.org/wiki/Luhn_algorithm
func isCard(text string, start, end int) bool {
	if start > 0 && text[start-1] == '.' {
		return false
	}
	digits := joinDigits.Replace(text[start:end])
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			d *= 2
		}
		sum += d/10 + d%10
	}
	return sum%10 == 0 && issued.MatchString(digits)
}

// redactRules is a compiled RedactConfig. It is safe for concurrent use.
type redactRules struct {
	blocked, ignored *regexp.Regexp // compiled globs for keys; nil if there are none
	secretNames      *regexp.Regexp // compiled globs for the names in assignments with secret values
	patterns         []pattern
	blockedValues    []*regexp.Regexp
	allowed          []*regexp.Regexp
}

// keyRule is the effect that the key of an attribute has on its value.
type keyRule uint8

const (
	keyPlain keyRule = iota
	keyBlocked
	keyIgnored
)

func (r *redactRules) keyRule(key string) keyRule {
	switch {
	case r.ignored != nil && r.ignored.MatchString(key):
		return keyIgnored
	case r.blocked != nil && r.blocked.MatchString(key):
		return keyBlocked
	default:
		return keyPlain
	}
}

// text returns a text with its secrets replaced. If the text is JSON, it replaces the
// values of blocked keys, and the secrets in each string and number.
func (r *redactRules) text(text string) string {
	if trimmed := strings.TrimSpace(text); trimmed != "" && strings.ContainsRune(`{["`, rune(trimmed[0])) {
		if json.Valid([]byte(text)) {
			return r.json(text)
		}
	}
	return r.plainText(text)
}

// plainText returns a text with its secrets replaced. It does not treat JSON in a special
// way.
func (r *redactRules) plainText(text string) string {
	for i := range r.patterns {
		p := &r.patterns[i]
		if len(text) >= p.least && strings.Contains(text, p.sign) && (p.chars == "" || strings.ContainsAny(text, p.chars)) {
			text = r.apply(p, text)
		}
	}
	for _, blocked := range r.blockedValues {
		text = blocked.ReplaceAllStringFunc(text, func(secret string) string {
			if secret == "" || r.isAllowed(secret) {
				return secret
			}
			return Redacted
		})
	}
	return text
}

// apply replaces the secrets that one built-in pattern finds. If a match is not a secret,
// apply goes on searching at the second word of the match, because a secret may begin
// there.
func (r *redactRules) apply(p *pattern, text string) string {
	var out strings.Builder
	for match := p.re.FindStringSubmatchIndex(text); match != nil; match = p.re.FindStringSubmatchIndex(text) {
		start, end := r.secret(p, text, match)
		next := max(match[1], end) // the search goes on after the secret, because searching it again would take quadratic time
		switch secret := text[start:end]; {
		case p.valid != nil && !p.valid(text, start, end):
			if first := strings.IndexAny(text[match[0]:next], " -"); first > 0 {
				next = match[0] + first
			}
			out.WriteString(text[:next])
		case secret == "" || secret == Redacted || r.isAllowed(secret):
			out.WriteString(text[:next])
		default:
			out.WriteString(text[:start] + Redacted + text[end:next])
		}
		text = text[next:]
	}
	return out.String() + text
}

// secret returns the bounds in text of the secret in a match. match has the indexes of
// FindStringSubmatchIndex. The bounds are equal if there is no secret.
func (r *redactRules) secret(p *pattern, text string, match []int) (start, end int) {
	switch {
	case p.whole:
		return match[0], match[1]
	case !p.named:
		return lastGroup(match)
	case !r.secretNames.MatchString(text[match[2]:match[3]]):
		return 0, 0
	}
	at := match[1]
	if match = assigned.FindStringSubmatchIndex(text[at:]); match == nil {
		return 0, 0
	}
	start, end = lastGroup(match)
	return at + start, at + end
}

// lastGroup returns the bounds of the last group that has matched, from the indexes of
// FindStringSubmatchIndex.
func lastGroup(match []int) (start, end int) {
	for i := len(match) - 2; i > 0; i -= 2 {
		if match[i] >= 0 {
			return match[i], match[i+1]
		}
	}
	return 0, 0
}

func (r *redactRules) isAllowed(secret string) bool {
	for _, allowed := range r.allowed {
		if allowed.MatchString(secret) {
			return true
		}
	}
	return false
}
