package host_test

import (
	"os"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/host"
)

// TestStatesAreDocumented looks up each state in docs/reference/plugin-states.md.
func TestStatesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/plugin-states.md")
	if err != nil {
		t.Fatal(err)
	}
	for state := host.StateStarting; state <= host.StateStopped; state++ {
		if !strings.Contains(string(page), "| `"+state.String()+"` |") {
			t.Errorf("the page has no row for %s", state)
		}
	}
}
