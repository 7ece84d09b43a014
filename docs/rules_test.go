package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const rulesOfAlerts = "../deploy/prometheus/*.yml"

var (
	alertRule     = regexp.MustCompile(`(?s)- alert: (\w+)\n(.*?)(?:\z|\n      - )`)
	matchedLabel  = regexp.MustCompile(`([a-z_]+)=~?"([^"]*)"`)
	templateLabel = regexp.MustCompile(`\$labels\.([a-z_]+)`)
	pluginState   = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|")
)

// TestAlertsNameWhatExists checks each alert: its metrics, the labels by which it groups
// and selects, the labels in its texts, and the states of plugins.
func TestAlertsNameWhatExists(t *testing.T) {
	metrics := labelsOfMetrics(t)
	page, err := os.ReadFile("reference/plugin-states.md")
	if err != nil {
		t.Fatal(err)
	}
	reference, err := os.ReadFile("reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, row := range pluginState.FindAllStringSubmatch(string(page), -1) {
		states = append(states, row[1])
	}
	files, err := filepath.Glob(rulesOfAlerts)
	if err != nil || len(files) == 0 || len(states) != 9 {
		t.Fatalf("%d files, %d states, error %v", len(files), len(states), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		alerts := alertRule.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\n      - alert", "\n      - \n      - alert"), -1)
		if n := strings.Count(string(text), "- alert:"); len(alerts) != n || n == 0 {
			t.Errorf("%s: %d of %d alerts are read", file, len(alerts), n)
		}
		for _, alert := range alerts {
			if !strings.Contains(string(reference), "`"+alert[1]+"`") {
				t.Errorf("%s is not in the list of reference/metrics.md", alert[1])
			}
			names := metricName.FindAllString(alert[2], -1)
			var labels []string
			for _, group := range groupLabels.FindAllStringSubmatch(alert[2], -1) {
				labels = append(labels, strings.Split(group[1], ", ")...)
			}
			grouped := slices.Clone(labels)
			for _, one := range matchedLabel.FindAllStringSubmatch(alert[2], -1) {
				labels = append(labels, one[1])
				for state := range strings.SplitSeq(one[2], "|") {
					if one[1] == "state" && !slices.Contains(states, state) {
						t.Errorf("%s: %q is no state of a plugin", alert[1], state)
					}
				}
			}
			for _, one := range templateLabel.FindAllStringSubmatch(alert[2], -1) {
				labels = append(labels, one[1])
				if grouped != nil && !slices.Contains(grouped, one[1]) {
					t.Errorf("%s: its text has the label %s, by which it does not group", alert[1], one[1])
				}
			}
			known := []string{}
			for _, name := range names {
				if _, has := metrics[name]; !has {
					t.Errorf("%s: %s is no metric", alert[1], name)
				}
				known = append(known, metrics[name]...)
			}
			for _, label := range labels {
				if !slices.Contains(known, label) {
					t.Errorf("%s: none of %v has the label %s", alert[1], names, label)
				}
			}
		}
	}
}

// TestAlertsByPromtool lets Prometheus's own tool check the rules, and fire them.
func TestAlertsByPromtool(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if found, globErr := filepath.Glob("../.tools/promtool-*/promtool"); err != nil && globErr == nil && len(found) > 0 {
		tool, err = filepath.Abs(found[len(found)-1])
	}
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no promtool: make promtool, or install Debian's package prometheus")
	}
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(rulesOfAlerts)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{append([]string{"check", "rules"}, files...), {"test", "rules", "testdata/alerts.yml"}} {
		out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
