package plugintest

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTable checks the ids, titles and order of the rules.
func TestTable(t *testing.T) {
	form := regexp.MustCompile(`^[a-z]+\.[a-z-]+$`)
	seen := map[string]bool{}
	for _, r := range rules() {
		switch {
		case !form.MatchString(r.id):
			t.Errorf("rule %q: want GROUP.NAME", r.id)
		case seen[r.id]:
			t.Errorf("rule %q is there twice", r.id)
		case r.title == "" || strings.ContainsAny(r.title, "\n\t") || strings.HasSuffix(r.title, "."):
			t.Errorf("rule %q: title %q: want one line without a full stop", r.id, r.title)
		case r.check == nil:
			t.Errorf("rule %q has no check", r.id)
		}
		for _, id := range r.after {
			if !seen[id] {
				t.Errorf("rule %q builds upon %q, which is not before it", r.id, id)
			}
		}
		seen[r.id] = true
	}
}

// TestDocumentHasTheTable compares docs/reference/conformance.md with the table, both
// ways.
func TestDocumentHasTheTable(t *testing.T) {
	data, err := os.ReadFile("../../docs/reference/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, r := range rules() {
		want[r.id] = markdownRow(r)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "- `") {
			continue
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "- `"), "`")
		if !strings.Contains(id, ".") {
			continue // the list of options
		}
		if want[id] != line {
			t.Errorf("docs/reference/conformance.md has\n%s\nthe table of rules\n%s", line, want[id])
		}
		delete(want, id)
	}
	for _, row := range want {
		t.Errorf("docs/reference/conformance.md lacks\n%s", row)
	}
}

func markdownRow(r rule) string {
	var only []string
	if r.needs&process != 0 {
		only = append(only, "binaries")
	}
	if r.needs&lifecycle != 0 {
		only = append(only, "Lifecycle")
	}
	if r.needs&exporter != 0 {
		only = append(only, "exporters")
	}
	if r.needs&processor != 0 {
		only = append(only, "processors")
	}
	row := fmt.Sprintf("- `%s`: %s", r.id, r.title)
	if only != nil {
		row += " (" + strings.Join(only, ", ") + ")"
	}
	return row
}
