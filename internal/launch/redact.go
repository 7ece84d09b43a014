package launch

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/internal/wire"
)

// redacted is the text that replaces a secret.
const redacted = "<redacted>"

// minSecret is the length of the shortest secret, in bytes. A shorter text often occurs by
// chance in other text.
const minSecret = 6

// Redactor removes secrets from the text that a plugin prints or sends by RPC. The zero
// Redactor removes nothing. It never changes and is safe for concurrent use.
type Redactor struct {
	secrets [][]byte
	longest int // length of the longest secret, in bytes
}

// NewRedactor returns a Redactor that finds these secrets, see Command.Secrets. It finds each
// secret and each line of a secret, as it is, and quoted once or twice as JSON or Go quotes
// text. It also finds a whole secret in base64, in hexadecimal digits and percent-encoded.
func NewRedactor(secrets []string) Redactor {
	var r Redactor
	for _, secret := range secrets {
		for _, form := range append(slices.Collect(strings.Lines(secret)), secret) {
			form = strings.TrimSpace(form)
			r.add(form)
			for _, once := range quotes(form) {
				r.add(once)
				for _, twice := range quotes(once) { // an error may quote the secret, and a log line in JSON quotes the error
					r.add(twice)
				}
			}
		}
		for _, text := range encodings(strings.TrimSpace(secret)) {
			r.add(text)
		}
	}
	return r
}

// add adds a text to the secrets, unless it is too short or known.
func (r *Redactor) add(text string) {
	secret := []byte(text)
	if len(secret) >= minSecret && !slices.ContainsFunc(r.secrets, func(s []byte) bool { return bytes.Equal(s, secret) }) {
		r.secrets = append(r.secrets, secret)
		r.longest = max(r.longest, len(secret))
	}
}

// quotes returns text as JSON and Go write it between quotes.
func quotes(text string) []string {
	quoted := strconv.Quote(text)
	return []string{jsonQuoted(text, true), jsonQuoted(text, false), quoted[1 : len(quoted)-1]}
}

// jsonQuoted returns text between the quotes of JSON.
func jsonQuoted(text string, escapeHTML bool) string {
	var buf strings.Builder
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(escapeHTML)
	_ = enc.Encode(text) // cannot fail for a string
	quoted := strings.TrimSuffix(buf.String(), "\n")
	return quoted[1 : len(quoted)-1]
}

// maxEncoded is the length of the longest secret that is also found in base64 and other
// encodings, in bytes. Each encoding makes the search slower and needs longer kept lines.
const maxEncoded = 4 << 10

// encodings returns the secret as it appears in a URL, in a dump of bytes, and inside the
// base64 encoding of a longer text, such as a header with user and password.
func encodings(secret string) []string {
	if len(secret) < minSecret || len(secret) > maxEncoded {
		return nil
	}
	all := []string{
		url.QueryEscape(secret), url.PathEscape(secret),
		hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
	}
	const group = 3 // base64 encodes three bytes as four characters
	for before := range group {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), secret...))
		if before > 0 {
			text = text[before+1:] // the first characters depend on the bytes before the secret
		}
		if (before+len(secret))%group > 0 {
			text = text[:len(text)-1] // the last character depends on the byte after the secret
		}
		all = append(all, text, strings.NewReplacer("+", "-", "/", "_").Replace(text))
	}
	return all
}

// margin returns the number of bytes that must be kept before and after a shown part of a
// text. With these bytes, a secret that is only partly in the shown part is found.
func (r Redactor) margin() int { return max(0, r.longest-1) }

// Text returns text with "<redacted>" in place of the secrets. It must be called before
// the text is cut, because a cut secret is not found.
func (r Redactor) Text(text string) string {
	if len(r.secrets) == 0 {
		return text
	}
	return string(r.window([]byte(text), 0, len(text)))
}

// Texts returns the texts without the secrets.
func (r Redactor) Texts(texts []string) []string {
	if len(r.secrets) == 0 {
		return texts
	}
	shown := make([]string, len(texts))
	for i, text := range texts {
		shown[i] = r.Text(text)
	}
	return shown
}

// redactErrors returns a dial option that removes secrets from the errors of calls. A
// plugin that quotes its back end may quote its own key.
func (r Redactor) redactErrors() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
		conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, conn, opts...)
		if err == nil || len(r.secrets) == 0 {
			return err
		}
		return wire.Reword(err, r.Text)
	})
}

// window returns text[from:to] without the secrets. It also removes a secret that begins
// before from or ends after to. The result may share the memory of text.
func (r Redactor) window(text []byte, from, to int) []byte {
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

// span is a range of bytes in a text.
type span struct{ start, end int }

// find returns the merged ranges of all secrets in text, in order.
func (r Redactor) find(text []byte) []span {
	var all []span
	for _, secret := range r.secrets {
		for at := 0; ; at++ { // by one byte, because occurrences of a secret may overlap
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
