package processors

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// maxUnescape is how often a text is looked at: as it is, and without its
// escapes, and without those of the result.
const maxUnescape = 3

// An escape stands for other bytes than it has. One byte that is none stands
// for itself.
type escape struct {
	width int // bytes that it takes
	plain [utf8.UTFMax]byte
	size  int // of plain
}

func (e *escape) is(width int, r rune) {
	e.width, e.size = width, utf8.EncodeRune(e.plain[:], r)
}

// mayEscape are the bytes that escapes begin with.
const mayEscape = "%\\&\x1b"

// unescape gives a text without its escapes, nil if it has none.
func unescape(text []byte) []byte {
	from, e := 0, escape{}
	for ; from < len(text); from++ {
		if isEscape(text[from]) {
			if e = escapeAt(text, from); e.width > 1 {
				break
			}
		}
	}
	if from == len(text) {
		return nil
	}
	plain := append(make([]byte, 0, len(text)), text[:from]...)
	for i := from; i < len(text); i += e.width {
		e = escapeAt(text, i)
		plain = append(plain, e.plain[:e.size]...)
	}
	return plain
}

func isEscape(c byte) bool { return strings.IndexByte(mayEscape, c) >= 0 }

// encodedBounds makes of the bounds of pieces of unescape(text), which are in
// order, those of the same pieces in text. A piece that begins or ends within
// what an escape stands for has all of that escape.
func encodedBounds(text []byte, pieces [][2]int) {
	at, met := 0, 0
	for i := range pieces {
		for j, bound := range pieces[i] {
			for met < bound {
				e := escapeAt(text, at)
				if j == 0 && met+e.size > bound {
					break
				}
				at += e.width
				met += e.size
			}
			pieces[i][j] = at
		}
	}
}

// escapeAt reads what stands at an index.
func escapeAt(text []byte, i int) escape {
	e := escape{width: 1, size: 1}
	e.plain[0] = text[i]
	switch text[i] {
	case '%':
		if b, ok := hexByte(text, i+1); ok {
			e.width, e.plain[0] = len("%XX"), b
		}
	case '\\':
		e.backslash(text, i)
	case '&':
		e.entity(text[i:])
	case '\x1b':
		e.colour(text[i:])
	}
	return e
}

// mostBackslashes bounds the nesting of JSON in JSON that is looked through: it
// doubles them.
const mostBackslashes = 16

// backslash reads an escape of JSON. However often the JSON stands in other
// JSON, it is one: only its backslashes are more. Quotes stay as they are, for
// they tell where values end.
func (e *escape) backslash(text []byte, i int) {
	at := i
	for at < len(text) && text[at] == '\\' && at-i <= mostBackslashes {
		at++
	}
	if at == len(text) {
		return
	}
	switch text[at] {
	case '/':
		e.is(at+1-i, '/')
	case 'n', 'r':
		e.is(at+1-i, '\n')
	case 't':
		e.is(at+1-i, '\t')
	case 'x':
		if b, ok := hexByte(text, at+1); ok {
			e.width, e.plain[0] = at+3-i, b
		}
	case 'u':
		high, ok := hexByte(text, at+1)
		low, all := hexByte(text, at+3)
		if r := rune(high)<<8 | rune(low); ok && all && utf8.ValidRune(r) {
			e.is(at+5-i, r)
		}
	}
}

// entities are those of XML, and those of HTML for signs that tell of secrets.
var entities = map[string]rune{
	"lt": '<', "gt": '>', "amp": '&', "quot": '"', "apos": '\'', "#39": '\'', "#34": '"', "#x27": '\'', "#x22": '"',
	"#64": '@', "#x40": '@', "#58": ':', "#61": '=', "#47": '/',
}

func (e *escape) entity(text []byte) {
	const longest = len("&quot;")
	end := bytes.IndexByte(text[:min(len(text), longest)], ';')
	if end < 0 {
		return
	}
	if r, ok := entities[string(text[1:end])]; ok {
		e.is(end+1, r)
	}
}

// colour reads a sequence that colours a terminal: its last letter stands in
// front of what is coloured.
func (e *escape) colour(text []byte) {
	const longest = 24
	if len(text) < 2 || text[1] != '[' {
		return
	}
	for i := 2; i < min(len(text), longest); i++ {
		if c := text[i]; isLetter(c) {
			e.is(i+1, ' ')
			return
		} else if !isDigit(c) && c != ';' {
			return
		}
	}
}

// hexByte reads two hexadecimal digits.
func hexByte(text []byte, i int) (b byte, ok bool) {
	if i+2 > len(text) {
		return 0, false
	}
	high, low := hexDigit(text[i]), hexDigit(text[i+1])
	return high<<4 | low, high < 16 && low < 16
}

// hexDigit is the value of a hexadecimal digit, 16 of anything else.
func hexDigit(c byte) byte {
	switch c = lower(c); {
	case isDigit(c):
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	default:
		return 16
	}
}
