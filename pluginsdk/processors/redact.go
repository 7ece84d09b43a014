package processors

import (
	"iter"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Redacted is the text that replaces each secret.
const Redacted = "[REDACTED]"

// Redact returns the constructor of a processor that replaces secrets in spans by
// "[REDACTED]". It has these rules, each with a name for RedactConfig.Without:
//
//   - keys: the whole value of an attribute, or of an entry of a map, if the key matches
//     a glob of [BlockedKeys] or RedactConfig.BlockedKeys
//   - userinfo: user and password in a URL
//   - bearer: credentials after "Bearer" and "Basic"
//   - token: API tokens with a known prefix, JSON Web Tokens, AWS access key ids
//     and addresses of webhooks
//   - private_key: private keys in PEM
//   - assignment: the value in "name=value" and "name: value" if name matches one of the
//     globs for blocked keys, also in the query of a URL; and the values of the headers
//     Authorization, Cookie and Set-Cookie, up to the end of the line
//   - email: mail addresses
//   - card: card numbers with a valid check digit (Luhn), also as numbers
//   - the regular expressions in RedactConfig.BlockedValues, which have no name
//
// The processor applies the rules to the names of spans and events, to status messages,
// and to the attributes of spans, resources, scopes, events and links, also inside of
// arrays and maps. If a text is JSON, it applies them to each string and number in it,
// and the rule keys to each key. It does not parse JSON inside of JSON. A number that
// contains a secret becomes a text. Everything else in a span stays unchanged.
//
// It does not search keys of attributes, trace state, schema URLs, and names and versions
// of scopes. It does not decode percent-encoding, base64 or other encodings. It has no
// rules for SQL, XML and command lines. The page docs/reference/processors.md has
// examples of secrets that are found, and of secrets that are not found.
//
// Put Redact last, because it also redacts attributes that earlier processors add. It
// drops no span, and does not change a span without secrets. A second Redact does not
// change a redacted span.
func Redact(c RedactConfig) pluginsdk.NewProcessor {
	return constructor(kindRedact, c.Name, func(pluginsdk.Setup) (func(*pluginsdk.Batch), error) {
		rules, err := c.compile()
		return func(b *pluginsdk.Batch) { redactor{rules, map[string]keyRule{}}.batch(b) }, err
	})
}

// redactor applies the compiled rules to one batch.
type redactor struct {
	*redactRules
	keys map[string]keyRule // results of keyRule for the keys seen so far, because most keys occur many times in a batch
}

func (r redactor) batch(b *pluginsdk.Batch) {
	for resource := range b.Resources() {
		redactAttributes(r, resource)
	}
	for scope := range b.Scopes() {
		redactAttributes(r, scope)
	}
	for span := range b.Spans() {
		r.span(span)
	}
}

func (r redactor) span(span pluginsdk.Span) {
	if name := span.Name(); r.text(name) != name {
		span.SetName(r.text(name))
	}
	if code, message := span.Status(); r.text(message) != message {
		span.SetStatus(code, r.text(message))
	}
	redactAttributes(r, span)
	for event := range span.Events() {
		if name := event.Name(); r.text(name) != name {
			event.SetName(r.text(name))
		}
		redactAttributes(r, event)
	}
	for link := range span.Links() {
		redactAttributes(r, link)
	}
}

// attributed is an object with attributes: a span, resource, scope, event or link.
type attributed interface {
	Attribute(key attribute.Key) (attribute.Value, bool)
	Attributes() iter.Seq[attribute.KeyValue]
	SetAttributes(kvs ...attribute.KeyValue)
	DeleteAttributes(keys ...attribute.Key)
}

func redactAttributes[T attributed](r redactor, owner T) {
	for kv := range owner.Attributes() {
		if value, changed := r.value(kv); changed {
			owner.SetAttributes(attribute.KeyValue{Key: kv.Key, Value: value})
		}
	}
}

// value returns the redacted value of an attribute, or of an entry of a map. changed
// reports whether it differs from the original value.
func (r redactor) value(kv attribute.KeyValue) (value attribute.Value, changed bool) {
	rule, known := r.keys[string(kv.Key)]
	if !known {
		rule = r.keyRule(string(kv.Key))
		r.keys[string(kv.Key)] = rule
	}
	switch rule {
	case keyIgnored:
		return kv.Value, false
	case keyBlocked:
		mark := attribute.StringValue(Redacted)
		return mark, kv.Value != mark && kv.Value.Type() != attribute.EMPTY
	default:
		return r.content(kv.Value)
	}
}

// content searches a value for secrets, and returns its redacted form. The key of the
// value does not count. changed reports whether the result differs from v.
func (r redactor) content(v attribute.Value) (redacted attribute.Value, changed bool) {
	switch v.Type() {
	case attribute.STRING:
		text := r.text(v.AsString())
		return attribute.StringValue(text), text != v.AsString()
	case attribute.INT64, attribute.FLOAT64:
		decimal := v.String()
		text := r.plainText(decimal)
		return attribute.StringValue(text), text != decimal
	case attribute.BYTESLICE:
		text := r.text(string(v.AsByteSlice()))
		return attribute.ByteSliceValue([]byte(text)), text != string(v.AsByteSlice())
	case attribute.MAP:
		members := v.AsMap()
		for i, member := range members {
			if value, differs := r.value(member); differs {
				members[i].Value, changed = value, true
			}
		}
		return attribute.MapValue(members...), changed
	default:
		members := membersOf(v)
		for i, member := range members {
			if value, differs := r.content(member); differs {
				members[i], changed = value, true
			}
		}
		return attribute.SliceValue(members...), changed
	}
}

// membersOf returns the members of a list value. It returns nil for a list of bools,
// which cannot hold secrets, and for other values.
func membersOf(v attribute.Value) (members []attribute.Value) {
	switch v.Type() {
	case attribute.STRINGSLICE:
		for _, text := range v.AsStringSlice() {
			members = append(members, attribute.StringValue(text))
		}
	case attribute.INT64SLICE:
		for _, n := range v.AsInt64Slice() {
			members = append(members, attribute.Int64Value(n))
		}
	case attribute.FLOAT64SLICE:
		for _, n := range v.AsFloat64Slice() {
			members = append(members, attribute.Float64Value(n))
		}
	case attribute.SLICE:
		return v.AsSlice()
	}
	return members
}
