package servicefile

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the tables of docs/reference/service-file.md anew")

// The page has two tables between these lines, one of the keys and one of those
// that are not ours.
const (
	page    = "../../docs/reference/service-file.md"
	keyLine = "<!-- Keys: go test ./internal/servicefile -run TestPage -update writes them. -->\n"
	ofRay   = "<!-- Of Ray and Anyscale, likewise. -->\n"
	endLine = "<!-- End. -->\n"
)

// TestPage holds the tables of the page equal to those of the code.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	want := between(t, between(t, got, keyLine, keyTable()), ofRay, foreignTable())
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not the table of the code; run: go test ./internal/servicefile -run TestPage -update (-want +got):\n%s", page, diff)
	}
}

// between puts a table between a line and the next end.
func between(t *testing.T, text, begin, table string) string {
	t.Helper()
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, endLine)
	if !found || !ended {
		t.Fatalf("%s lacks the line %q, or %q after it", page, begin, endLine)
	}
	return before + begin + "\n" + table + "\n" + endLine + after
}

func keyTable() string {
	var out bytes.Buffer
	fmt.Fprint(&out, "| key | value | meaning | default | variable |\n| --- | --- | --- | --- | --- |\n")
	for _, k := range Keys() {
		byDefault := code(k.Default)
		if k.atMost != "" {
			byDefault += ", at most " + k.atMost
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", k.Path, k.Form(), k.Meaning, byDefault, code(k.Variable))
	}
	return out.String()
}

func foreignTable() string {
	reasons := map[string][]string{} // keys by what happens
	for path, k := range foreign {
		what := "passed over, with a warning: " + k.why
		if k.fatal {
			what = "a fault: " + k.why
		}
		reasons[what] = append(reasons[what], path)
	}
	var rows []string
	for what, paths := range reasons {
		slices.Sort(paths)
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", strings.Join(paths, "`, `"), what))
	}
	slices.Sort(rows)
	return "| key | what happens |\n| --- | --- |\n" + strings.Join(rows, "")
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// TestDefaults holds the defaults of the table against the page of the
// variables.
func TestDefaults(t *testing.T) {
	settings, err := os.ReadFile("../../docs/reference/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.Variable == "" {
			continue
		}
		row := ""
		for line := range strings.Lines(string(settings)) {
			if strings.HasPrefix(line, "| `"+k.Variable+"`") {
				row = line
			}
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(row), "|"), " | ")
		if last := cells[len(cells)-1]; row == "" || k.Default != "" && !strings.Contains(last, "`"+k.Default+"`") {
			t.Errorf("%s: default %q, and docs/reference/settings.md has for %s: %s", k.Path, k.Default, k.Variable, row)
		}
	}
}

// Every path of the two tables is there once, and none is in both.
func TestTables(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range keys {
		if seen[k.Path] || k.Meaning == "" || strings.HasSuffix(k.Meaning, ".") {
			t.Errorf("key %q: there twice, or meaning %q", k.Path, k.Meaning)
		}
		if _, other := foreign[k.Path]; other {
			t.Errorf("key %q is also one that is not ours", k.Path)
		}
		seen[k.Path] = true
	}
}
