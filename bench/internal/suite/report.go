package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// The files of a report.
const (
	JSONFile     = "results.json"
	MarkdownFile = "report.md"
)

// Write writes both files of the report to the folder, which it creates.
func (r *Results) Write(dir string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err := errors.Join(err, os.MkdirAll(dir, 0o755)); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, JSONFile), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, MarkdownFile), []byte(r.Markdown()), 0o644))
}

// Markdown returns the report as text: the machine, the claims, and a table for each
// shape.
func (r *Results) Markdown() string {
	w := new(strings.Builder)
	m := r.Machine
	fmt.Fprintf(w, "# Benchmark of %s\n\n", orUnknown(r.Commit))
	fmt.Fprintf(w, "%s, %d processors (%s), %d MiB, %s, %s. Took %s; %d repeats were thrown away because others used more than %.2f cores.\n\n",
		r.Began.Format("2006-01-02 15:04 MST"), m.CPUs, orUnknown(m.Model), m.Memory>>20, orUnknown(m.Kernel), orUnknown(m.Go),
		r.Took.Round(time.Second), r.Discarded, r.ForeignLimit)
	fmt.Fprint(w, "Figures are medians of the repeats, those of claims the mean of the middle half of them, in brackets the lowest and the highest. A ratio is computed in each repeat by itself.\n\n")
	writeClaims(w, r.Claims)
	for _, s := range r.Shapes {
		s.write(w)
	}
	return w.String()
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func writeClaims(w *strings.Builder, claims []ClaimResult) {
	if len(claims) == 0 {
		return
	}
	fmt.Fprint(w, "## Claims\n\n| claim | shape | target | stretch | measured | |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, c := range claims {
		limit := func(v float64) string {
			if v == 0 && c.Target != 0 { // no stretch
				return "–"
			}
			return "≤ " + number(v) + c.Unit
		}
		fmt.Fprintf(w, "| %s | %s: %s | %s | %s | %s%s (%s–%s) | %s |\n", c.Name, c.Suite, c.Shape, limit(c.Target), limit(c.Stretch),
			number(c.Value.Middle), c.Unit, number(c.Value.Min), number(c.Value.Max), c.Verdict())
	}
	fmt.Fprintln(w)
}

func (s ShapeResults) write(w *strings.Builder) {
	metrics := s.metrics()
	fmt.Fprintf(w, "## %s: %s\n\n| row |", s.Suite, s.Shape)
	for _, m := range metrics {
		fmt.Fprintf(w, " %s |", title(m))
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --- |", len(metrics)))
	for _, row := range s.Rows {
		fmt.Fprintf(w, "| %s |", row.Row)
		for _, m := range metrics {
			fmt.Fprintf(w, " %s |", withSpread(row.Summary(m)))
		}
		fmt.Fprintln(w)
	}
	for _, row := range s.Rows {
		for _, e := range row.Errors {
			fmt.Fprintf(w, "\n**%s failed**, %s\n", row.Row, strings.ReplaceAll(e, "\n", " "))
		}
	}
	fmt.Fprintln(w)
}

// metrics returns the metrics of all rows in the order of the vocabulary, without
// the gate's reading, which only the JSON has.
func (s ShapeResults) metrics() []string {
	var list []string
	for _, row := range s.Rows {
		for _, sample := range row.Repeats {
			for m := range sample {
				if m != Foreign && !slices.Contains(list, m) {
					list = append(list, m)
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b string) int {
		if d := order(a) - order(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return list
}

// title returns a metric as a heading, such as "CPU host ns/span".
func title(metric string) string {
	_, part, _ := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
	entry := vocabulary[order(metric)]
	return strings.Join(strings.Fields(entry.title+" "+part+" "+entry.unit), " ")
}

func withSpread(s measure.Summary) string {
	switch {
	case s.N == 0:
		return "–"
	case s.Min == s.Max:
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number formats three digits, or an integer with commas.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a < 100:
		return strconv.FormatFloat(v, 'g', 3, 64)
	default:
		return humanize.Comma(int64(math.Round(v)))
	}
}
