package plugintest

import (
	"strings"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// The checks of the rules that judge the plugin's answers in all other rules. They run
// last.

func checkDiagnostics(t *trial) {
	diagnostics := t.suite.seen.diagnostics.all()
	if len(diagnostics) == 0 {
		t.skipf("it had no diagnostic for any configuration of the suite")
	}
	for _, d := range diagnostics {
		switch severity := d.GetSeverity(); {
		case severity != pluginv1.Severity_SEVERITY_WARNING && severity != pluginv1.Severity_SEVERITY_ERROR:
			t.errorf("severity is %v (%q); want WARNING or ERROR", severity, wire.Clip(d.GetText()))
		case strings.TrimSpace(d.GetText()) == "":
			t.errorf("a diagnostic about %q has no text; want the fault, the value seen, and a remedy", wire.Clip(d.GetPath()))
		}
	}
}

// checkFaults returns a check that fails if a part of any answer of the plugin has a
// fault. part selects that part.
func checkFaults(part func(answerFaults) string) func(*trial) {
	return func(t *trial) {
		for _, seen := range t.suite.seen.exports.all() {
			if fault := part(seen.faults); fault != "" {
				t.errorf("%s", fault)
			}
		}
	}
}

func checkPartial(t *trial) {
	if hasInput(t) {
		expectAnswer(t, "OK with rejected spans", func(a Answer) bool { return a.Delivered() && a.Rejected > 0 })
	}
	partial := 0
	exports := t.suite.seen.exports.all()
	for _, seen := range exports {
		rejected := seen.answer.Rejected
		if rejected != 0 || seen.answer.Delivered() && seen.answer.Message != "" {
			partial++
		}
		if rejected < 0 || rejected > seen.spans {
			t.errorf("%d rejected spans of a batch of %d: want 0 to %d", rejected, seen.spans, seen.spans)
		}
	}
	skipUnseen(t, partial, len(exports))
}

func checkFiltered(t *trial) {
	if hasInput(t) {
		expectAnswer(t, "OK with filtered spans", func(a Answer) bool { return a.Delivered() && a.filtered() > 0 })
	}
	answers := 0
	exports := t.suite.seen.exports.all()
	for _, seen := range exports {
		filtered, rejected := seen.answer.filtered(), max(0, seen.answer.Rejected)
		if filtered > 0 || seen.faults.filtered != "" {
			answers++
		}
		switch {
		case seen.faults.filtered != "":
			t.errorf("%s", seen.faults.filtered)
		case filtered > seen.spans:
			t.errorf("%d filtered spans (%v) of a batch of %d", filtered, seen.answer.Filtered, seen.spans)
		case filtered > 0 && filtered+rejected > seen.spans:
			t.errorf("%d filtered and %d rejected spans of a batch of %d: a span is either filtered or rejected", filtered, rejected, seen.spans)
		}
	}
	skipUnseen(t, answers, len(exports))
}

// skipUnseen skips the rule if ofKind is 0. ofKind is the number of answers with the part
// that the rule checks, and answers is the number of all answers.
func skipUnseen(t *trial, ofKind, answers int) {
	if ofKind == 0 {
		t.skipWithout("WithInput or WithState", "", "none of %d answers had any", answers)
	}
}
