package processors

import "regexp"

// awsKeyID finds what stands beside an AWS secret key where that has no name.
var awsKeyID = regexp.MustCompile(`(?:^|[^A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?:[^A-Za-z0-9]|$)`)

// awsSecretBytes is the length of each.
const awsSecretBytes = 40

// findAWSSecret gives the bounds of the first secret key from an index on, or -1:
// of 40 signs of base64, which is what many a hash has too, so only in a text
// that has a key's id.
func findAWSSecret(text []byte, from int) (start, end int) {
	checked := false
	for i := from; i < len(text); {
		if !isBase64(text[i]) {
			i++
			continue
		}
		begin := i
		large, small, digits := false, false, false
		for ; i < len(text) && isBase64(text[i]); i++ {
			large, small, digits = large || isLarge(text[i]), small || isSmall(text[i]), digits || isDigit(text[i])
		}
		if i-begin != awsSecretBytes || !large || !small || !digits {
			continue
		}
		if checked = checked || awsKeyID.Match(text); !checked {
			return -1, -1
		}
		return begin, i
	}
	return -1, -1
}

func isBase64(c byte) bool { return isLetter(c) || isDigit(c) || c == '+' || c == '/' }
