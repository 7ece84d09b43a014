package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/bench/internal/suite"
)

// TestPageHasTheBounds compares the bounds and goals of docs/explanation/performance.md
// with the claims.
func TestPageHasTheBounds(t *testing.T) {
	page, err := os.ReadFile("../docs/explanation/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| bound on | bound | goal | measured | |\n")
	if !found {
		t.Fatal("the page has no table of bounds")
	}
	seen := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) < 5 {
			break
		}
		if name := strings.TrimPrefix(cells[0], "| "); !strings.HasPrefix(name, "---") {
			seen[name] = true
			checkBound(t, name, cells[1], cells[2])
		}
	}
	for _, s := range shapes() {
		for _, c := range s.Claims {
			if c.Goal > 0 && !seen[c.Name] && !seen[rowOf(s, c)] {
				t.Errorf("the page has no row for %s", rowOf(s, c))
			}
		}
	}
}

// checkBound looks for a claim with the name, bound and goal of a row.
func checkBound(t *testing.T, name, bound, goal string) {
	t.Helper()
	for _, s := range shapes() {
		for _, c := range s.Claims {
			if (name == c.Name || name == rowOf(s, c)) && bound == figure(c.Bound)+c.Unit && (goal == "–" || goal == figure(c.Goal)+c.Unit) {
				return
			}
		}
	}
	t.Errorf("no claim %q has the bound %s and the goal %s", name, bound, goal)
}

// rowOf returns the name of a claim's row, when the shape belongs to it.
func rowOf(s suite.Shape, c suite.Claim) string { return c.Name + " (" + s.Name + ")" }

func figure(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }
