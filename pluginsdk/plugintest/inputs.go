package plugintest

import (
	"fmt"
	"sync"
)

func (s *settings) has(input Input) bool { return s.inputs[input] != nil || s.states[input] != nil }

// needsInput skips the rule if the author has not given the input.
func needsInput(t *trial, input Input) {
	if !t.suite.settings.has(input) {
		t.skipWithout("WithInput or WithState", "", "the suite does not know how to provoke an answer of kind %q", input)
	}
}

// provoke returns a batch for an input, and puts the back end into the state of WithState
// for it, if there is one. The caller must call restore, which restores the back end
// once.
func provoke(t *trial, input Input) (b batch, restore func()) {
	b = t.batch(1)
	if request := t.suite.settings.inputs[input]; request != nil {
		b = t.suite.numbers.of(request)
	}
	enter := t.suite.settings.states[input]
	if enter == nil {
		return b, func() {}
	}
	leave, err := enter()
	if err != nil {
		t.fatalf("WithState %q: %v", input, err)
	}
	return b, sync.OnceFunc(func() {
		if err := leave(); err != nil {
			t.errorf("WithState %q: restore the back end: %v", input, err)
		}
	})
}

// answerTo sends the batch for an input, restores the back end, and expects the plugin to
// deliver the next batch. It returns the answer.
func answerTo(t *trial, input Input) Answer {
	p := t.ready(asHost)
	b, restore := provoke(t, input)
	defer restore()
	answer := p.export(b)
	restore()
	p.lives(fmt.Sprintf("input %q", input))
	return answer
}
