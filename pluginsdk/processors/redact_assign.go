package processors

import (
	"bytes"
	"strings"
)

// findAssigned gives the bounds of the first value, from an index on, that
// stands behind a name which tells of a secret, or -1. Ways to write that:
//
//	password=x  password: x  "password": "x"  'password' => ['x']  user[password]=x
//	--password x  "--password","x"  ["password","x"]
//	"name":"password","value":"x"  <input name="password" value="x">
//	<password>x</password>
//
// It goes through the text once; what it looks for in front of it is near.
func findAssigned(text []byte, from int) (start, end int) {
	for i := from; i < len(text); {
		if !isNameByte(text[i]) {
			i++
			continue
		}
		begin := i
		for i < len(text) && isNameByte(text[i]) {
			i++
		}
		n := assigned{text: text, begin: begin, end: i}
		for n.begin < n.end && text[n.begin] == '-' {
			n.begin++
			n.dashes++
		}
		for n.end > n.begin && (text[n.end-1] == '-' || text[n.end-1] == '.') {
			n.end-- // a sign's, or a sentence's
		}
		if n.class = classifyName(text[n.begin:n.end]); n.class == namePlain {
			continue
		}
		if start, end = n.value(); start < end {
			return start, end
		}
	}
	return -1, -1
}

func isNameByte(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '$'
}

// assigned is a name that tells of a secret, in its text.
type assigned struct {
	text       []byte
	begin, end int // of the name, without its dashes
	dashes     int // in front of it: of an option
	class      nameClass
}

// value gives the bounds of the value, which are the same if there is none.
func (n *assigned) value() (start, end int) {
	closed := skipClosing(n.text, n.end)
	quoted := closed > n.end && n.begin-n.dashes > 0 && isQuote(n.text[n.begin-n.dashes-1])
	if at, sure := skipSign(n.text, closed); at > 0 {
		if !sure && !quoted && n.begin > 0 && n.text[n.begin-1] == ':' {
			return 0, 0 // a part of a name with colons, as those of AWS
		}
		return n.take(at, sure || quoted || n.beginsField())
	}
	if at := n.behindTag(); at > 0 {
		end := at + indexOrAll(n.text[at:], "<")
		return n.accept(at, end, n.text[at:end], true)
	}
	spaced := skipSpace(n.text, closed)
	switch {
	case n.dashes > 0 && !quoted && spaced > closed:
		return n.option(spaced)
	case !quoted:
		return 0, 0
	}
	if at := skipComma(n.text, spaced); at > 0 && (n.dashes > 0 || n.isPair(at)) {
		return n.take(at, true)
	}
	if at := n.behindValue(closed); at > 0 {
		return n.take(at, true)
	}
	return 0, 0
}

// option takes what follows an option of a command line.
func (n *assigned) option(at int) (start, end int) {
	if at < len(n.text) && n.text[at] == '-' {
		return 0, 0 // the next option
	}
	start, end = n.take(at, true)
	if start < end && isProse(n.text[start:end]) {
		return 0, 0
	}
	return start, end
}

// isProse tells of words that follow where an option, or a secret, is written
// about.
func isProse(word []byte) bool {
	switch string(bytes.ToLower(word)) {
	case "is", "was", "are", "must", "and", "or", "option", "options", "flag", "flags", "argument", "requires", "required",
		"to", "in", "not", "with", "from", "for", "on", "if", "has", "the", "should", "can", "cannot", "may", "as", "given",
		"it", "does", "did", "too", "no", "invalid", "incorrect", "wrong", "missing", "expired", "rejected", "unknown", "empty":
		return true
	}
	return false
}

// take gives the bounds of the value that begins at an index. Where the name
// is sure, in quotes or an option, a class tells by its value alone; in prose,
// behind a colon, it must look like a secret too.
func (n *assigned) take(at int, sure bool) (start, end int) {
	text := n.text
	if at >= len(text) {
		return 0, 0
	}
	if start, end, ok := quotedAt(text, at); ok {
		return n.accept(start, end, text[start:end], true)
	}
	if text[at] == '[' || text[at] == '{' {
		end = closingBracket(text, at)
		for end < len(text) && isNameByte(text[end]) {
			end++ // more of it, behind a mark
		}
		inside := bytes.Trim(text[at:end], "[]{}\"' ")
		return n.accept(at, end, inside, true)
	}
	if start := blockAt(text, at); start > 0 {
		end := blockEnd(text, start)
		return n.accept(start, end, text[start:end], true)
	}
	end = at
	if n.class == nameLine {
		for end < len(text) && text[end] != '\r' && text[end] != '\n' {
			end++
		}
		return n.accept(at, end, text[at:end], true)
	}
	quoted := n.begin-n.dashes > 0 && isQuote(text[n.begin-n.dashes-1])
	for end < len(text) && !endsValue(text[end], quoted) {
		end++
	}
	value := bytes.TrimRight(text[at:end], ",)")
	if !sure && isProse(value) {
		return 0, 0
	}
	return n.accept(at, end, value, sure)
}

// endsValue tells whether a value without quotes ends before a byte: under a
// name in quotes it is JSON, or like it.
func endsValue(c byte, quotedName bool) bool {
	switch c {
	case ' ', '\t', '\r', '\n', '\f', '\v', '&', ';':
		return true
	case ',', '}', ']', ')':
		return quotedName
	}
	return false
}

// accept tells whether a value is a secret under its name.
func (n *assigned) accept(start, end int, value []byte, sure bool) (int, int) {
	if end-start > mostPlain { // nobody looks that far for an end twice
		return start, end
	}
	class := n.class
	switch {
	case start >= end, len(value) == 0, class == nameSecret && n.isFolder(value):
		return 0, 0
	case class == nameText && !sure && !looksSecret(value), class == nameText && !isBearer(value):
		return 0, 0
	case class == nameSigns && n.begin > 0 && strings.IndexByte("?&", n.text[n.begin-1]) >= 0:
		class = nameText // a parameter of a URL
	}
	if !class.tellsOf(value) {
		return 0, 0
	}
	return start, end
}

// mostPlain is the longest value that may pass. It keeps what is spent on a text
// in proportion to its length, for values that pass are gone through again.
const mostPlain = 1 << 10

// isFolder tells whether the name is the shell's PWD.
func (n *assigned) isFolder(value []byte) bool {
	name := string(n.text[n.begin:n.end])
	return (name == "PWD" || name == "OLDPWD" || name == "pwd") && (value[0] == '/' || value[0] == '~')
}

// beginsField tells whether the name stands where YAML, a header or a list of
// fields has one, and not in the midst of prose.
func (n *assigned) beginsField() bool {
	at := n.begin - 1
	for at >= 0 && (n.text[at] == ' ' || n.text[at] == '\t' || n.text[at] == '-') {
		at--
	}
	return at < 0 || strings.IndexByte("\n,{[(;&?|", n.text[at]) >= 0
}

// skipClosing skips what may end a name: a quote, and the brackets of
// "user[password]" and "password[]".
func skipClosing(text []byte, at int) int {
	at = skipQuote(text, at)
	if at+1 < len(text) && text[at] == '[' && text[at+1] == ']' {
		at++
	}
	if at < len(text) && text[at] == ']' {
		at++
	}
	return at
}

// skipQuote skips a quote, with the backslashes that JSON in JSON has before it.
func skipQuote(text []byte, at int) int {
	quote := at
	for quote < len(text) && text[quote] == '\\' && quote-at <= mostBackslashes {
		quote++
	}
	if quote < len(text) && isQuote(text[quote]) {
		return quote + 1
	}
	return at
}

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

// signs stand between a name and its value, the longer before its beginning.
var signs = []string{"=>", ":=", "==", "->", "~=", "=", ":", "＝", "："}

// mostSpaces is how many spaces may stand beside a sign.
const mostSpaces = 64

func skipSpace(text []byte, at int) int {
	for n := 0; at < len(text) && n < mostSpaces; n++ {
		switch {
		case strings.IndexByte(" \t\r\n\f\v", text[at]) >= 0:
			at++
		case bytes.HasPrefix(text[at:], []byte("\u00a0")):
			at += len("\u00a0")
		default:
			return at
		}
	}
	return at
}

// skipSign gives where the value begins behind a sign, 0 if there is none. A
// colon stands in prose too, of which it is not sure.
func skipSign(text []byte, at int) (behind int, sure bool) {
	at = skipSpace(text, at)
	for _, sign := range signs {
		if bytes.HasPrefix(text[at:], []byte(sign)) {
			return skipSpace(text, at+len(sign)), sign != ":"
		}
	}
	return 0, false
}

func skipComma(text []byte, at int) int {
	if at < len(text) && text[at] == ',' {
		return skipSpace(text, at+1)
	}
	return 0
}

// quotedAt gives the bounds of what stands in quotes from an index on: to their
// end, or to that of the text where it was cut.
//
// In JSON in JSON the quotes of the inner one have backslashes, of one number
// where they are its own, of a larger where they stand in its texts. In SQL two
// quotes are one in a text.
func quotedAt(text []byte, at int) (start, end int, ok bool) {
	start = skipQuote(text, at)
	if start == at {
		return 0, 0, false
	}
	quote, level := text[start-1], start-1-at
	backslashes := 0
	for end = start; end < len(text); end++ {
		switch {
		case text[end] == '\\':
			backslashes++
			continue
		case text[end] != quote:
		case backslashes == 0 && level == 0 && end+1 < len(text) && text[end+1] == quote:
			end++ // a pair
			if end == start+1 && !continues(text, end+1) {
				return start, start, true // empty
			}
		case backslashes < level || backslashes%(2*level+2) == level:
			if level == 0 {
				return start, moreOfWord(text, end), true
			}
			return start, end - backslashes, true
		}
		backslashes = 0
	}
	return start, end, true
}

func continues(text []byte, at int) bool { return at < len(text) && isNameByte(text[at]) }

// moreOfWord gives the end of a value whose quotes end at an index: a shell
// takes what touches them as more of it.
func moreOfWord(text []byte, at int) int {
	if !continues(text, at+1) {
		return at
	}
	for at++; at < len(text) && !endsValue(text[at], true) && !isQuote(text[at]); at++ {
	}
	return at
}

// closingBracket gives the end of an array or a map, or that of the text where
// it was cut. Brackets in quotes do not count.
func closingBracket(text []byte, at int) int {
	depth := 0
	for at < len(text) {
		switch c := text[at]; {
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return at + 1
			}
		case c == '"' || c == '\\' && skipQuote(text, at) > at:
			_, end, _ := quotedAt(text, at)
			at = max(at, end)
			for at < len(text) && text[at] == '\\' {
				at++
			}
		}
		at++
	}
	return len(text)
}

// blockAt gives where a block of YAML begins, of which the sign stands at an
// index: "password: |". 0 if there is none.
func blockAt(text []byte, at int) int {
	if text[at] != '|' && text[at] != '>' {
		return 0
	}
	for at++; at < len(text) && (text[at] == '-' || text[at] == '+' || isDigit(text[at])); at++ {
	}
	if at < len(text) && text[at] == '\r' {
		at++
	}
	if at+1 >= len(text) || text[at] != '\n' || text[at+1] != ' ' {
		return 0
	}
	return skipSpace(text, at)
}

// blockEnd gives the end of a block: before the first line without indent.
func blockEnd(text []byte, at int) int {
	for at < len(text) && (text[at] != '\n' || at+1 < len(text) && (text[at+1] == ' ' || text[at+1] == '\n')) {
		at++
	}
	return at
}

// mostTag bounds what is looked for in front of a name.
const mostTag = 256

// behindTag gives where the text of an XML element begins that has the name, 0
// if it is none.
func (n *assigned) behindTag() int {
	text, at := n.text, n.begin-1
	for limit := at - mostTag; at > limit && at >= 0 && (isNameByte(text[at]) || text[at] == ':'); at-- { // its namespace
	}
	if at < 0 || text[at] != '<' {
		return 0
	}
	for end := n.end; end < min(len(text), n.end+mostTag); end++ {
		switch text[end] {
		case '<':
			return 0
		case '>':
			if text[end-1] == '/' {
				return 0
			}
			at = skipSpace(text, end+1)
			if rest := text[at:]; bytes.HasPrefix(rest, []byte("<![CDATA[")) {
				at += len("<![CDATA[")
			}
			return at
		}
	}
	return 0
}

// behindValue gives where the value begins of a pair that has the name as the
// value of another: {"name": "password", "value": …}, 0 if there is none.
func (n *assigned) behindValue(at int) int {
	text := n.text
	for limit := min(len(text), at+mostTag); at < limit; at++ {
		switch text[at] {
		case '<', '>', '{', '}':
			return 0
		case 'v', 'V':
			const word = "value"
			if !foldPrefix(text[at:], word) || isNameByte(text[at-1]) {
				continue
			}
			if behind, _ := skipSign(text, skipQuote(text, at+len(word))); behind > 0 {
				return behind
			}
		}
	}
	return 0
}

// isPair tells whether the name stands first of two in brackets, the second of
// which begins at an index.
func (n *assigned) isPair(at int) bool {
	open := n.begin - 1
	for open > 0 && (isQuote(n.text[open]) || n.text[open] == '\\') {
		open--
	}
	if strings.IndexByte("[({", n.text[open]) < 0 {
		return false
	}
	near := n.text[:min(len(n.text), at+mostPlain)]
	_, end, ok := quotedAt(near, at)
	if !ok {
		return false
	}
	end = skipSpace(near, skipQuote(near, end))
	return end < len(near) && strings.IndexByte("])}", near[end]) >= 0
}

// indexOrAll is where a sign stands in a text, or the text's length.
func indexOrAll(text []byte, sign string) int {
	if i := bytes.Index(text, []byte(sign)); i >= 0 {
		return i
	}
	return len(text)
}
