package seeds

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/servetrace/servetrace/internal/progress"
	"github.com/servetrace/servetrace/pluginsdk"
)

var (
	bin    = flag.String("bin", "", "folder with the built programs; without it the test is skipped")
	ofRay  = flag.String("ray", "", "the Python of an environment with Ray Serve; without it only our half runs")
	python = flag.String("python", "", "the Python of examples/ray-exporter; without it no exporter function runs")
	table  = flag.Bool("table", false, "print the table with verdicts")
)

// verdict is the answer to a row.
type verdict string

const (
	works     verdict = "works"
	different verdict = "different on purpose"
	absent    verdict = "absent"
)

// row is something that a seed names.
type row struct {
	number  int
	says    string // the seed's words, or a summary
	how     string // the counterpart here
	verdict verdict
	why     string // of different and absent, and a note otherwise
	// check runs the row. Nil if there is nothing to run.
	check func(t *testing.T)
	// function runs an exporter function of the guide, if there is an environment.
	// environ is what the runner needs.
	function func(t *testing.T, environ []string)
	// ray runs the row on real Ray Serve, if there is an environment. onRay is the
	// result if it passes, or if there is nothing to run; empty means that Ray Serve does
	// the same.
	ray   func(t *testing.T, ray *raySpans)
	onRay string
}

// section is a seed with its rows.
type section struct {
	seed string
	rows []row
}

var sections = []section{
	{"S0, Ray's pull request 61230", rowsOfPullRequest},
	{"S1, Anyscale's tracing guide", rowsOfGuide},
	{"S2, the preview of Ray's page on traces", rowsOfPreview},
	{"S3 and S4, tracing of Ray Core", rowsOfCore},
	{"Operation", rowsOfOperation},
}

// TestMain lets this test binary also be a plugin, under its name.
func TestMain(m *testing.M) {
	if spec, ok := plugins[filepath.Base(os.Args[0])]; ok {
		pluginsdk.Main(spec)
	}
	os.Exit(m.Run())
}

// TestSeeds checks each row and prints the table.
func TestSeeds(t *testing.T) {
	flag.Parse()
	if *bin == "" {
		t.Skip("needs the built programs: make seeds")
	}
	report := progress.Start(os.Stderr, "make seeds", 0)
	defer report.End()
	var ray *raySpans
	if *ofRay != "" {
		report.At("record Ray Serve", 0, 0)
		ray = recordRay(t, "DEFAULT")
	}
	var mu sync.Mutex
	results := map[string]string{}
	total := 0 // written before the first parallel test runs
	note := func(t *testing.T, key string) {
		t.Helper()
		total++
		t.Cleanup(func() {
			mu.Lock()
			defer mu.Unlock()
			if results[key] = "pass"; t.Failed() {
				results[key] = "FAIL"
			}
			report.At("", len(results), total)
		})
	}
	t.Run("rows", func(t *testing.T) {
		for _, s := range sections {
			for _, r := range s.rows {
				if r.check != nil {
					t.Run(fmt.Sprintf("%02d", r.number), func(t *testing.T) {
						note(t, r.key(""))
						t.Parallel()
						r.check(t)
					})
				}
				if r.function != nil && *python != "" {
					t.Run(fmt.Sprintf("%02d in Python", r.number), func(t *testing.T) {
						note(t, r.key("python"))
						t.Parallel()
						r.function(t, runnerEnviron(t))
					})
				}
				if r.ray != nil && ray != nil {
					t.Run(fmt.Sprintf("%02d on Ray", r.number), func(t *testing.T) {
						note(t, r.key("ray"))
						t.Parallel()
						r.ray(t, ray)
					})
				}
			}
		}
	})
	if *table {
		fmt.Print(drawTable(results))
	}
}

func (r row) key(on string) string { return fmt.Sprint(r.number, on) }

// drawTable returns the table with the verdicts that hold.
func drawTable(results map[string]string) string {
	var text strings.Builder
	counts := map[string]int{}
	for _, s := range sections {
		fmt.Fprintf(&text, "\n## %s\n\n| # | the seed | here | verdict | run | on Ray Serve |\n| --- | --- | --- | --- | --- | --- |\n", s.seed)
		for _, r := range s.rows {
			says := string(r.verdict)
			result, inPython, onRay := results[r.key("")], results[r.key("python")], results[r.key("ray")]
			if result == "FAIL" || inPython == "FAIL" || onRay == "FAIL" {
				says = "FAIL"
			}
			if r.function != nil {
				result += ", in Python: " + cmp.Or(inPython, "not run")
			}
			counts[says]++
			if r.why != "" {
				says += ": " + r.why
			}
			switch {
			case r.ray == nil:
				onRay = r.onRay
			case onRay == "pass":
				onRay = cmp.Or(r.onRay, "same")
			}
			fmt.Fprintf(&text, "| %d | %s | %s | %s | %s | %s |\n", r.number, r.says, r.how, says, result, onRay)
		}
	}
	text.WriteString("\n")
	for _, v := range []string{string(works), string(different), string(absent), "FAIL"} {
		fmt.Fprintf(&text, "%s: %d\n", v, counts[v])
	}
	return text.String()
}

// TestTable checks that every row is there once, in order, that it has a check or a
// reason, and that each verdict other than works has a reason.
func TestTable(t *testing.T) {
	const last = 66
	var numbers []int
	for _, s := range sections {
		for _, r := range s.rows {
			numbers = append(numbers, r.number)
			if r.says == "" || r.verdict == "" || r.check == nil && r.why == "" || r.verdict != works && r.why == "" || r.verdict == works && r.check == nil {
				t.Errorf("row %d is not complete", r.number)
			}
		}
	}
	if len(numbers) != last || !slices.IsSorted(numbers) || len(slices.Compact(numbers)) != last {
		t.Errorf("the rows are %d, want 1 to %d", numbers, last)
	}
}
