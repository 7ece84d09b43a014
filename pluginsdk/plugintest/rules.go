package plugintest

import (
	"context"
	"fmt"
	"path"
	"slices"
)

// rule is one sentence of the contract and the way to try it.
type rule struct {
	// id never changes: reports of different versions are compared by it. It is
	// GROUP.NAME, lower case.
	id string
	// title says what a plugin that keeps the rule does, in one line.
	title string
	// needs is what the target must be for the rule to apply.
	needs need
	// after are the rules without which this one makes no sense, further up in
	// the table. Where one of them is not kept, this one is skipped.
	after []string
	// shares: it leaves a plugin as it found it, so that one that kept the rule
	// may serve for the next.
	shares bool
	// last: the rule is about what all others have seen, and runs after them.
	last bool
	// input is what the back end must do for the rule; empty: nothing special.
	input Input
	// check tries the rule: nil where the plugin keeps it, a skipError where it
	// does not apply, else what was expected, what was seen and what to do.
	check func(ctx context.Context, t *trial) error
}

// need is what a rule asks of the target.
type need int

const (
	process   need = 1 << iota // a binary
	lifecycle                  // more than a plain OTLP receiver
)

// The rules that others build upon.
var (
	shaken     = []string{"handshake.line"}
	connected  = []string{"handshake.line", "handshake.version", "handshake.plain", "handshake.socket"}
	described  = slices.Concat(connected, []string{"describe.answered"})
	configured = slices.Concat(described, []string{"describe.variables", "configure.accepted"})
	delivered  = slices.Concat(configured, []string{"export.delivered"})
)

// rules is the table, in the order of a plugin's life.
func rules() []rule {
	return slices.Concat(
		handshakeRules(),
		serviceRules(),
		describeRules(),
		atStartRules(),
		configureRules(),
		exportRules(),
		failureRules(),
		startRules(),
		flushRules(),
		endRules(),
		configureLastRules(),
		exportLastRules(),
	)
}

// selectRules gives the rules of the table that a pattern names, and those that
// they build upon. No patterns: all.
func selectRules(table []rule, patterns []string) ([]rule, error) {
	if len(patterns) == 0 {
		return table, nil
	}
	wanted := map[string]bool{}
	for _, pattern := range patterns {
		named := 0
		for _, r := range table {
			ok, err := path.Match(pattern, r.id)
			if err != nil {
				return nil, fmt.Errorf("rules %q: %w", pattern, err)
			}
			if ok {
				named++
				wanted[r.id] = true
				for _, id := range r.after {
					wanted[id] = true
				}
			}
		}
		if named == 0 {
			return nil, fmt.Errorf("rules %q: there is none of that name; see docs/reference/conformance.md", pattern)
		}
	}
	return slices.DeleteFunc(slices.Clone(table), func(r rule) bool { return !wanted[r.id] }), nil
}
