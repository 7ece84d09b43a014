package host

import (
	"os"
	"strings"
	"testing"
)

// TestReasonsAreDocumented looks up each reason for a lost span in
// docs/reference/span-accounting.md.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/span-accounting.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range reasonNames {
		if !strings.Contains(string(page), "| `"+reason+"` |") {
			t.Errorf("the page has no row for %s", reason)
		}
	}
}

// TestStatesAreDocumented looks up each state in docs/reference/plugin-states.md.
func TestStatesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/plugin-states.md")
	if err != nil {
		t.Fatal(err)
	}
	for state := StateStarting; state <= StateStopped; state++ {
		if !strings.Contains(string(page), "| `"+state.String()+"` |") {
			t.Errorf("the page has no row for %s", state)
		}
	}
}
