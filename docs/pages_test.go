package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// index is the page that links every other page.
const index = "README.md"

// formerNames lists the pages that docs/ had before it had folders. Links to them
// are out there, so the index must name the successors.
var formerNames = []string{
	"acceptance.md", "batching.md", "cli.md", "conformance.md", "datadog.md", "deployments.md", "grpc.md", "guide.md", "http.md",
	"multiplexing.md", "operations.md", "otlp.md", "performance.md", "plugins.md", "processors.md", "reliability.md",
	"service-file.md", "serving.md", "settings.md", "spans.md",
}

// mostWords is the largest number of words in a cell of a table.
const mostWords = 25

// pages returns the paths of all pages below docs/, except the index, in order.
func pages(t *testing.T) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" && path != index {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// prose returns a page without its fenced blocks.
func prose(page string) string { return fence.ReplaceAllString(page, "") }

// TestPagesSayWhereTheCloneIs: a page whose commands need the clone explains its variable.
func TestPagesSayWhereTheCloneIs(t *testing.T) {
	for _, page := range pages(t) {
		text := readPage(t, page)
		if strings.Contains(text, "$SERVETRACE_CLONE/") && !strings.Contains(prose(text), "`$SERVETRACE_CLONE`") {
			t.Errorf("%s uses $SERVETRACE_CLONE: write that it is [your clone](../README.md)", page)
		}
	}
}

func TestIndexLinksEveryPage(t *testing.T) {
	text := readPage(t, index)
	for _, page := range pages(t) {
		if !strings.Contains(text, "]("+page+")") {
			t.Errorf("%s does not link %s", index, page)
		}
	}
	_, former, _ := strings.Cut(text, "\n## Former names of pages\n")
	for _, name := range formerNames {
		if !strings.Contains(former, "`"+name+"`") {
			t.Errorf("%s does not name the successor of %s", index, name)
		}
	}
}

// TestEveryPageHasATest fails for a page that no test reads: it has no block that
// runs and no table of messages, and no other test names its path.
func TestEveryPageHasATest(t *testing.T) {
	tests := testSources(t)
	for _, page := range pages(t) {
		text := readPage(t, page)
		if len(blocks(t, page, text)) == 0 && len(messages(text)) == 0 && !strings.Contains(tests, page) {
			t.Errorf("no test reads %s", page)
		}
	}
}

// messageTable finds tables whose first column has messages of the log.
var messageTable = regexp.MustCompile(`(?m)^\| (?:log line|message) \|.*\n\|[- |]*\n((?:\|.*\n)*)`)

// messages returns the messages of the log that a page quotes in such tables. Each
// ends at an ellipsis, and at a value in angle brackets.
func messages(page string) []string {
	var list []string
	for _, table := range messageTable.FindAllStringSubmatch(page, -1) {
		for row := range strings.Lines(table[1]) {
			cell := strings.Split(row, " |")[0]
			for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
				for part := range strings.SplitSeq(quoted[1], "…") {
					if part = strings.TrimSpace(part); part != "" {
						list = append(list, part)
					}
				}
			}
		}
	}
	return list
}

// TestMessagesAreThoseOfTheCode looks up the messages that pages quote.
func TestMessagesAreThoseOfTheCode(t *testing.T) {
	code := sources(t, func(path string) bool { return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") })
	for _, page := range pages(t) {
		for _, message := range messages(readPage(t, page)) {
			if !strings.Contains(code, message) {
				t.Errorf("%s quotes %q, which no code has", page, message)
			}
		}
	}
}

// testSources returns the text of every test of the module outside this package,
// and of the package that names the page of the hazards for its tests.
func testSources(t *testing.T) string {
	return readPage(t, "spans_test.go") + sources(t, func(path string) bool {
		return strings.HasSuffix(path, "_test.go") || path == "../test/hazard/hazard.go" || strings.HasPrefix(path, "../python/tests/")
	})
}

// sources returns the text of the wanted files of the module outside this package.
func sources(t *testing.T, want func(path string) bool) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "../docs" || path != ".." && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if want(path) {
			all.WriteString(readPage(t, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

var link = regexp.MustCompile(`\]\(([^)\s#]*)(?:#([^)\s]+))?\)`)

// TestLinksLeadSomewhere checks the relative links of the pages, with their anchors.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range append(pages(t), index, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md") {
		for _, m := range link.FindAllStringSubmatch(prose(readPage(t, page)), -1) {
			target, anchor := m[1], m[2]
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links %s: %v", page, target, err)
			} else if anchor != "" && !slices.Contains(anchors(readPage(t, file)), anchor) {
				t.Errorf("%s links %s, which has no heading #%s", page, file, anchor)
			}
		}
	}
}

var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

// anchors returns the anchors that GitHub gives the headings of a page.
func anchors(page string) []string {
	var list []string
	for _, m := range heading.FindAllStringSubmatch(prose(page), -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(kept, " ", "-"))
	}
	return list
}

func TestTablesHaveShortCells(t *testing.T) {
	for _, page := range append(pages(t), index, "../README.md", "../CONTRIBUTING.md") {
		for _, cell := range longCellsOf(readPage(t, page)) {
			t.Errorf("%s has a cell of over %d words: write a paragraph under a heading\n%s", page, mostWords, cell)
		}
	}
}

// longCellsOf returns the cells of the tables of a page that are too long.
func longCellsOf(page string) []string {
	var list []string
	for line := range strings.Lines(prose(page)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for cell := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, ""), "|") {
			if len(strings.Fields(cell)) > mostWords {
				list = append(list, strings.TrimSpace(cell))
			}
		}
	}
	return list
}
