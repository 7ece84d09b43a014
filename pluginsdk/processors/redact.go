package processors

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Redacted stands where something was taken out.
const Redacted = "[REDACTED]"

// RedactConfig says what [Redact] takes out. The zero value is all of the
// built-in rules.
type RedactConfig struct {
	// Name in the books. Empty: "redact".
	Name string `yaml:"name"`
	// BlockedKeys are globs of attribute keys whose values are taken out whole,
	// in any case of letters, beside the built-in ones ([BlockedKeys]): "*ssn*".
	BlockedKeys []string `yaml:"blocked_keys"`
	// BlockedValues are regular expressions (RE2, https://go.dev/s/re2syntax) of
	// what is taken out of texts, beside the built-in patterns: `EMP-[0-9]{6}`.
	// They also see numbers, in decimal.
	BlockedValues []string `yaml:"blocked_values"`
	// IgnoredKeys are globs of keys whose values are left as they are, even if a
	// blocked key's glob matches too, and whatever is in them: "gen_ai.*".
	IgnoredKeys []string `yaml:"ignored_keys"`
	// AllowedValues are regular expressions of what is not taken out although a
	// pattern found it; they stand for all of what was found:
	// `.*@example\.com`.
	AllowedValues []string `yaml:"allowed_values"`
	// Without lists built-in rules to leave out: "keys", "userinfo", "bearer",
	// "jwt", "token", "aws", "private_key", "command", "assignment", "email",
	// "card". Nil: none is left out.
	Without []string `yaml:"without"`
	// MaxValueBytes is the longest text that is looked through; a longer one is
	// taken out whole. Zero: 256 KiB.
	MaxValueBytes int `yaml:"max_value_bytes"`
	// MaxDepth is how many arrays and maps may stand within one another; what is
	// deeper is taken out whole. Zero: 16. At most 64.
	MaxDepth int `yaml:"max_depth"`
	// KeepUnknownFields lets spans pass that have fields which OTLP did not
	// define when this was built. The patterns look for texts in them, but keys
	// can not be told. By default such spans are dropped.
	KeepUnknownFields bool `yaml:"keep_unknown_fields"`
}

const (
	defaultMaxValueBytes = 256 << 10
	defaultMaxDepth      = 16
	maxMaxDepth          = 64 // below the SDK's own bound
)

// BlockedKeys gives the built-in globs of keys whose values are taken out,
// whatever they are. The slice is the caller's. Keys are read word by word too,
// in camel, snake or kebab case, one or many: see [Redact].
func BlockedKeys() []string {
	return []string{
		"*password*", "*passwd*", "*passphrase*", "pwd", "*.pwd", "*_pwd", "pass", "*.pass", "*_pass", "*secret*", "*credential*",
		"*authorization*", "*cookie*", "*api?key*", "*apikey*", "*access?key*", "*accesskey*", "*private?key*",
		"*privatekey*", "*session?id", "*sessionid", "*token", "*access?token*", "*auth?token*", "*refresh?token*",
		"*connection?string*", "*connectionstring*",
	}
}

// withoutKeys is what RedactConfig.Without calls the built-in globs of keys.
const withoutKeys = "keys"

// Validate names all faults, each a [*pluginsdk.ConfigError].
func (c RedactConfig) Validate() error {
	_, err := c.compile()
	return err
}

// Redact takes secrets out of spans and leaves "[REDACTED]" in their place:
//
//   - keys: values of attributes with a telling key ([BlockedKeys], and others
//     by their last words: "userPasswords", "signing-key"). Under some keys
//     ("tokens", "auth", "signature", "pin") only values that are no counts, or
//     look like secrets. In an array what follows an option of a command line
//     that tells ("--password"), and the second of a pair; in a map the value
//     beside a name that tells: {"name": "password", "value": …}
//
// and, in every other text,
//
//   - userinfo: user and password in a URL, or in a DSN of Go's MySQL driver or
//     of Oracle, or in "user:password@host:port"
//   - bearer: what follows "Bearer", "Negotiate" or "Digest", or "Basic" if it is
//     user and password
//   - jwt: JSON Web Tokens, signed or encrypted
//   - token: API tokens by their prefix (GitHub, GitLab, Slack, Stripe, OpenAI,
//     Anthropic, Google, npm, PyPI, Hugging Face, Vault, SendGrid, DigitalOcean,
//     Databricks, Shopify, Linear, Docker, Grafana, Sentry, Groq, Replicate, xAI,
//     Perplexity, Tailscale, New Relic, Pulumi, Square, Atlassian, age), and the
//     addresses of webhooks (Slack, Discord, Teams) and Telegram's bots
//   - aws: AWS access key ids, and secret keys in the same text
//   - private_key: private keys in PEM
//   - command: "curl -u user:password", and the like of other programs with
//     options of one letter
//   - assignment: the value in "password=…", "api_key: …", "Authorization: …",
//     "--token …", "IDENTIFIED BY '…'", "INSERT INTO t (password) VALUES (…)",
//     "<password>…</password>"; one in quotes or brackets to their end, or to that
//     of the text where it was cut
//   - email: mail addresses
//   - card: card numbers whose check digit is right (Luhn), also as numbers
//   - whatever RedactConfig.BlockedValues say
//
// Escapes hide nothing: a text is also looked at without percent-encoding, those
// of JSON (\u0070, \/, \n), entities of XML and colours of terminals, and without
// those of the result; one that is escaped a third time is taken out whole.
//
// It looks at attributes of spans, resources, scopes, events and links, in
// arrays and maps to any depth allowed, at their keys (an attribute whose key
// holds a secret is removed), at bytes that are text, at names of spans and
// events, and at status messages. It knows secrets by their form: one of no
// known form under a harmless key is not found, such as "the password hunter2"
// in prose, or one that is encoded in base64, compressed, or in pieces.
//
// It fails closed: what it can not check does not leave. A value that is too
// long, too deep, or no UTF-8 (bytes included) is taken out whole; an attribute
// whose key is no UTF-8 is removed. A span is dropped, and counted as filtered,
// if there is something where nothing can be edited: in its trace state, ids,
// schema URL, or scope name; in a field that OTLP did not define when this was
// built, whatever it holds; or if more than 1,024 attributes of one owner need
// an edit. Where that is so for a resource or a scope, all of its spans are
// dropped. A batch that is malformed, or has such a thing outside of all spans,
// is refused for good.
//
// It sees what stands before it in the list, and what those add. Put it last, so
// that nothing is added behind it.
//
// A batch with nothing to redact is not copied, and costs no allocation, except
// for texts with escapes; in any other a span costs what its redacted values
// take. What comes out once comes out unchanged a second time.
func Redact(c RedactConfig) pluginsdk.NewProcessor {
	return func(_ context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
		rules, err := c.compile()
		if err != nil {
			return nil, within(kindRedact, err)
		}
		return &redact{named: nameOr(c.Name, kindRedact), rules: rules, log: s.Log}, nil
	}
}

// redactRules is a RedactConfig ready for use.
type redactRules struct {
	blocked, ignored globs
	patterns         []pattern
	names            bool // names tell of secrets, beside the globs
	own              bool // some of the patterns are the operator's
	allowed          []*regexp.Regexp
	maxBytes         int
	maxDepth         int
	keepUnknown      bool
}

func (c RedactConfig) compile() (*redactRules, error) {
	var f faults
	f.checkName(c.Name)
	rules := &redactRules{
		ignored:     newGlobs(c.IgnoredKeys, true),
		maxBytes:    c.MaxValueBytes,
		maxDepth:    c.MaxDepth,
		keepUnknown: c.KeepUnknownFields,
	}
	if rules.maxBytes == 0 {
		rules.maxBytes = defaultMaxValueBytes
	}
	if rules.maxDepth == 0 {
		rules.maxDepth = defaultMaxDepth
	}
	if rules.maxBytes < 0 {
		f.add("max_value_bytes", "%d is negative: give a number of bytes, or 0 for %d", rules.maxBytes, defaultMaxValueBytes)
	}
	if rules.maxDepth < 0 || rules.maxDepth > maxMaxDepth {
		f.add("max_depth", "%d: want 1 to %d, or 0 for %d", rules.maxDepth, maxMaxDepth, defaultMaxDepth)
	}
	for i, key := range c.BlockedKeys {
		f.wantGlob(fmt.Sprintf("blocked_keys[%d]", i), key)
	}
	for i, key := range c.IgnoredKeys {
		f.wantGlob(fmt.Sprintf("ignored_keys[%d]", i), key)
	}
	without := c.builtIns(&f)
	rules.blocked = newGlobs(c.BlockedKeys, true)
	if !without[withoutKeys] {
		rules.names = true
		rules.blocked = append(rules.blocked, newGlobs(BlockedKeys(), true)...)
	}
	for _, p := range builtInPatterns() {
		if !without[p.name] {
			rules.patterns = append(rules.patterns, p)
		}
	}
	for i, text := range c.BlockedValues {
		path := fmt.Sprintf("blocked_values[%d]", i)
		re := f.compile(path, text)
		if re != nil && re.MatchString("") {
			f.add(path, "%q matches the empty text: make it match at least one character", text)
		}
		rules.patterns = append(rules.patterns, pattern{name: "blocked_values", re: re})
		rules.own = true
	}
	for i, text := range c.AllowedValues {
		path := fmt.Sprintf("allowed_values[%d]", i)
		if f.compile(path, text) == nil { // by itself, so that it can not close the group below
			continue
		}
		whole, err := regexp.Compile(`\A(?:` + text + `)\z`)
		if err != nil {
			f.add(path, "%q is too large a regular expression: %w", text, err)
			continue
		}
		rules.allowed = append(rules.allowed, whole)
	}
	return rules, f.err()
}

// builtIns checks the names of what to leave out.
func (c RedactConfig) builtIns(f *faults) map[string]bool {
	known := map[string]bool{withoutKeys: true}
	for _, p := range builtInPatterns() {
		known[p.name] = true
	}
	without := map[string]bool{}
	for i, name := range c.Without {
		if !known[name] {
			f.add(fmt.Sprintf("without[%d]", i), "%q is no built-in rule: want some of %s",
				name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		without[name] = true
	}
	return without
}

func (f *faults) wantGlob(path, pattern string) {
	if pattern == "" {
		f.add(path, "is empty: give a key, or a glob such as \"*ssn*\"")
	}
}

// compile compiles a regular expression. It is nil after a fault.
func (f *faults) compile(path, text string) *regexp.Regexp {
	if text == "" {
		f.add(path, "is empty: give a regular expression")
		return nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		f.add(path, "%q is no regular expression of RE2: %w", text, err)
		return nil
	}
	return re
}

type redact struct {
	named
	rules *redactRules
	log   *slog.Logger // nil in some tests
	once  sync.Once    // for the log line about dropped spans
	spare sync.Pool    // of *redactWalk
}

var (
	_ pluginsdk.Processor = (*redact)(nil)
	_ pluginsdk.Named     = (*redact)(nil)
)

func (p *redact) Process(_ context.Context, b *pluginsdk.Batch) error {
	w, ok := p.spare.Get().(*redactWalk)
	if !ok {
		w = newRedactWalk(p.rules)
	}
	defer p.spare.Put(w)
	w.reset(b)
	defer w.reset(nil)
	raw := b.Bytes()
	if err := outerLevels(b, raw); err != nil {
		return err
	}
	if err := w.request(raw); err != nil {
		return err
	}
	if w.reason != "" && p.log != nil {
		p.once.Do(func() {
			p.log.Warn("redact drops spans that it can not check; it says so once, the books count them", "reason", w.reason)
		})
	}
	return nil
}
