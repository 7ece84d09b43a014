package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// Markdown writes the report as text: machine, claims, then a table for each
// shape.
func Markdown(w io.Writer, r *suite.Results) {
	m := r.Machine
	_, _ = fmt.Fprintf(w, "# Benchmark of %s\n\n", orUnknown(r.Commit))
	_, _ = fmt.Fprintf(w, "%s, %d processors (%s), %d MiB, %s, %s. Took %s; %d repeats were thrown away because others used more than %.2f cores.\n\n",
		r.Began.Format("2006-01-02 15:04 MST"), m.CPUs, orUnknown(m.Model), m.Memory>>20, orUnknown(m.Kernel), orUnknown(m.Go),
		r.Took.Round(time.Second), r.Discarded, r.ForeignLimit)
	_, _ = fmt.Fprintf(w, "Figures are medians of the repeats, those of claims the mean of the middle half of them, in brackets the lowest and the highest. A ratio is computed in each repeat by itself.\n\n")
	writeClaims(w, r.Claims)
	for _, s := range r.Shapes {
		writeShape(w, s)
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func writeClaims(w io.Writer, claims []suite.ClaimResult) {
	if len(claims) == 0 {
		return
	}
	_, _ = fmt.Fprintf(w, "## Claims\n\n| claim | shape | target | stretch | measured | |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, c := range claims {
		limit := func(v float64) string {
			if v == 0 && c.Target != 0 { // no stretch
				return "–"
			}
			return "≤ " + number(v) + c.Unit
		}
		_, _ = fmt.Fprintf(w, "| %s | %s: %s | %s | %s | %s%s (%s–%s) | %s |\n", c.Name, c.Suite, c.Shape, limit(c.Target), limit(c.Stretch),
			number(c.Value.Middle), c.Unit, number(c.Value.Min), number(c.Value.Max), c.Verdict())
	}
	_, _ = fmt.Fprintln(w)
}

func writeShape(w io.Writer, s suite.ShapeResults) {
	_, _ = fmt.Fprintf(w, "## %s: %s\n\n", s.Suite, s.Shape)
	metrics := metricsOf(s)
	_, _ = fmt.Fprintf(w, "| row |")
	for _, m := range metrics {
		_, _ = fmt.Fprintf(w, " %s |", title(m))
	}
	_, _ = fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --- |", len(metrics)))
	for _, row := range s.Rows {
		_, _ = fmt.Fprintf(w, "| %s |", row.Row)
		for _, m := range metrics {
			cell := "–"
			if summary, ok := row.Summary(m); ok {
				cell = withSpread(summary)
			}
			_, _ = fmt.Fprintf(w, " %s |", cell)
		}
		_, _ = fmt.Fprintln(w)
	}
	for _, row := range s.Rows {
		for _, e := range row.Errors {
			_, _ = fmt.Fprintf(w, "\n**%s failed**, %s\n", row.Row, strings.ReplaceAll(e, "\n", " "))
		}
	}
	_, _ = fmt.Fprintln(w)
}

// metricsOf are those that any row has, in the order of their names, CPU first;
// the gate's own reading is left to the JSON.
func metricsOf(s suite.ShapeResults) []string {
	seen := map[string]bool{suite.Foreign: true}
	var list []string
	for _, row := range s.Rows {
		for _, sample := range row.Repeats {
			for m := range sample {
				if !seen[m] {
					seen[m] = true
					list = append(list, m)
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b string) int {
		if d := suite.Order(a) - suite.Order(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return list
}

// title is a metric as a heading: "cpu ns/span host".
func title(metric string) string {
	base, part, _ := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
	name := suite.Title(base)
	if unit := suite.Unit(metric); unit != "" {
		part = strings.TrimSpace(part + " " + unit)
	}
	return strings.TrimSpace(name + " " + part)
}

func withSpread(s measure.Summary) string {
	if s.N < 2 || s.Min == s.Max {
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number shows three digits, and thousands as such.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a < 100:
		return strconv.FormatFloat(v, 'g', 3, 64)
	default:
		return thousands(int64(math.Round(v)))
	}
}

func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
