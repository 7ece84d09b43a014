package plugintest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// observations records the answers of a plugin to all rules, for the rules that judge
// all answers. It is safe for concurrent use; the zero value is ready.
type observations struct {
	mu      sync.Mutex
	answers int // to Export
	byRule  map[string]*observation
}

// observation holds the cases that one rule judges.
type observation struct {
	cases  int
	faults []string // each text once, and the first mostFaults
}

const mostFaults = 5

// addLocked counts a case of a rule, and records its fault if it is not empty.
func (o *observations) addLocked(rule, fault string) {
	if o.byRule == nil {
		o.byRule = map[string]*observation{}
	}
	seen := o.byRule[rule]
	if seen == nil {
		seen = &observation{}
		o.byRule[rule] = seen
	}
	seen.cases++
	if fault != "" && len(seen.faults) < mostFaults && !slices.Contains(seen.faults, fault) {
		seen.faults = append(seen.faults, fault)
	}
}

// of returns the cases of a rule, and the number of answers to Export.
func (o *observations) of(rule string) (seen observation, answers int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byRule[rule] != nil {
		seen = *o.byRule[rule]
	}
	return seen, o.answers
}

// addAnswer records the answer to a batch of so many spans.
func (o *observations) addAnswer(spans int, a Answer, faults answerFaults) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers++
	o.addLocked("export.answers", faults.response)
	if faults.filtered != "" {
		o.addLocked("export.filtered", faults.filtered)
	}
	if a.Rejected != 0 || a.Delivered() && a.Message != "" {
		fault := ""
		if a.Rejected < 0 || a.Rejected > spans {
			fault = fmt.Sprintf("%d rejected spans of a batch of %d: want 0 to %d", a.Rejected, spans, spans)
		}
		o.addLocked("export.partial", fault)
	}
	if filtered := a.filtered(); filtered > 0 {
		fault := ""
		switch {
		case filtered > spans:
			fault = fmt.Sprintf("%d filtered spans (%v) of a batch of %d", filtered, a.Filtered, spans)
		case filtered+max(0, a.Rejected) > spans:
			fault = fmt.Sprintf("%d filtered and %d rejected spans of a batch of %d: a span is either filtered or rejected", filtered, a.Rejected, spans)
		}
		o.addLocked("export.filtered", fault)
	}
}

// addDiagnostics records the diagnostics of a configuration.
func (o *observations) addDiagnostics(list []*pluginv1.Diagnostic) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range list {
		fault := ""
		switch severity := d.GetSeverity(); {
		case severity != pluginv1.Severity_SEVERITY_WARNING && severity != pluginv1.Severity_SEVERITY_ERROR:
			fault = fmt.Sprintf("severity is %v (%q); want WARNING or ERROR", severity, wire.Clip(d.GetText()))
		case strings.TrimSpace(d.GetText()) == "":
			fault = fmt.Sprintf("a diagnostic about %q has no text; say what is wrong, the value seen, and what to do", wire.Clip(d.GetPath()))
		}
		o.addLocked("configure.diagnostics", fault)
	}
}
