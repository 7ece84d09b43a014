package processors

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// RedactConfig configures [Redact]. The zero value has all built-in rules.
type RedactConfig struct {
	// Name is the processor's name in the delivery accounting, in which the host counts
	// dropped spans. Empty means "redact".
	Name string `yaml:"name"`
	// BlockedKeys are globs in addition to the built-in globs of [BlockedKeys]. The whole
	// value of an attribute is redacted if its key matches one of them. Example: "*ssn*".
	// Case is ignored.
	BlockedKeys []string `yaml:"blocked_keys"`
	// BlockedValues are regular expressions (RE2, https://go.dev/s/re2syntax), in addition
	// to the built-in rules. Each match in a text is redacted. Example: `EMP-[0-9]{6}`.
	// Numbers are searched in their decimal form.
	BlockedValues []string `yaml:"blocked_values"`
	// IgnoredKeys are globs. The value of an attribute is never redacted if its key matches
	// one of them, even if it also matches a glob for blocked keys. Example: "gen_ai.*".
	// Case is ignored.
	IgnoredKeys []string `yaml:"ignored_keys"`
	// AllowedValues are regular expressions. A secret is not redacted if one of them matches
	// all of it. Example: `.*@example\.com`.
	AllowedValues []string `yaml:"allowed_values"`
	// Without lists the names of built-in rules to leave out: "keys", "userinfo", "bearer",
	// "token", "private_key", "assignment", "email", "card". Their meaning is described at
	// [Redact].
	Without []string `yaml:"without"`
}

// BlockedKeys returns the built-in globs for keys of attributes whose values [Redact]
// replaces. The caller owns the slice.
func BlockedKeys() []string {
	return []string{
		"*password*", "*passwd*", "*passphrase*", "pwd", "*.pwd", "*_pwd", "pass", "*.pass", "*_pass", "*secret*", "*credential*",
		"*authorization*", "*cookie*", "*api?key*", "*apikey*", "*access?key*", "*accesskey*", "*account?key*", "*accountkey*",
		"*private?key*", "*privatekey*", "*signing?key*", "*signingkey*", "*session?id", "*sessionid", "*sessid", "*token",
		"*access?token*", "*accesstoken*", "*auth?token*", "*authtoken*", "*refresh?token*", "*refreshtoken*",
		"*connection?string*", "*connectionstring*", "sig", "x-amz-signature", "x-goog-signature",
	}
}

const ruleKeys = "keys" // the name of the rule for blocked keys

// removedRules lists names for Without that only earlier versions accept, each with
// advice for operators.
var removedRules = map[string]string{
	"jwt":     `it is part of "token"`,
	"aws":     `access key ids are part of "token"; secret keys are redacted by their key only`,
	"command": "there is no rule for command lines; use blocked_values",
}

// removedKeys lists keys in the configuration of redact that only earlier versions
// accept, each with advice for operators.
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
		if f.compile(path, text) == nil { // the text is compiled alone first, because a ")" in it could close the group below
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

// builtIns checks the names in Without, and returns them as a set.
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

// compile compiles a regular expression of an operator. For an invalid one it adds an
// error and returns nil.
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
