package main

import (
	"cmp"
	"fmt"
	"regexp"

	"github.com/servetrace/servetrace/host"
)

// remedies match the advice in error messages of this repository, and have the shell command
// that follows the advice. No command contains the value of a variable, because the value
// may be a secret. The first match counts.
var remedies = []struct {
	advice *regexp.Regexp
	next   string
}{
	// "add NAME:VARIABLE to SERVE_TRACING_PLUGIN_ENV"
	{regexp.MustCompile(`([\w.-]+:[A-Z][A-Z0-9_]*) to ` + host.EnvPluginEnv + `\b`),
		"export " + host.EnvPluginEnv + `="$${` + host.EnvPluginEnv + `:+$$` + host.EnvPluginEnv + `,}$1"`},
	// "VARIABLE: … has no scheme: want http://…"
	{regexp.MustCompile(`\b([A-Z][A-Z0-9_]+): .* has no scheme: want (https?)://`), `export $1="$2://$${$1#*://}"`},
	// "write https:// in VARIABLE"
	{regexp.MustCompile(`\bwrite (https?):// in ([A-Z][A-Z0-9_]+)`), `export $2="$1://$${$2#*://}"`},
	// "set VARIABLE=VALUE"
	{regexp.MustCompile(`\bset ([A-Z][A-Z0-9_]+=[\w./:@%+-]*\w)`), "export $1"},
	// "in VARIABLE, such as VALUE"
	{regexp.MustCompile(`\bin ([A-Z][A-Z0-9_]+), such as ([\w=./:@%+-]*\w)`), "export $1=$2"},
	// "/v1/traces is appended to VARIABLE"
	{regexp.MustCompile(`(/v1/traces) is appended to ([A-Z][A-Z0-9_]+):`), `export $2="$${$2%$1*}"`},
	// "VARIABLE: … is not known: want VALUE, VALUE or VALUE"
	{regexp.MustCompile(`\b([A-Z][A-Z0-9_]+)(?:: |=).*: want ([\w/.-]+)(?:, [\w/.-]+)* or [\w/.-]+(?:$|[\n;])`), "export $1=$2"},
	// "VARIABLE: … is not set"
	{regexp.MustCompile(`\b([A-Z][A-Z0-9_]+):? is (?:not set|empty|missing)\b`), "export $1=VALUE"},
	// "VARIABLE=VALUE: want …"
	{regexp.MustCompile(`(?m)^([A-Z][A-Z0-9_]+)="`), "unset $1"},
	{regexp.MustCompile(`(?m)^(?:configuration refused: )?([A-Z][A-Z0-9_]+): .*\bwant\b`), "unset $1"},
}

// nextIn returns the command of the first of the remedies that matches a text, or "".
func nextIn(text string) string {
	for _, r := range remedies {
		if at := r.advice.FindStringSubmatchIndex(text); at != nil {
			return string(r.advice.ExpandString(nil, r.next, text, at))
		}
	}
	return ""
}

// commandIn matches a command in an error of the host about a plugin's file.
var commandIn = regexp.MustCompile(`(?:run|see): (.+?)(?:, or |, and |\)?$|\)?\n|; )`)

// nextOfFile returns the command that an error of the host about a plugin's file names. The
// text must not come from a plugin, because a plugin could name any command.
func nextOfFile(text string) string {
	if found := commandIn.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return nextIn(text)
}

// nextOfFault returns the command for a wrong setting. path is the service file.
func nextOfFault(f fault, path string) string {
	if f.Line > 0 {
		return editor(path, f.Line)
	}
	return cmp.Or(nextIn(f.Text), "servetrace config check")
}

// editor returns the command that opens a file in an editor. If line is not 0, the command
// goes to this line.
func editor(path string, line int) string {
	at := ""
	if line > 0 {
		at = fmt.Sprintf("+%d ", line)
	}
	return "${EDITOR:-vi} " + at + shellWord(path)
}
