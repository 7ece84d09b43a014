package launch

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// redacted stands where a secret stood.
const redacted = "<redacted>"

// minSecret is the shortest text, in bytes, that is taken for a secret: a
// shorter one is a word that stands everywhere.
const minSecret = 6

// redactor takes secrets out of what a plugin prints. Nil takes nothing out.
// It never changes: safe for concurrent use.
type redactor struct {
	secrets [][]byte
	longest int // of the secrets, bytes
}

// newRedactor makes a redactor of secrets, in each form in which a program
// prints them: as they are, quoted as JSON or Go does, once and twice, and line by line; whole
// also in base64, in hexadecimal and percent-encoded.
func newRedactor(secrets []string) *redactor {
	r := &redactor{}
	for _, secret := range secrets {
		for _, form := range append(slices.Collect(strings.Lines(secret)), secret) {
			form = strings.TrimSpace(form)
			r.add([]byte(form))
			for _, once := range quotes(form) {
				r.add([]byte(once))
				for _, twice := range quotes(once) { // an error that quotes, as a text of a log in JSON
					r.add([]byte(twice))
				}
			}
		}
		for _, text := range encodings(strings.TrimSpace(secret)) {
			r.add([]byte(text))
		}
	}
	if len(r.secrets) == 0 {
		return nil
	}
	return r
}

func (r *redactor) add(secret []byte) {
	if len(secret) >= minSecret && !slices.ContainsFunc(r.secrets, func(s []byte) bool { return bytes.Equal(s, secret) }) {
		r.secrets = append(r.secrets, secret)
		r.longest = max(r.longest, len(secret))
	}
}

// quotes are text as it stands between the quotes of JSON and of Go.
func quotes(text string) []string {
	quoted := strconv.Quote(text)
	return []string{jsonQuoted(text, true), jsonQuoted(text, false), quoted[1 : len(quoted)-1]}
}

// jsonQuoted is text as it stands between the quotes of JSON.
func jsonQuoted(text string, escapeHTML bool) string {
	var buf strings.Builder
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(escapeHTML)
	if err := enc.Encode(text); err != nil {
		return text // cannot happen: a string can be encoded
	}
	quoted := strings.TrimSuffix(buf.String(), "\n")
	return quoted[1 : len(quoted)-1]
}

// mostEncoded is the longest secret, in bytes, that is also known encoded: for
// each of them that much more of a line is held, and searched for.
const mostEncoded = 4 << 10

// encodings are how a secret stands in an address, in a dump of bytes, and in
// the base64 of a longer text, such as a header of user and password.
func encodings(secret string) []string {
	if len(secret) < minSecret || len(secret) > mostEncoded {
		return nil
	}
	all := []string{
		url.QueryEscape(secret), url.PathEscape(secret),
		hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
	}
	const group = 3 // bytes, which are four signs
	for before := range group {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), secret...))
		if before > 0 {
			text = text[before+1:] // signs that bytes before it share
		}
		if (before+len(secret))%group > 0 {
			text = text[:len(text)-1] // that bytes behind it share
		}
		all = append(all, text, strings.NewReplacer("+", "-", "/", "_").Replace(text))
	}
	return all
}

// margin is how much of a text must be known before and after what is shown of
// it, for a secret that is cut there to be seen.
func (r *redactor) margin() int {
	if r == nil {
		return 0
	}
	return r.longest - 1
}

// text is a text without the secrets.
func (r *redactor) text(text string) string {
	if r == nil {
		return text
	}
	return string(r.window([]byte(text), 0, len(text)))
}

// window is what text[from:to] is without the secrets, also those that begin
// before it or end after it. The result may be a part of text.
func (r *redactor) window(text []byte, from, to int) []byte {
	found := r.find(text)
	if len(found) == 0 {
		return text[from:to]
	}
	var out []byte
	for _, f := range found {
		if f.end <= from || f.start >= to {
			continue
		}
		out = append(out, text[from:max(from, f.start)]...)
		out = append(out, redacted...)
		from = min(f.end, to)
	}
	return append(out, text[from:to]...)
}

// span is where a secret stands.
type span struct{ start, end int }

// find gives where secrets stand, in order; those that overlap or touch are
// one.
func (r *redactor) find(text []byte) []span {
	if r == nil {
		return nil
	}
	var all []span
	for _, secret := range r.secrets {
		for at := 0; ; at++ { // one may overlap itself
			i := bytes.Index(text[at:], secret)
			if i < 0 {
				break
			}
			at += i
			all = append(all, span{at, at + len(secret)})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.start - b.start })
	merged := all[:0]
	for _, s := range all {
		if n := len(merged); n > 0 && s.start <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, s.end)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}
