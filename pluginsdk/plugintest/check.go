package plugintest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Conformance holds the plugin to every rule of the contract, each in a subtest
// named by the rule's id. It returns when all rules have been tried and every
// process has ended. A target that is no file that can be run fails t at once.
func Conformance(t *testing.T, target Target, opts ...Option) {
	t.Helper()
	c, err := newChecker(target, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel() // a filter may leave rules over
	running.Go(func() { c.run(ctx) })
	for i := range c.verdicts {
		v := c.verdicts[i]
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

// Check is [Conformance] without package testing, for a command line: every
// rule is tried, and the report says of each how it went. It blocks until that
// is done and every process has ended. When ctx ends before, the rules that are
// left are skipped. The error says that there is nothing to test: no such file,
// say; a plugin that breaks rules is no error.
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
	*settings
	target   Target
	verdicts []*verdict // in the order of the table
	numbers  numbering
	watch    watch // what all rules saw of the plugin's answers
	pool     pool  // ready plugins for rules that share
	// alone is held by the rules that run, for writing by one that changes the
	// state of the back end.
	alone sync.RWMutex

	shake handshake // written by handshake.line, read by rules after it
	about about     // written by describe.answered, read by rules after it
}

// verdict is the outcome of one rule, and the way there.
type verdict struct {
	rule rule
	// done is closed when result, and blocked, are written.
	done    chan struct{}
	result  Result
	blocked bool // the rule was not tried, for one that it builds upon was not kept
}

func newChecker(target Target, opts []Option) (*checker, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	c := &checker{settings: newSettings(opts), target: target}
	selected, err := selectRules(rules(), c.only)
	if err != nil {
		return nil, err
	}
	for _, r := range selected {
		c.verdicts = append(c.verdicts, &verdict{
			rule:   r,
			done:   make(chan struct{}),
			result: Result{Rule: r.id, Title: r.title},
		})
	}
	return c, nil
}

// run tries all rules, some at a time, and returns when the last has ended.
func (c *checker) run(ctx context.Context) {
	places := make(chan struct{}, c.parallel)
	var running sync.WaitGroup
	for _, v := range c.verdicts {
		running.Go(func() {
			defer close(v.done)
			if !c.awaitPrerequisites(v) {
				return
			}
			places <- struct{}{}
			defer func() { <-places }()
			c.try(ctx, v)
		})
	}
	running.Wait()
	c.pool.close()
}

// awaitPrerequisites waits for the rules that v builds upon and tells whether
// it can be tried.
func (c *checker) awaitPrerequisites(v *verdict) bool {
	for _, other := range c.verdicts {
		// The table is in order: nothing waits for what comes after it.
		if !slices.Contains(v.rule.after, other.rule.id) && (!v.rule.last || other.rule.last) {
			continue
		}
		<-other.done
		if slices.Contains(v.rule.after, other.rule.id) && (other.blocked || other.result.Status == Fail) {
			v.blocked = true
			v.result.Status, v.result.Detail = Skip, fmt.Sprintf("not tried: it builds upon %s, which is not kept", other.rule.id)
			v.result.untried = true
			return false
		}
	}
	return true
}

// try tries one rule on plugins of its own and books the outcome.
func (c *checker) try(ctx context.Context, v *verdict) {
	begun := time.Now()
	t := &trial{checker: c, rule: v.rule}
	err := t.applies(v.rule)
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = skipf("called off: %v", context.Cause(ctx))
	default:
		err = c.checkAlone(ctx, v.rule, t)
	}
	v.result.Took = time.Since(begun)
	defer t.close(err == nil)
	var skip *skipError
	switch {
	case err == nil:
		v.result.Status = Pass
	case errors.As(err, &skip):
		v.result.Status, v.result.Detail, v.result.Option, v.result.Flag = Skip, skip.why, skip.option, skip.flag
	case ctx.Err() != nil:
		v.result.Status, v.result.Detail = Skip, fmt.Sprintf("called off: %v", context.Cause(ctx))
	default:
		v.result.Status, v.result.Detail = Fail, err.Error()+t.lastWords()
	}
}

// checkAlone checks a rule. One that changes the state of the back end runs while no
// other rule does.
func (c *checker) checkAlone(ctx context.Context, r rule, t *trial) error {
	if c.states[r.input] != nil {
		c.alone.Lock()
		defer c.alone.Unlock()
	} else {
		c.alone.RLock()
		defer c.alone.RUnlock()
	}
	return r.check(ctx, t)
}

// skipError says why a rule was not tried, and which option or flag is missing.
type skipError struct{ why, option, flag string }

func (e *skipError) Error() string { return e.why }

func skipf(format string, args ...any) error { return &skipError{why: fmt.Sprintf(format, args...)} }

// skipWithout is a skip for want of an option, or of the flag that stands for it.
func skipWithout(option, flag, format string, args ...any) error {
	return &skipError{fmt.Sprintf(format, args...), option, flag}
}

// trial is one rule being tried: the plugins started for it.
type trial struct {
	*checker
	rule rule

	mu       sync.Mutex
	sessions []*session
}

// applies is a skip where the rule is not for this kind of target.
func (t *trial) applies(r rule) error {
	switch {
	case r.needs&process != 0 && t.target.spec != nil:
		return skipf("the plugin runs in this process: test its binary too")
	case r.needs&lifecycle != 0 && t.about.plain:
		return skipf("it serves OTLP and no Lifecycle: a plain receiver, which is not described, configured, flushed or shut down")
	}
	return nil
}

// close ends what the rule has started, or leaves it to others.
func (t *trial) close(kept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		if t.rule.shares && kept && s.ready {
			t.pool.put(s)
		} else {
			s.close()
		}
	}
}

// pool holds plugins that are ready, and that no rule uses. Safe for concurrent
// use; the zero value is empty.
type pool struct {
	mu   sync.Mutex
	free []*session
}

// take gives one, nil if there is none.
func (p *pool) take() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return nil
	}
	s := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return s
}

func (p *pool) put(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

func (p *pool) close() {
	for s := p.take(); s != nil; s = p.take() {
		s.close()
	}
}

// lastWords are the last lines that the plugins of the rule have printed.
func (t *trial) lastWords() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, s := range t.sessions {
		for _, line := range s.plugin.printed().tail() {
			fmt.Fprintf(&b, "\n  | %s", line)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nthe plugin's last lines:" + b.String()
}
