package processors

import "bytes"

// Digits of a card number. The shortest that is looked for is Visa's old one.
const (
	fewestCardDigits = 13
	mostCardDigits   = 19
)

// cardGroups are the ways in which card numbers are written in groups, the
// longer before its beginning.
var cardGroups = [][]int{{4, 4, 4, 4, 3}, {4, 4, 4, 4}, {4, 6, 5}, {4, 6, 4}, {4, 3, 3, 3}}

// findCard gives the bounds of the first card number from an index on, or -1: a
// run of digits, or groups of them as on a card, with the same sign between
// ([cardSigns]). It must stand alone, for long numbers are often no cards: between
// letters or digits, or in the fraction of a number, it is none.
func findCard(text []byte, from int) (start, end int) {
	for i := from; i < len(text); i++ {
		if !isDigit(text[i]) || i > 0 && isDigit(text[i-1]) {
			continue
		}
		if end := cardAt(text, i); end > 0 {
			return i, end
		}
	}
	return -1, -1
}

// cardAt gives the end of the card number that begins at a run of digits, 0 if
// none does.
func cardAt(text []byte, at int) int {
	if at > 0 && (isLetter(text[at-1]) || text[at-1] == '.' && at > 1 && isDigit(text[at-2])) {
		return 0
	}
	length := digitsAt(text, at)
	if length >= fewestCardDigits {
		if endsCard(text, at+length) && isCard(text[at:at+length]) {
			return at + length
		}
		return 0
	}
	for _, groups := range cardGroups {
		if length != groups[0] {
			continue
		}
		if end := groupsAt(text, at, groups); end > 0 && endsCard(text, end) && isCard(text[at:end]) {
			return end
		}
	}
	return 0
}

// cardSigns stand between groups of digits: spaces (in a query a plus), dashes,
// dots.
var cardSigns = []string{" ", "-", "+", ".", "_", "\u00a0", "\u2009", "\u202f", "\u2010", "\u2011", "\u2013"}

// groupsAt gives the end of groups of digits with one separator, 0 if they are
// not there.
func groupsAt(text []byte, at int, groups []int) int {
	separator := ""
	for i, length := range groups {
		if digitsAt(text, at) != length {
			return 0
		}
		at += length
		if i == len(groups)-1 {
			break
		}
		if separator == "" {
			for _, sign := range cardSigns {
				if bytes.HasPrefix(text[at:], []byte(sign)) {
					separator = sign
				}
			}
		}
		if separator == "" || !bytes.HasPrefix(text[at:], []byte(separator)) {
			return 0
		}
		at += len(separator)
	}
	if separator == "." && at+1 < len(text) && text[at] == '.' && isDigit(text[at+1]) {
		return 0 // some longer thing with dots
	}
	return at
}

// digitsAt is how many digits stand at an index, one more than a card has if
// there are more.
func digitsAt(text []byte, at int) int {
	n := 0
	for at+n < len(text) && n <= mostCardDigits && isDigit(text[at+n]) {
		n++
	}
	return n
}

// endsCard tells whether a number may end here.
func endsCard(text []byte, at int) bool { return at == len(text) || !isLetter(text[at]) }

// isCard checks length, issuer and check digit of digits with separators.
//
// Source: ISO/IEC 7812; the issuers' ranges as
// https://en.wikipedia.org/wiki/Payment_card_number lists them.
func isCard(text []byte) bool {
	var digits [mostCardDigits]byte
	n := 0
	for _, c := range text {
		if !isDigit(c) {
			continue
		}
		if n == len(digits) {
			return false
		}
		digits[n] = c - '0'
		n++
	}
	return n >= fewestCardDigits && issued(digits[:n]) && luhn(digits[:n])
}

// issued tells whether someone issues cards that begin so, of that length.
func issued(digits []byte) bool {
	two := int(digits[0])*10 + int(digits[1])
	four := two*100 + int(digits[2])*10 + int(digits[3])
	switch n := len(digits); {
	case digits[0] == 4: // Visa
		return n == 13 || n == 16 || n == 19
	case two >= 51 && two <= 55, four >= 2221 && four <= 2720: // Mastercard
		return n == 16
	case two == 34 || two == 37: // American Express
		return n == 15
	case two == 36 || two == 38 || two == 39 || two == 30: // Diners Club
		return n == 14 || n == 16 || n == 19
	case two == 35: // JCB
		return n >= 16
	case two == 60 || two == 64 || two == 65 || two == 62 || two == 81: // Discover, RuPay, UnionPay
		return n >= 16
	case two == 50 || two >= 56 && two <= 69: // Maestro
		return n == 16 || n >= 18
	case four >= 2200 && four <= 2204: // Mir
		return n >= 16
	default:
		return false
	}
}

// luhn checks the last digit.
//
// Source: https://en.wikipedia.org/wiki/Luhn_algorithm
func luhn(digits []byte) bool {
	sum := 0
	for i := range digits {
		d := int(digits[len(digits)-1-i])
		if i%2 == 1 {
			d *= 2
			if d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= lower(c) && lower(c) <= 'z' }
