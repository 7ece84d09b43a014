package processors

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// RedactConfig configures [Redact]. The zero value applies all built-in rules.
type RedactConfig struct {
	// Name is the name in the delivery accounting. Empty means "redact".
	Name string `yaml:"name"`
	// BlockedKeys are globs. The value of a key that matches one of them is redacted, as
	// for the globs of [BlockedKeys]. Example: "*ssn*". Case is ignored.
	BlockedKeys []string `yaml:"blocked_keys"`
	// BlockedValues are regular expressions (RE2, https://go.dev/s/re2syntax) of secrets
	// anywhere in a text, in addition to the built-in rules. Example: `EMP-[0-9]{6}`. They
	// also apply to numbers, written in decimal.
	BlockedValues []string `yaml:"blocked_values"`
	// IgnoredKeys are globs. The value of a key that matches one of them is never redacted,
	// even if a glob of blocked keys matches too. Example: "gen_ai.*". Case is ignored.
	IgnoredKeys []string `yaml:"ignored_keys"`
	// AllowedValues are regular expressions. A secret that one of them matches from start
	// to end is not redacted. Example: `.*@example\.com`.
	AllowedValues []string `yaml:"allowed_values"`
	// Without lists built-in rules to leave out: "keys", "userinfo", "bearer",
	// "token", "private_key", "assignment", "email", "card".
	Without []string `yaml:"without"`
}

// BlockedKeys returns the built-in globs of keys with values to redact. The caller owns
// the slice.
func BlockedKeys() []string {
	return []string{
		"*password*", "*passwd*", "*passphrase*", "pwd", "*.pwd", "*_pwd", "pass", "*.pass", "*_pass", "*secret*", "*credential*",
		"*authorization*", "*cookie*", "*api?key*", "*apikey*", "*access?key*", "*accesskey*", "*account?key*", "*accountkey*",
		"*private?key*", "*privatekey*", "*signing?key*", "*signingkey*", "*session?id", "*sessionid", "*sessid", "*token",
		"*access?token*", "*accesstoken*", "*auth?token*", "*authtoken*", "*refresh?token*", "*refreshtoken*",
		"*connection?string*", "*connectionstring*", "sig", "x-amz-signature", "x-goog-signature",
	}
}

const ruleKeys = "keys" // the name of BlockedKeys in RedactConfig.Without

// removedRules are rules of earlier versions, each with the reason for its removal, for
// operators.
var removedRules = map[string]string{
	"jwt":     `it is part of "token"`,
	"aws":     `access key ids are part of "token"; secret keys are redacted by their key only`,
	"command": "there is no rule for command lines; use blocked_values",
}

// removedKeys are keys of redact in earlier versions, each with its successor.
var removedKeys = map[string]string{
	"max_value_bytes":     "was removed: texts of every length are searched; SERVE_TRACING_MAX_SPAN_BYTES limits the size of a span. Remove it",
	"max_depth":           "was removed: arrays and maps are searched at every depth. Remove it",
	"keep_unknown_fields": "was removed: redact always keeps fields that OTLP does not define. Remove it",
}

// Validate returns all errors joined, each a [*pluginsdk.ConfigError].
func (c RedactConfig) Validate() error {
	_, err := c.compile()
	return err
}

func (c RedactConfig) compile() (*redactRules, error) {
	var f faults
	f.checkName(c.Name)
	f.wantGlobs("blocked_keys", c.BlockedKeys)
	f.wantGlobs("ignored_keys", c.IgnoredKeys)
	without := c.builtIns(&f)
	rules := &redactRules{
		ignored:     newGlobs(c.IgnoredKeys),
		blocked:     newGlobs(c.BlockedKeys),
		secretNames: newGlobs(slices.Concat(c.BlockedKeys, BlockedKeys())),
	}
	if !without[ruleKeys] {
		rules.blocked = rules.secretNames
	}
	for _, p := range patterns {
		if !without[p.rule] {
			rules.patterns = append(rules.patterns, p)
		}
	}
	for i, text := range c.BlockedValues {
		path := fmt.Sprintf("blocked_values[%d]", i)
		re := f.compile(path, text)
		if re != nil && re.MatchString("") {
			f.add(path, "%q matches the empty text: make it match at least one character", text)
		}
		rules.blockedValues = append(rules.blockedValues, re)
	}
	for i, text := range c.AllowedValues {
		path := fmt.Sprintf("allowed_values[%d]", i)
		if f.compile(path, text) == nil { // the text is compiled alone first, because it could close the group below
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

// builtIns returns the set of rules to leave out.
func (c RedactConfig) builtIns(f *faults) map[string]bool {
	known := map[string]bool{ruleKeys: true}
	for _, p := range patterns {
		known[p.rule] = true
	}
	without := map[string]bool{}
	for i, rule := range c.Without {
		path := fmt.Sprintf("without[%d]", i)
		if reason := removedRules[rule]; reason != "" {
			f.add(path, "%q is no longer a rule: %s", rule, reason)
		} else if !known[rule] {
			f.add(path, "%q is no built-in rule: want some of %s", rule, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		without[rule] = true
	}
	return without
}

func (f *faults) wantGlobs(path string, list []string) {
	for i, text := range list {
		if text == "" {
			f.add(fmt.Sprintf("%s[%d]", path, i), "is empty: give a key, or a glob such as \"*ssn*\"")
		}
	}
}

// compile compiles a regular expression. It returns nil after an error.
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
