package plugintest

import (
	"slices"
	"sync"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

// observations records the answers of a plugin to all rules, for the rules that judge
// all answers. It is safe for concurrent use; the zero value is ready.
type observations struct {
	mu          sync.Mutex
	exports     []exportObservation
	diagnostics []*pluginv1.Diagnostic
}

// exportObservation is an answer, with the number of spans of its batch.
type exportObservation struct {
	spans  int
	answer Answer
	faults answerFaults
}

func (o *observations) addExport(e exportObservation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.exports = append(o.exports, e)
}

func (o *observations) addDiagnostics(list []*pluginv1.Diagnostic) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.diagnostics = append(o.diagnostics, list...)
}

func (o *observations) all() ([]exportObservation, []*pluginv1.Diagnostic) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.exports), slices.Clone(o.diagnostics)
}
