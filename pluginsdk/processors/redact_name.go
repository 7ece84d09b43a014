package processors

import (
	"bytes"
	"strings"
)

// A nameClass says what a name tells of the value behind it.
type nameClass uint8

const (
	namePlain  nameClass = iota
	nameSecret           // a secret, whatever the value
	nameLine             // a header, with all of its line
	nameText             // a secret, if it is no number: "tokens" are counted too
	nameSigns            // a secret, if it looks like one: "auth", "signature"
	nameDigits           // a secret, if it is a few digits: "pin"
)

// secretEnds are what a word ends in that tells of a secret: "dbpassword".
var secretEnds = []string{
	"password", "passwd", "passphrase", "passcode", "passwort", "pwd", "secret", "credential", "apikey", "accesskey",
	"privatekey", "secretkey", "accountkey", "sessionid", "sessid", "authtoken", "accesstoken", "refreshtoken",
}

// secretWords are other words that tell of one.
var secretWords = map[string]nameClass{
	"authorization": nameLine, "cookie": nameLine,
	"token": nameText, "pass": nameText, "pw": nameText, "bearer": nameText,
	"auth": nameSigns, "signature": nameSigns, "sig": nameSigns, "hmac": nameSigns,
	"pin": nameDigits, "pincode": nameDigits, "otp": nameDigits, "totp": nameDigits, "cvv": nameDigits, "cvc": nameDigits,
}

// secretPairs are words that tell of one behind certain others: "api key".
var secretPairs = map[string]map[string]nameClass{
	"key": {
		"api": nameSecret, "access": nameSecret, "account": nameSecret, "private": nameSecret, "secret": nameSecret,
		"auth": nameSecret, "encryption": nameSecret, "signing": nameSecret, "master": nameSecret,
		"subscription": nameSecret, "functions": nameSecret,
	},
	"token": {
		"access": nameSecret, "auth": nameSecret, "refresh": nameSecret, "id": nameSecret, "session": nameSecret,
		"security": nameSecret,
	},
	"id":   {"session": nameSecret},
	"sid":  {"connect": nameSecret},
	"code": {"pin": nameDigits, "otp": nameDigits, "mfa": nameDigits, "security": nameDigits, "verification": nameDigits},
}

// secretTails are words that may follow: "password_confirmation".
var secretTails = map[string]bool{
	"confirmation": true, "confirm": true, "again": true, "repeat": true, "new": true, "old": true, "current": true,
	"value": true, "plain": true, "plaintext": true, "base64": true, "prod": true, "production": true, "dev": true,
	"staging": true, "test": true, "primary": true, "secondary": true,
}

// longestWord is that of the longest in these tables.
const longestWord = 24

// classifyName says what a name tells: by its last word, or by the last two. It
// does not allocate.
func classifyName(name []byte) nameClass {
	var buf, before [longestWord]byte
	last, rest := lastWord(name, &buf)
	const mostTails = 2
	for range mostTails {
		if !secretTails[string(last)] {
			break
		}
		last, rest = lastWord(rest, &buf)
	}
	singular := last
	if n := len(last); n > 3 && last[n-1] == 's' && last[n-2] != 's' {
		singular = last[:n-1]
	}
	if pairs := secretPairs[string(singular)]; pairs != nil {
		word, _ := lastWord(rest, &before)
		if class := pairs[string(word)]; class != namePlain {
			return class
		}
	}
	if class := secretWords[string(singular)]; class != namePlain {
		return class
	}
	for _, end := range secretEnds {
		if len(singular) >= len(end) && string(singular[len(singular)-len(end):]) == end {
			return nameSecret
		}
	}
	if bytes.HasSuffix(singular, []byte("token")) {
		return nameText
	}
	return namePlain
}

// lastWord gives the last word of a name in lower case, its end only if it is
// long, and what stands before it. Words are told apart by signs and digits, and
// by their first letters where they are large: "userPassword2", "APIKey".
func lastWord(name []byte, buf *[longestWord]byte) (word, rest []byte) {
	end := len(name)
	for end > 0 && !isLetter(name[end-1]) {
		end--
	}
	start := end
	for start > 0 && isLetter(name[start-1]) {
		start--
		if start > 0 && isLarge(name[start]) && isSmall(name[start-1]) {
			break // the P of "userPassword"
		}
		if start > 0 && start+1 < end && isSmall(name[start+1]) && isLarge(name[start]) && isLarge(name[start-1]) {
			break // the K of "APIKey"
		}
	}
	n := 0
	for _, c := range name[max(start, end-longestWord):end] {
		buf[n] = lower(c)
		n++
	}
	return buf[:n], name[:start]
}

func isLarge(c byte) bool { return 'A' <= c && c <= 'Z' }

func isSmall(c byte) bool { return 'a' <= c && c <= 'z' }

// tellsOf says whether a value is a secret under a name of a class.
func (c nameClass) tellsOf(value []byte) bool {
	switch c {
	case nameSecret, nameLine:
		return !isConstant(value)
	case nameText:
		return !isConstant(value) && !isNumber(value)
	case nameSigns:
		return looksSecret(value)
	case nameDigits:
		const fewest, most = 3, 10
		return len(value) >= fewest && len(value) <= most && isDigits(value) || looksSecret(value)
	default:
		return false
	}
}

// constants are values that say whether there is one.
var constants = map[string]bool{
	"": true, "true": true, "false": true, "null": true, "nil": true, "none": true, "undefined": true, "on": true,
	"off": true, "yes": true, "no": true, "enabled": true, "disabled": true, "<nil>": true,
	"?": true, "%s": true, "%v": true, "%d": true, // statements and formats before their values are in
}

func isConstant(value []byte) bool {
	var buf [longestWord]byte
	if len(value) > len(buf) {
		return false
	}
	for i, c := range value {
		buf[i] = lower(c)
	}
	return constants[string(bytes.TrimSpace(buf[:len(value)]))] ||
		len(value) > 1 && value[0] == '$' && isDigits(value[1:]) || isMask(value)
}

// isMask tells whether somebody else has taken something out.
func isMask(value []byte) bool { return len(bytes.Trim(value, "*")) == 0 }

// isNumber tells whether a value counts something.
func isNumber(value []byte) bool {
	for _, c := range value {
		if !isDigit(c) && strings.IndexByte(".,+-%", c) < 0 {
			return false
		}
	}
	return true
}

func isDigits(value []byte) bool {
	for _, c := range value {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

// looksSecret tells whether a value is none that people would choose to read:
// letters and digits, or very long.
func looksSecret(value []byte) bool {
	const fewest, long = 7, 24
	letters, digits := 0, 0
	for _, c := range value {
		switch {
		case isLetter(c):
			letters++
		case isDigit(c):
			digits++
		case strings.IndexByte(" (){}<>;", c) >= 0: // code, or prose
			return false
		}
	}
	return len(value) >= fewest && letters > 0 && digits > 0 && !isAlgorithm(value) || len(value) >= long
}

// isAlgorithm tells of the names that signatures and schemes have.
func isAlgorithm(value []byte) bool {
	const longest = 20
	if len(value) > longest {
		return false
	}
	for _, start := range []string{"sha", "scram", "hmac", "ed25519", "secp", "ecdsa", "rsa", "aes", "oauth", "x509", "kerberos", "sasl"} {
		if foldPrefix(value, start) {
			return true
		}
	}
	return false
}
