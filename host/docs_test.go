package host

import (
	"os"
	"strings"
	"testing"
)

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
