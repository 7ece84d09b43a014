package processors

import (
	"encoding/json"
	"strings"
)

// json returns a valid JSON text with the secrets in its strings and numbers replaced.
// All other bytes stay unchanged.
func (r *redactRules) json(text string) string {
	e := jsonEdit{rules: r, text: text, decoder: json.NewDecoder(strings.NewReader(text))}
	e.decoder.UseNumber()
	e.value(false)
	e.out.WriteString(text[e.copied:])
	return e.out.String()
}

// jsonEdit is one pass over a JSON text.
type jsonEdit struct {
	rules   *redactRules
	text    string
	decoder *json.Decoder
	out     strings.Builder
	copied  int // number of bytes of text that out already has, unchanged or redacted
}

// value redacts the next JSON value of the text. If blocked is true, because of the key
// before it, it replaces each string and number inside of the value.
func (e *jsonEdit) value(blocked bool) {
	token, start := e.next()
	switch token := token.(type) {
	case json.Delim:
		for e.decoder.More() {
			rule := keyPlain
			if token == '{' {
				key, _ := e.next()
				name, _ := key.(string)
				rule = e.rules.keyRule(name)
			}
			if rule == keyIgnored && !blocked {
				e.skip()
				continue
			}
			e.value(blocked || rule == keyBlocked)
		}
		e.next() // the closing delimiter
	case string:
		e.replace(start, token, blocked)
	case json.Number:
		e.replace(start, token.String(), blocked)
	}
}

// next returns the next JSON token, and the index in text at which it starts.
func (e *jsonEdit) next() (token json.Token, start int) {
	start = int(e.decoder.InputOffset())
	token, err := e.decoder.Token()
	if err != nil { // cannot happen, because the text is valid JSON
		return nil, start
	}
	start += len(e.text[start:]) - len(strings.TrimLeft(e.text[start:], " \t\r\n,:"))
	return token, start
}

func (e *jsonEdit) skip() {
	var raw json.RawMessage
	_ = e.decoder.Decode(&raw) // cannot fail, because the text is valid JSON
}

// replace writes the text up to the last token and then the redacted token to out, if the
// token has a secret. start is the index of the token, and value its decoded form.
func (e *jsonEdit) replace(start int, value string, blocked bool) {
	redacted := Redacted
	if !blocked {
		redacted = e.rules.plainText(value)
	}
	if redacted == value || value == "" {
		return
	}
	var quoted strings.Builder
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(redacted) // cannot fail for a string
	e.out.WriteString(e.text[e.copied:start])
	e.out.WriteString(strings.TrimSuffix(quoted.String(), "\n"))
	e.copied = int(e.decoder.InputOffset())
}
