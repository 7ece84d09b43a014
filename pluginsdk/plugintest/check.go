package plugintest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Conformance tries every rule of the contract on the plugin, each in a subtest named by
// the rule's id. It returns when all rules have been tried and every process has ended. If
// the file of a [Binary] is not executable, t fails at once.
func Conformance(t *testing.T, target Target, opts ...Option) {
	t.Helper()
	c, err := newChecker(target, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel() // the flag -run of go test may leave out rules
	running.Go(func() { c.run(ctx) })
	for _, v := range c.verdicts {
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

// Check is [Conformance] without package testing, for a command line. It tries every rule
// and returns a report with the outcome of each. It blocks until every process has ended.
// If ctx ends earlier, the remaining rules are skipped. Check returns an error if there is
// nothing to test, for example if the file does not exist. A plugin that breaks rules is
// no error.
func Check(ctx context.Context, target Target, opts ...Option) (*Report, error) {
	c, err := newChecker(target, opts)
	if err != nil {
		return nil, err
	}
	c.run(ctx)
	report := &Report{Target: target.String()}
	for _, v := range c.verdicts {
		report.Results = append(report.Results, v.result)
	}
	return report, nil
}

// checker is one run of the suite over one target.
type checker struct {
	settings *settings
	target   Target
	verdicts []*verdict // in the order of the rules in the table
	numbers  *numbering
	seen     observations
	// A running rule locks state for reading, or for writing if the rule changes the
	// state of the back end.
	state sync.RWMutex

	shake handshake // written by the rule handshake.line, and read by later rules
	about about     // written by the rule describe.answered, and read by later rules
}

type verdict struct {
	rule   rule
	done   chan struct{} // closed when result has been written
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
		c.verdicts = append(c.verdicts, &verdict{
			rule:   r,
			done:   make(chan struct{}),
			result: Result{Rule: r.id, Title: r.title},
		})
	}
	return c, nil
}

// run tries all rules, several at a time, and returns when the last rule has ended.
func (c *checker) run(ctx context.Context) {
	slots := make(chan struct{}, c.settings.parallel)
	var running sync.WaitGroup
	var ended atomic.Int64
	for _, v := range c.verdicts {
		running.Go(func() {
			defer close(v.done)
			defer ended.Add(1)
			if !c.awaitPrerequisites(v) {
				return
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			c.settings.progress(v.rule.id, int(ended.Load()), len(c.verdicts))
			t := &trial{ctx: ctx, suite: c, rule: v.rule}
			t.run(&v.result)
		})
	}
	running.Wait()
}

// awaitPrerequisites waits for the rules that v builds upon. If v runs last, it waits for
// all rules that do not. It returns true if the plugin keeps all rules that v builds upon.
func (c *checker) awaitPrerequisites(v *verdict) bool {
	for _, other := range c.verdicts {
		// The table is ordered, so no rule waits for a later rule.
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
