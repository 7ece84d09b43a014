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

// trial is one attempt to check a rule. A check is written like a test: fatalf and skipf
// end it, as in package testing. Methods of a subject also end it if the plugin does not
// behave as expected. The methods are safe for concurrent use by the functions that
// atOnce calls.
type trial struct {
	ctx   context.Context
	suite *checker
	rule  rule
	// step is put before the text of each failure. Checks must not set it while atOnce runs.
	step string

	mu       sync.Mutex
	subjects []*subject
	failures []string
	skipped  *skip // the reason of a skip; nil if the rule was not skipped
}

// skip is the reason for which a rule was skipped. option and flag name the missing
// option of this package and of the command; each may be empty.
type skip struct{ reason, option, flag string }

// run checks the rule, and writes the outcome to result. It ends all plugins that the
// check has started.
func (t *trial) run(result *Result) {
	begun := time.Now()
	var checking sync.WaitGroup
	checking.Go(func() { t.check() }) // in its own goroutine, which fatalf ends
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

// check calls the check of the rule, unless the rule does not apply to the plugin. While
// a check changes the state of the back end, no other check runs.
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

// errorf records a failure of the rule. It ignores a text that was recorded before.
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

// fatalf records a failure of the rule and ends the calling goroutine.
func (t *trial) fatalf(format string, args ...any) {
	t.errorf(format, args...)
	runtime.Goexit()
}

// must does nothing if err is nil. Otherwise it records a failure of the rule and ends
// the calling goroutine.
func (t *trial) must(err error) {
	if err != nil {
		t.fatalf("%v", err)
	}
}

// skipf marks the rule as skipped, with a reason, and ends the calling goroutine.
func (t *trial) skipf(format string, args ...any) { t.skipWithout("", "", format, args...) }

// skipWithout marks the rule as skipped because an option of this package is missing, and
// ends the calling goroutine. flag is the command's flag for the same purpose, or empty.
func (t *trial) skipWithout(option, flag, format string, args ...any) {
	t.mu.Lock()
	t.skipped = &skip{fmt.Sprintf(format, args...), option, flag}
	t.mu.Unlock()
	runtime.Goexit()
}

// atOnce makes n concurrent calls of f, and waits for all of them. If the rule has failed
// or was skipped by then, atOnce ends the calling goroutine.
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

// prompt returns the time within which the plugin must do something for which the
// contract grants two seconds. It is longer, so that no plugin fails on a busy machine.
func (t *trial) prompt() time.Duration { return t.suite.settings.prompt() }

// startEnviron returns the author's variables for the environment of a new process, if
// the plugin asks for that by env_at_start. It returns nil for other plugins, and for a
// rule that must not use the answer to Describe.
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

// knowsPlugin reports whether the rule may use the answer to Describe. This is so if it
// builds upon the rule describe.answered, because other rules may run while that rule
// writes the answer.
func (t *trial) knowsPlugin() bool { return slices.Contains(t.rule.after, "describe.answered") }

// start starts the plugin that is tested. It does not wait for the handshake. The plugin
// is ended with the rule.
func (t *trial) start(o startOptions) *subject {
	target := t.suite.target
	target.env = slices.Concat(target.env, t.startEnviron())
	plugin, err := target.start(o)
	t.must(err)
	return t.adopt(&subject{running: running{plugin: plugin}})
}

// adopt adds a started plugin to the rule, so that it is ended with the rule.
func (t *trial) adopt(p *subject) *subject {
	p.t = t
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subjects = append(t.subjects, p)
	return p
}

// connect starts the plugin, waits for its handshake and connects to it.
func (t *trial) connect(o startOptions) *subject {
	p := t.start(o)
	p.connect()
	return p
}

// ready starts the plugin and configures it, as a host does.
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
