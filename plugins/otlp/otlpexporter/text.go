package otlpexporter

import (
	"strconv"
	"strings"
)

// maxText is the length, in bytes, to which plain cuts a text.
const maxText = 300

// plain returns s as a single line of at most about maxText bytes, in which control
// characters are escaped. It is for texts of a back end in logs and errors.
func plain(s string) string {
	quoted := strconv.QuoteToGraphic(strings.Join(strings.Fields(s), " "))
	text := unescaper.Replace(quoted[1 : len(quoted)-1])
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// unescaper replaces an escaped backslash or quote by the character itself.
var unescaper = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// secrets holds texts that must not appear in logs and errors.
type secrets struct{ texts []string }

// minSecret is the length, in bytes, of the shortest text that is redacted. To redact a
// text such as "1" would make messages unreadable.
const minSecret = 6

// secretsOf returns the values of headers as secrets. For a value such as "Bearer abc" it
// also adds the second word.
func secretsOf(headers map[string]string) secrets {
	var s secrets
	for _, value := range headers {
		_, word, _ := strings.Cut(value, " ")
		for _, text := range []string{value, word} {
			if len(text) >= minSecret {
				s.texts = append(s.texts, text)
			}
		}
	}
	return s
}

// redact replaces secrets in a text of the back end, which may contain them. Call it
// before the text is cut, because a part of a secret is not recognised.
func (s secrets) redact(text string) string {
	for _, secret := range s.texts {
		text = strings.ReplaceAll(text, secret, "<redacted>")
	}
	return text
}
