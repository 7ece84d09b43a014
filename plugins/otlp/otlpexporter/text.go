package otlpexporter

import (
	"strconv"
	"strings"
)

// maxText is the approximate bound on a back end's message in an error, in bytes.
const maxText = 300

// plain returns s as a single short line without characters that affect a terminal.
func plain(s string) string {
	quoted := strconv.QuoteToGraphic(strings.Join(strings.Fields(s), " "))
	text := unescaper.Replace(quoted[1 : len(quoted)-1])
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// unescaper removes the escapes that only quotes need.
var unescaper = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// secrets holds texts that errors must not contain.
type secrets struct{ texts []string }

// minSecret is the length of the shortest secret, in bytes. To redact "1" would make every
// text unreadable.
const minSecret = 6

// secretsOf returns the values of headers as secrets. For "Bearer abc" it also adds the
// second word.
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

// redact replaces secrets in a back end's message, which may quote them. Call it before
// the text is cut, because a cut secret is not recognised.
func (s secrets) redact(text string) string {
	for _, secret := range s.texts {
		text = strings.ReplaceAll(text, secret, "<redacted>")
	}
	return text
}
