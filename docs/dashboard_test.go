package docs

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard is the part of a dashboard of Grafana that the test reads.
type dashboard struct {
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

var (
	metricRow   = regexp.MustCompile("(?m)^- `([a-z_]+)(?:\\{([a-z_,]+)\\})?`(?: \\((gauge|histogram)\\))?: ")
	metricName  = regexp.MustCompile(`\b(?:servetrace|serve|otel_sdk)_[a-z_]+`)
	groupLabels = regexp.MustCompile(`by \(([a-z_, ]+)\)`)
	usedLabel   = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
	selector    = regexp.MustCompile(`[a-z_]+\{job=~"\$job",instance=~"\$instance"\}`)
)

// labelsOfMetrics returns the labels of each series that the page of metrics lists. Tests
// hold the page equal to /metrics.
func labelsOfMetrics(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(string(page), -1) {
		labels := append(strings.Split(row[2], ","), "job", "instance") // Prometheus adds these two
		if row[3] != "histogram" {
			list[row[1]] = labels
			continue
		}
		list[row[1]+"_bucket"] = append(labels, "le")
	}
	return list
}

// TestDashboardAsksForMetricsThatExist checks the dashboard of Grafana: the metrics and
// labels of its queries and legends, the selectors, and the places of its panels.
func TestDashboardAsksForMetricsThatExist(t *testing.T) {
	const file = "../deploy/grafana/servetrace.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	metrics := labelsOfMetrics(t)
	queries := 0
	check := func(where, expr string, labels []string) {
		names := metricName.FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("%s: no metric in %s", where, expr)
		}
		for _, name := range names {
			known, ok := metrics[name]
			if !ok {
				t.Errorf("%s: %s is no metric", where, name)
			}
			for _, label := range labels {
				if ok && !slices.Contains(known, label) {
					t.Errorf("%s: %s has no label %s", where, name, label)
				}
			}
		}
	}
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q: its id is there twice, or it has no title or query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" || at[0] >= 24 {
					t.Fatalf("panel %q covers %q at %v, or leaves the 24 columns", p.Title, taken[at], at)
				}
				taken[at] = p.Title
			}
		}
		for _, target := range p.Targets {
			queries++
			var labels []string
			for _, group := range groupLabels.FindAllStringSubmatch(target.Expr, -1) {
				labels = append(labels, strings.Split(group[1], ", ")...)
			}
			check(p.Title, target.Expr, labels)
			for _, legend := range usedLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if labels != nil && !slices.Contains(labels, legend[1]) {
					t.Errorf("%s: the legend has %s, by which %s does not group", p.Title, legend[1], target.Expr)
				}
			}
			if got, want := len(selector.FindAllString(target.Expr, -1)), len(metricName.FindAllString(target.Expr, -1)); got != want {
				t.Errorf("%s: %d of %d metrics are selected by job and instance: %s", p.Title, got, want, target.Expr)
			}
		}
	}
	for _, v := range board.Templating.List {
		if v.Definition != "" {
			check("variable "+v.Name, v.Definition, []string{v.Name})
		}
	}
	if queries < 20 {
		t.Errorf("%d queries, want 20 or more", queries)
	}
}
