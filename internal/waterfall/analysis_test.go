package waterfall

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/test/golden"
)

// analysed lays out the spans of a trace and analyses it.
func analysed(spans ...*Span) Trace {
	t := LayOut(trace.TraceID{0xab, 15: 1}, spans, nil, Look{Width: 80})
	t.Analyse()
	return t
}

// parts writes intervals by the name of their node, in milliseconds.
func parts(of map[*node][]interval) map[string]string {
	texts := map[string]string{}
	for n, list := range of {
		slices.SortFunc(list, func(a, b interval) int { return int(a.from - b.from) })
		var all []string
		for _, i := range list {
			all = append(all, fmt.Sprintf("%g-%g", float64(i.from-ms(0))/1e6, float64(i.to-ms(0))/1e6))
		}
		texts[n.name] = strings.Join(all, " ")
	}
	return texts
}

func TestAnalyse(t *testing.T) {
	untimed := aSpan(9, 1, "untimed", 0, 0)
	untimed.Start, untimed.End = 0, 0
	for name, c := range map[string]struct {
		spans      []*Span
		path, gaps map[string]string
	}{
		"one span": {[]*Span{aSpan(1, 0, "root", 0, 100)}, map[string]string{"root": "0-100"}, map[string]string{}},
		"one after the other": {
			[]*Span{aSpan(1, 0, "root", 0, 100), aSpan(2, 1, "a", 10, 40), aSpan(3, 1, "b", 42, 90), untimed},
			map[string]string{"root": "0-10 40-42 90-100", "a": "10-40", "b": "42-90"},
			map[string]string{"root": "0-10 90-100"},
		},
		"in parallel, the later end counts": {
			[]*Span{aSpan(1, 0, "root", 0, 100), aSpan(2, 1, "short", 0, 60), aSpan(3, 1, "long", 5, 100), aSpan(4, 3, "inner", 20, 100)},
			map[string]string{"short": "0-5", "long": "5-20", "inner": "20-100"},
			map[string]string{"long": "5-20"},
		},
		"a child that outlives its parent": {
			[]*Span{aSpan(1, 0, "proxy", 0, 100), aSpan(2, 1, "router", 0, 10), aSpan(3, 2, "replica", 20, 95)},
			map[string]string{"proxy": "10-20 95-100", "router": "0-10", "replica": "20-95"},
			map[string]string{"proxy": "95-100"},
		},
		"two roots, and nothing between": {
			[]*Span{aSpan(1, 0, "first", 0, 40), aSpan(2, 0, "second", 60, 100)},
			map[string]string{"first": "0-40", "second": "60-100"}, map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := analysed(c.spans...)
			if diff := cmp.Diff(c.path, parts(got.analysis.path)); diff != "" {
				t.Errorf("critical path (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.gaps, parts(got.analysis.gaps)); diff != "" {
				t.Errorf("gaps (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPathIsWhole: for any trace, the parts of the path overlap nowhere and stay within
// their span.
func TestPathIsWhole(t *testing.T) {
	for name, spans := range map[string][]*Span{"request": aRequest(), "odd": oddSpans(), "texts": oddTexts(), "deep": deep(40)} {
		got := analysed(spans...)
		var all []interval
		for n, list := range got.analysis.path {
			for _, i := range list {
				if i.from < n.span.Start || i.to > n.span.End || i.length() <= 0 {
					t.Errorf("%s: %v is not a part of %q", name, i, n.name)
				}
			}
			all = append(all, list...)
		}
		slices.SortFunc(all, func(a, b interval) int { return int(a.from - b.from) })
		for i := range len(all) - 1 {
			if all[i].to > all[i+1].from {
				t.Errorf("%s: %v and %v overlap", name, all[i], all[i+1])
			}
		}
		if len(all) == 0 {
			t.Errorf("%s: no path among %d spans", name, len(slices.Collect(maps.Keys(got.analysis.gaps))))
		}
	}
}

func TestAnalysedDrawings(t *testing.T) {
	request := aRequest()
	for name, l := range map[string]Look{
		"analysed-100": {Width: 100}, "analysed-ascii-80": {Width: 80, ASCII: true}, "analysed-30": {Width: 30},
	} {
		d := analysed(request...)
		golden.Compare(t, name+".golden", string(Draw(d, l)))
		check(t, string(Draw(d, l)), l)
	}
	for _, spans := range [][]*Span{oddSpans(), oddTexts(), deep(40)} {
		for width := 1; width <= 200; width += 7 {
			l := Look{Width: width}
			check(t, string(Draw(analysed(spans...), l)), l)
		}
	}
}
