package processors

import (
	"bytes"
	"strings"
)

// The signs by which a text shows, in one cheap pass, which patterns are worth
// a try. They are necessary for a match, never sufficient.
type hints uint16

const (
	hintAt         hints = 1 << iota // "@"
	hintDigits                       // as many digits as a card number has
	hintAssign                       // a word of those that tell of secrets
	hintBearer                       // the name of an authentication scheme
	hintJWT                          // "eyJ"
	hintToken                        // the prefix of an API token
	hintHook                         // a part of the address of a webhook
	hintAWS                          // the prefix of an AWS key id
	hintPEM                          // "-----BEGIN"
	hintEscape                       // a byte that may begin an escape
	hintQuote                        // a single quote, or a double one
	hintIdentified                   // "identified"
	hintCommand                      // an option of one letter
)

// tokenStarts are, by the sign that ends it, the prefixes that hintToken knows.
var tokenStarts = map[byte][]string{
	'_': {
		"ghp", "gho", "ghu", "ghs", "ghr", "github_pat", "k_live", "k_test", "npm", "hf", "o_v1", "p_v1", "r_v1",
		"whsec", "shpat", "shpca", "shppa", "shpss", "lin_api", "dckr_pat", "dckr_oat", "gsk", "r8", "glsa", "sntrys", "sntryu",
	},
	'-': {
		"xapp", "sk", "pypi", "glpat", "gldt", "glrt", "glptt", "glft", "glsoat", "glcbt", "glagent", "glimt", "glffct",
		"xoxa", "xoxb", "xoxc", "xoxd", "xoxe", "xoxo", "xoxp", "xoxr", "xoxs",
		"GOCSPX", "xai", "pplx", "tskey", "NRAK", "pul", "sq0atp", "sq0csp", "sq0idp", "AGE-SECRET-KEY",
	},
	'.': {"ya29", "SG", "hvb", "hvs", "hvr"},
}

// A pairSet is a set of two bytes in a row.
type pairSet [256][4]uint64

func (s *pairSet) add(a, b byte) { s[a][b>>6] |= 1 << (b & 63) }

func (s *pairSet) has(a, b byte) bool { return s[a][b>>6]>>(b&63)&1 != 0 }

// tokenTails are the last two bytes of these prefixes: two bytes tell most texts
// apart from all of them.
var tokenTails = func() *pairSet {
	var set pairSet
	for _, starts := range tokenStarts {
		for _, s := range starts {
			set.add(s[len(s)-2], s[len(s)-1])
		}
	}
	return &set
}()

// letterPairs are two letters in a row at which letterHints looks closer: of each
// word that tells of a secret two that few others have.
var letterPairs = func() *pairSet {
	var set pairSet
	for _, pair := range []string{
		"ke", "ki", "wd", "wo", "pa", "pi", "pw", "cr", "cv", "co", "ut", "si", "ss", "go", "di", "da", "hm", "ot", "if", "be", "ba",
	} {
		large := strings.ToUpper(pair)
		for _, first := range []byte{pair[0], large[0]} {
			set.add(first, pair[1])
			set.add(first, large[1])
		}
	}
	for _, pair := range []string{"ks", "kS", "k.", "k/", "kb", "ey", "AK", "AS", "AB", "AC", "AR", "AI", "AG", "AN", "AP", "AT"} {
		set.add(pair[0], pair[1])
	}
	return &set
}()

// A look is what hintsOf does at a byte.
type look uint8

const (
	lookNot look = iota
	lookDigit
	lookJoin // what ends the prefix of a token
	lookSign
	lookLetter
)

// looks are by byte.
var looks = func() (table [256]look) {
	for _, c := range []byte("0123456789") {
		table[c] = lookDigit
	}
	for _, c := range []byte("_-.") {
		table[c] = lookJoin
	}
	for _, c := range []byte("@:'\"" + mayEscape) {
		table[c] = lookSign
	}
	for c := range table {
		if letterPairs[c] != [4]uint64{} {
			table[c] = lookLetter
		}
	}
	return table
}()

// hintsOf goes through a text once.
func hintsOf(text []byte) hints {
	var h hints
	digits := 0
	for i, c := range text {
		switch looks[c] {
		case lookDigit:
			digits++
		case lookJoin:
			if i >= 2 && tokenTails.has(text[i-2], text[i-1]) && h&hintToken == 0 && endsInAny(text[:i], tokenStarts[c]) {
				h |= hintToken
			}
			if c == '-' && i+1 < len(text) && (text[i+1] == '-' || i > 0 && isSpace(text[i-1])) {
				h |= dashHints(text, i)
			}
		case lookSign:
			h |= signHints(text, i)
		case lookLetter:
			if i+1 < len(text) && letterPairs.has(c, text[i+1]) {
				h |= letterHints(text, i)
			}
		}
	}
	if digits >= fewestCardDigits {
		h |= hintDigits
	}
	return h
}

// signHints are those that a sign gives.
func signHints(text []byte, i int) hints {
	switch text[i] {
	case '@':
		return hintAt
	case '\'', '"':
		return hintQuote
	case ':': // of Telegram
		const id = len("/bot") + 20
		if i > 0 && isDigit(text[i-1]) && bytes.Contains(text[max(0, i-id):i], []byte("/bot")) {
			return hintHook
		}
		return 0
	default:
		return hintEscape
	}
}

// dashHints are those of one that begins an option, or a key in PEM.
func dashHints(text []byte, i int) hints {
	rest := text[i:]
	switch {
	case rest[1] != '-':
		if isLetter(rest[1]) {
			return hintCommand
		}
	case bytes.HasPrefix(rest, []byte("-----BEGIN")):
		return hintPEM
	case foldPrefix(rest, "--user"), foldPrefix(rest, "--proxy-user"), foldPrefix(rest, "--auth"):
		return hintCommand
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// letterHints are those of the words that have one of letterPairs there.
func letterHints(text []byte, i int) hints {
	before, rest := text[:i], text[i:]
	switch lower(text[i]) {
	case 'k':
		if foldSuffix(before, "hoo") {
			return hintHook
		}
	case 'g':
		if foldSuffix(before, "ne") && foldPrefix(rest, "gotiate") {
			return hintBearer
		}
	case 'd':
		switch {
		case foldPrefix(rest, "dapi"):
			return hintToken
		case foldPrefix(rest, "digest"):
			return hintBearer
		}
	case 'i':
		if foldSuffix(before, "ident") && foldPrefix(rest, "ified") {
			return hintIdentified
		}
	case 'b':
		switch {
		case foldPrefix(rest, "bearer"):
			return hintBearer | hintAssign
		case foldPrefix(rest, "basic"):
			return hintBearer
		}
	case 'e':
		if len(rest) >= 3 && rest[2] == 'J' {
			return hintJWT
		}
	case 'a':
		switch {
		case len(rest) < 4:
		case rest[3] == 'A', rest[3] == 'a':
			return hintAWS | hintToken // or Google's AIza
		case rest[3] == 'T':
			return hintToken // ATATT3
		}
	}
	if assigns(before, rest) {
		return hintAssign
	}
	return 0
}

// assigns tells of the words that classifyName knows.
func assigns(before, rest []byte) bool {
	switch lower(rest[0]) {
	case 'k':
		return foldPrefix(rest, "key") || foldSuffix(before, "to") && foldPrefix(rest, "ken") ||
			foldSuffix(before, "coo") && foldPrefix(rest, "kie")
	case 'w':
		return foldSuffix(before, "p") || foldSuffix(before, "ss") // pwd, passwd, password
	case 'p':
		return foldPrefix(rest, "pass") || foldPrefix(rest, "pin") || foldPrefix(rest, "pw")
	case 'c':
		return foldPrefix(rest, "cret") || foldPrefix(rest, "credential") || foldPrefix(rest, "cv") || foldPrefix(rest, "code")
	case 'u':
		return foldSuffix(before, "a") && foldPrefix(rest, "uth")
	case 's':
		if foldPrefix(rest, "ss") && foldSuffix(before, "se") {
			const reach = len("ssionids__")
			return bytes.ContainsAny(rest[:min(len(rest), reach)], "dD") // session_id, sessid
		}
		return foldPrefix(rest, "sig") || foldPrefix(rest, "sid")
	case 'h':
		return foldPrefix(rest, "hmac")
	case 'o':
		return foldPrefix(rest, "otp")
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

func foldSuffix(text []byte, suffix string) bool {
	return len(text) >= len(suffix) && foldPrefix(text[len(text)-len(suffix):], suffix)
}

func endsInAny(text []byte, ends []string) bool {
	for _, end := range ends {
		if len(text) >= len(end) && string(text[len(text)-len(end):]) == end {
			return true
		}
	}
	return false
}
