package plugintest

import (
	"fmt"
	"sync"
)

// hasInput reports whether the author has given a request or a state for the rule's input.
func hasInput(t *trial) bool {
	s := t.suite.settings
	return s.inputs[t.rule.input] != nil || s.states[t.rule.input] != nil
}

// provoke returns a batch that has the outcome of the rule's input. If the author has given a
// state for it, provoke also puts the back end into this state. The caller must call restore,
// which ends the state. A second call of restore does nothing.
func provoke(t *trial) (b batch, restore func()) {
	b = t.batch(1)
	if request := t.suite.settings.inputs[t.rule.input]; request != nil {
		b = t.suite.numbers.of(request)
	}
	enter := t.suite.settings.states[t.rule.input]
	if enter == nil {
		return b, func() {}
	}
	leave, err := enter()
	if err != nil {
		t.fatalf("WithState %q: %v", t.rule.input, err)
	}
	return b, sync.OnceFunc(func() {
		if err := leave(); err != nil {
			t.errorf("WithState %q: restore the back end: %v", t.rule.input, err)
		}
	})
}

// expectAnswer starts a plugin, and sends it a batch that has the outcome of the rule's
// input. It expects the plugin to deliver the next batch, and isRight to return true for the
// answer. want describes such an answer.
func expectAnswer(t *trial, want string, isRight func(Answer) bool) {
	p := t.ready(asHost)
	b, restore := provoke(t)
	defer restore()
	answer := p.export(b)
	restore()
	p.lives(fmt.Sprintf("input %q", t.rule.input))
	if !isRight(answer) {
		t.fatalf("input %q: answered %v; want %s", t.rule.input, answer, want)
	}
}
