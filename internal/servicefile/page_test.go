package servicefile

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the tables of docs/reference/settings.md and service-file.md anew")

// settingsPage has the tables of keys and variables between keyLine and endLine,
// filePage the table of foreign keys between foreignLine and endLine.
const (
	settingsPage = "../../docs/reference/settings.md"
	filePage     = "../../docs/reference/service-file.md"
	keyLine      = "<!-- Keys: go test ./internal/servicefile -run TestPage -update writes these tables. -->\n"
	foreignLine  = "<!-- Of Ray and Anyscale: go test ./internal/servicefile -run TestPage -update writes this table. -->\n"
	endLine      = "<!-- End. -->\n"
)

// TestPages compares the tables of the two pages with the tables of the code.
func TestPages(t *testing.T) {
	for _, c := range []struct{ page, begin, table string }{
		{settingsPage, keyLine, keyTables(t)},
		{filePage, foreignLine, foreignTable()},
	} {
		got, err := os.ReadFile(c.page)
		if err != nil {
			t.Fatal(err)
		}
		want := between(t, c.page, string(got), c.begin, c.table)
		if *update {
			if err := os.WriteFile(c.page, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is not the table of the code; run: go test ./internal/servicefile -run TestPage -update (-want +got):\n%s", c.page, diff)
		}
	}
}

// between replaces the text from begin to the next endLine by a table.
func between(t *testing.T, page, text, begin, table string) string {
	t.Helper()
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, endLine)
	if !found || !ended {
		t.Fatalf("%s lacks the line %q, or %q after it", page, begin, endLine)
	}
	return before + begin + "\n" + table + "\n" + endLine + after
}

// sections are the headings of the tables of keys, with the beginnings of their paths.
// The first that fits counts.
var sections = []struct{ heading, prefix string }{
	{"Service", "name"},
	{"One plugin", pathPlugins + "."},
	{"Tracing", "tracing_config."},
	{"HTTP", "http_options."},
	{"gRPC", "grpc_options."},
	{"Calls between processes", "call_options."},
	{"Admin listener", "admin."},
	{"Relay", "relay."},
	{"Log", "logging_config."},
	{"Applications", wordApps},
}

// formNames are the names of forms in the tables.
var formNames = map[string]string{
	text.says: "text", boolean.says: "boolean", number.says: "number", integer.says: "integer",
	duration.says: "duration", size.says: "size", seconds.says: "seconds above 0", secondsOrNone.says: "seconds",
	level.says: "word", encoding.says: "word", document.says: "any YAML", importPath.says: "MODULE:FUNCTION", list(",").says: "text or list", targets.says: "text or list",
	count(1).says: "integer, 1 or more", count(-1).says: "integer, -1 or more",
}

// bounds are the parts of forms that a default does not show.
var bounds = map[string]string{seconds.says: ", above 0", count(1).says: ", 1 or more"}

func keyTables(t *testing.T) string {
	t.Helper()
	rows := map[string]string{}
	for _, k := range keys {
		form, ok := formNames[k.Form()]
		if !ok {
			t.Errorf("formNames lacks %q", k.Form())
		}
		if k.Default != "" {
			form = code(k.Default) + bounds[k.Form()]
		}
		if k.atMost != "" {
			form += ", at most " + k.atMost
		}
		i := slices.IndexFunc(sections, func(s struct{ heading, prefix string }) bool { return strings.HasPrefix(k.Path, s.prefix) })
		if i < 0 {
			t.Fatalf("no section has the key %s", k.Path)
		}
		rows[sections[i].heading] += fmt.Sprintf("| %s | %s | %s |\n", settingCell(k), k.Meaning, form)
	}
	var tables []string
	for _, s := range sections {
		tables = append(tables, "## "+s.heading+"\n\n| variable, key | meaning | default, or form |\n| --- | --- | --- |\n"+rows[s.heading])
	}
	return strings.Join(tables, "\n")
}

// foreignTable has an item for each reason, and for each first part of the paths.
func foreignTable() string {
	keysOf := map[[2]string][]string{}
	for _, k := range foreign {
		effect := "warning: " + k.why
		if k.fatal {
			effect = "error: " + k.why
		}
		for _, path := range k.paths {
			group, _, nested := strings.Cut(path, ".")
			if !nested {
				group = "top level"
			}
			keysOf[[2]string{group, effect}] = append(keysOf[[2]string{group, effect}], path)
		}
	}
	var items []string
	for of, paths := range keysOf {
		slices.Sort(paths)
		items = append(items, fmt.Sprintf("- `%s`: %s\n", strings.Join(paths, "`, `"), of[1]))
	}
	slices.Sort(items)
	return strings.Join(items, "")
}

// settingCell returns the variable of a key, if it has one, and its path.
func settingCell(k Key) string {
	if k.Variable == "" {
		return code(k.Path)
	}
	return code(k.Variable) + "<br>" + code(k.Path)
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// Every path of the two tables is there once, and none is in both.
func TestTables(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range keys {
		if seen[k.Path] || k.Meaning == "" || strings.HasSuffix(k.Meaning, ".") {
			t.Errorf("key %q: there twice, or meaning %q", k.Path, k.Meaning)
		}
		if foreignKey(k.Path) != nil {
			t.Errorf("key %q is also one that is not ours", k.Path)
		}
		seen[k.Path] = true
	}
}
