package plugintest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Conformance tests the plugin against every rule of the contract, each in a subtest with
// the rule's id as its name. It blocks until all rules have been tried and every process
// has ended. If the file of a [Binary] is not executable, t fails at once.
func Conformance(t *testing.T, target Target, opts ...Option) {
	t.Helper()
	c, err := newChecker(target, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel() // the flag -run of go test may have left out rules, which still run
	running.Go(func() { c.run(ctx) })
	for _, v := range c.outcomes {
		t.Run(v.rule.id, func(t *testing.T) {
			<-v.done
			switch v.result.Status {
			case Fail:
				t.Errorf("%s\n%s", v.result.Title, v.result.Detail)
			case Skip:
				t.Skip(v.result.inGo())
			case Pass:
			}
		})
	}
}

// Check is [Conformance] without package testing, for a command line. It tests the plugin
// against every rule, and returns a report with the outcome of each rule. It blocks until
// every process has ended. If ctx ends earlier, the remaining rules are skipped. Check
// returns an error if there is nothing to test, for example if the file does not exist.
// It returns no error for a plugin that breaks rules.
func Check(ctx context.Context, target Target, opts ...Option) (*Report, error) {
	c, err := newChecker(target, opts)
	if err != nil {
		return nil, err
	}
	c.run(ctx)
	report := &Report{Target: target.String()}
	for _, v := range c.outcomes {
		report.Results = append(report.Results, v.result)
	}
	return report, nil
}

// checker is one run of the suite against one plugin.
type checker struct {
	settings *settings
	target   Target
	outcomes []*outcome // in the order of the rules in the table
	numbers  *numbering
	seen     observations
	// state is locked while a rule runs: for reading by most rules, and for writing by a
	// rule that changes the state of the back end. So such a rule runs alone.
	state sync.RWMutex

	shake handshake // the plugin's handshake; the rule handshake.line writes it, and later rules read it
	about about     // the answer to Describe; the rule describe.answered writes it, and later rules read it
}

// outcome is a rule, and the result of trying it.
type outcome struct {
	rule   rule
	done   chan struct{} // closed when result is complete
	result Result
}

func newChecker(target Target, opts []Option) (*checker, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	s := newSettings(opts)
	selected, err := selectRules(rules(), s.only)
	if err != nil {
		return nil, err
	}
	c := &checker{settings: s, target: target, numbers: newNumbering()}
	for _, r := range selected {
		c.outcomes = append(c.outcomes, &outcome{
			rule:   r,
			done:   make(chan struct{}),
			result: Result{Rule: r.id, Title: r.title},
		})
	}
	return c, nil
}

// run tries all rules, several at a time, and returns when all have ended.
func (c *checker) run(ctx context.Context) {
	slots := make(chan struct{}, c.settings.parallel)
	var running sync.WaitGroup
	var ended atomic.Int64
	for _, v := range c.outcomes {
		running.Go(func() {
			defer close(v.done)
			defer ended.Add(1)
			if !c.awaitPrerequisites(v) {
				return
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			c.settings.progress(v.rule.id, int(ended.Load()), len(c.outcomes))
			t := &trial{ctx: ctx, suite: c, rule: v.rule}
			t.run(&v.result)
		})
	}
	running.Wait()
}

// awaitPrerequisites waits for the rules that the rule of v builds upon. If the plugin
// breaks one of them, it marks v as skipped and returns false. If the rule judges the
// answers to other rules, it also waits for these.
func (c *checker) awaitPrerequisites(v *outcome) bool {
	for _, other := range c.outcomes {
		// A rule builds only upon earlier rules of the table, so two rules never wait for each
		// other.
		needed := slices.Contains(v.rule.after, other.rule.id)
		if !needed && (!v.rule.last || other.rule.last) {
			continue
		}
		<-other.done
		if needed && (other.result.untried || other.result.Status == Fail) {
			v.result.untried = true
			v.result.Status, v.result.Detail = Skip, fmt.Sprintf("not tried: it builds upon %s, which is not kept", other.rule.id)
			return false
		}
	}
	return true
}
