package pipeline

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/internal/total"
)

func TestNamesOfProcessorsAreBounded(t *testing.T) {
	l := newLedger()
	l.filter("redact", 1)
	for i := range 1000 {
		l.filter(fmt.Sprintf("drop-%d", i), 2)
		l.filter(strings.Repeat("x", 1000+i), 1)
	}
	l.filter("redact", 1)
	if got := len(l.filtered); got > mostProcessors+1 {
		t.Errorf("%d names in the ledger, want %d and %q at most", got, mostProcessors, otherProcessors)
	}
	if got := l.filtered["redact"]; got != 2 {
		t.Errorf("redact has %d spans, want 2", got)
	}
	if got := total.Of(l.filtered); got != 3002 {
		t.Errorf("%d spans in the ledger, want 3002", got)
	}
}

// TestReasonsAreDocumented looks up each reason for a lost span in
// docs/reference/span-accounting.md.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/span-accounting.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range reasonNames {
		if !strings.Contains(string(page), "| `"+reason+"` |") {
			t.Errorf("the page has no row for %s", reason)
		}
	}
}
