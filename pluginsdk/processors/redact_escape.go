package processors

import "bytes"

// maxUnescape is how often a text is looked at: as it is, and without its
// percent-encoding, and without that of the result.
const maxUnescape = 3

// unescape gives a text without its percent-encoding, nil if it has none.
func unescape(text []byte) []byte {
	from := bytes.IndexByte(text, '%')
	if from < 0 {
		return nil
	}
	for from < len(text) && escapeAt(text, from) == 1 {
		from++
	}
	if from == len(text) {
		return nil
	}
	plain := append(make([]byte, 0, len(text)), text[:from]...)
	for i := from; i < len(text); {
		width := escapeAt(text, i)
		if width == 1 {
			plain = append(plain, text[i])
		} else {
			plain = append(plain, hexDigit(text[i+1])<<4|hexDigit(text[i+2]))
		}
		i += width
	}
	return plain
}

// encodedBounds makes of the bounds of pieces of unescape(text), which are in
// order, those of the same pieces in text.
func encodedBounds(text []byte, pieces [][2]int) {
	at, met := 0, 0
	for i := range pieces {
		for j, bound := range pieces[i] {
			for ; met < bound; met++ {
				at += escapeAt(text, at)
			}
			pieces[i][j] = at
		}
	}
}

// escapeAt is how many bytes stand for one at an index: three of an escape.
func escapeAt(text []byte, i int) int {
	const width = 3
	if text[i] == '%' && i+width <= len(text) && hexDigit(text[i+1]) < 16 && hexDigit(text[i+2]) < 16 {
		return width
	}
	return 1
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
