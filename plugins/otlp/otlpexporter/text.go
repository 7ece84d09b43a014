package otlpexporter

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mostText is how much of a back end's words goes into an error, in bytes, about.
const mostText = 300

// plain makes a text harmless where it is shown: one line, without characters
// that do something to a terminal, and not long.
func plain(s string) string {
	var b strings.Builder
	for i, r := range s {
		if b.Len() >= mostText {
			b.WriteString("…")
			break
		}
		switch {
		case unicode.IsSpace(r):
			if last := b.String(); last != "" && !strings.HasSuffix(last, " ") {
				b.WriteByte(' ')
			}
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case unicode.IsGraphic(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return strings.TrimSpace(b.String())
}

// secrets are what no error may show.
type secrets struct{ texts []string }

// leastSecret is the length below which a value is no secret, in bytes: hiding
// "1" would make every text unreadable.
const leastSecret = 6

// secretsOf takes the values of headers, and of "Bearer abc" also the second
// word.
func secretsOf(headers map[string]string) secrets {
	var s secrets
	for _, value := range headers {
		_, word, _ := strings.Cut(value, " ")
		for _, text := range []string{value, word} {
			if len(text) >= leastSecret {
				s.texts = append(s.texts, text)
			}
		}
	}
	return s
}

// hide takes secrets out of what a back end says, which may quote them. It is to
// be called before a text is cut, which may cut a secret.
func (s secrets) hide(text string) string {
	for _, secret := range s.texts {
		text = strings.ReplaceAll(text, secret, "<redacted>")
	}
	return text
}
