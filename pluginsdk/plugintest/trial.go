package plugintest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// trial is one rule that is being tried. A rule is written like a test: fatalf and skipf
// end the rule, as in package testing. A method of a subject ends it if the plugin breaks
// an expectation. In atOnce, the methods are safe for concurrent use.
type trial struct {
	ctx   context.Context
	suite *checker
	rule  rule
	// step is put before the text of each failure. The rule sets it while no goroutine of
	// atOnce runs.
	step string

	mu       sync.Mutex
	subjects []*subject
	failures []string
	skipped  *skip // nil if the rule was not skipped
}

// skip is the reason for which a rule was skipped, with the missing option or flag.
type skip struct{ reason, option, flag string }

// run tries the rule and writes its outcome.
func (t *trial) run(result *Result) {
	begun := time.Now()
	var checking sync.WaitGroup
	checking.Go(func() { t.check() }) // fatalf ends this goroutine
	checking.Wait()
	result.Took = time.Since(begun)
	if len(t.failures) > 0 && t.ctx.Err() != nil {
		t.failures, t.skipped = nil, &skip{reason: t.calledOff()}
	}
	switch {
	case len(t.failures) > 0:
		result.Status, result.Detail = Fail, firstFew(t.failures)+t.lastLines()
	case t.skipped != nil:
		result.Status, result.Detail, result.Option, result.Flag = Skip, t.skipped.reason, t.skipped.option, t.skipped.flag
	}
	for _, p := range t.subjects {
		p.close()
	}
}

// check checks the rule, if the rule applies to the target. A rule that changes the state
// of the back end runs alone.
func (t *trial) check() {
	switch {
	case t.rule.needs&process != 0 && t.suite.target.spec != nil:
		t.skipf("the plugin runs in this process: test its binary too")
	case t.rule.needs&lifecycle != 0 && t.suite.about.plain:
		t.skipf("it serves OTLP and no Lifecycle: a plain receiver, which is not described, configured, flushed or shut down")
	case t.ctx.Err() != nil:
		t.skipf("%s", t.calledOff())
	case t.rule.needs&exporter != 0 && t.suite.about.isProcessor():
		t.skipf("it is a processor plugin: the exporters after it answer so")
	case t.rule.needs&processor != 0 && !t.suite.about.isProcessor():
		t.skipf("it is no processor plugin")
	case t.rule.needs&provoked != 0 && !hasInput(t):
		t.skipWithout("WithInput or WithState", "", "the suite does not know how to provoke an answer of kind %q", t.rule.input)
	}
	if state := &t.suite.state; t.suite.settings.states[t.rule.input] != nil {
		state.Lock()
		defer state.Unlock()
	} else {
		state.RLock()
		defer state.RUnlock()
	}
	t.rule.check(t)
}

func (t *trial) calledOff() string { return fmt.Sprintf("called off: %v", context.Cause(t.ctx)) }

// errorf records a failure of the rule, each text once.
func (t *trial) errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if t.step != "" {
		text = t.step + ": " + text
	}
	if !slices.Contains(t.failures, text) {
		t.failures = append(t.failures, text)
	}
}

// fatalf records a failure and ends the goroutine.
func (t *trial) fatalf(format string, args ...any) {
	t.errorf(format, args...)
	runtime.Goexit()
}

// must fails the rule and ends the goroutine if err is not nil.
func (t *trial) must(err error) {
	if err != nil {
		t.fatalf("%v", err)
	}
}

// skipf marks the rule as skipped and ends the goroutine.
func (t *trial) skipf(format string, args ...any) { t.skipWithout("", "", format, args...) }

// skipWithout is skipf for a missing option. flag is the flag of the command for this
// option, or empty.
func (t *trial) skipWithout(option, flag, format string, args ...any) {
	t.mu.Lock()
	t.skipped = &skip{fmt.Sprintf(format, args...), option, flag}
	t.mu.Unlock()
	runtime.Goexit()
}

// atOnce makes n concurrent calls of f, and waits for all of them. It ends the rule if the
// rule has failed or was skipped.
func (t *trial) atOnce(n int, f func(i int)) {
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { f(i) })
	}
	calls.Wait()
	if len(t.failures) > 0 || t.skipped != nil {
		runtime.Goexit()
	}
}

func firstFew(failures []string) string {
	const few = 3
	if more := len(failures) - few; more > 0 {
		failures = append(failures[:few:few], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(failures, "\n")
}

func (t *trial) batch(spans int) batch { return t.suite.numbers.batch(spans) }

// prompt returns the time that the suite grants instead of the contract's two seconds.
func (t *trial) prompt() time.Duration { return t.suite.settings.prompt() }

// startEnviron returns the variables that a plugin with env_at_start has in its start
// environment. It is nil for other plugins, and for a rule that does not build upon the
// answer to Describe.
func (t *trial) startEnviron() []string {
	if !t.knowsPlugin() || !t.suite.about.response.GetEnvAtStart() {
		return nil
	}
	var environ []string
	for name, value := range t.suite.settings.granted(t.suite.about.response.GetEnvPatterns()) {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// knowsPlugin reports whether the rule may use the answer to Describe, because it builds
// upon the rule describe.answered. Other rules may run while that rule writes the answer.
func (t *trial) knowsPlugin() bool { return slices.Contains(t.rule.after, "describe.answered") }

// start starts a plugin. It does not wait for the handshake.
func (t *trial) start(o startOptions) *subject {
	target := t.suite.target
	target.env = slices.Concat(target.env, t.startEnviron())
	plugin, err := target.start(o)
	t.must(err)
	return t.adopt(&subject{running: running{plugin: plugin}})
}

// adopt gives a started plugin to the rule. The plugin ends with the rule.
func (t *trial) adopt(p *subject) *subject {
	p.t = t
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subjects = append(t.subjects, p)
	return p
}

// connect starts a plugin, waits for its handshake and connects to it.
func (t *trial) connect(o startOptions) *subject {
	p := t.start(o)
	p.connect()
	return p
}

// ready starts a plugin and configures it as a host does.
func (t *trial) ready(o startOptions) *subject {
	p := t.connect(o)
	if !t.suite.about.plain {
		p.describe()
		p.configure()
	}
	return p
}

func (t *trial) lastLines() string {
	var lines []string
	for _, p := range t.subjects {
		lines = append(lines, p.plugin.lastLines()...)
	}
	if len(lines) == 0 {
		return ""
	}
	return "\nthe plugin's last lines:\n  | " + strings.Join(lines, "\n  | ")
}
