package mixed

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// scrape is the server's metrics at one moment, by name.
type scrape map[string][]*dto.Metric

func gather(t testing.TB, registry *prometheus.Registry) scrape {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	s := scrape{}
	for _, f := range families {
		s[f.GetName()] = f.GetMetric()
	}
	return s
}

// value returns the value of a counter or gauge, or the count of a histogram.
func value(m *dto.Metric) int {
	switch {
	case m.Counter != nil:
		return int(m.Counter.GetValue())
	case m.Gauge != nil:
		return int(m.Gauge.GetValue())
	}
	return int(m.Histogram.GetSampleCount())
}

// by adds up the series of a name by the values of labels. A %s in the name
// stands for http and for grpc.
func (s scrape) by(name string, labels ...string) map[key]int {
	sums := map[key]int{}
	series := s[strings.Replace(name, "%s", "http", 1)]
	if strings.Contains(name, "%s") {
		series = append(slices.Clone(series), s[strings.Replace(name, "%s", "grpc", 1)]...)
	}
	for _, m := range series {
		var values [4]string
		for i, label := range labels {
			for _, pair := range m.GetLabel() {
				if pair.GetName() == label {
					values[i] = pair.GetValue()
				}
			}
		}
		sums[key{values[0], values[1], values[2], values[3]}] += value(m)
	}
	return sums
}

// total adds up all series of a name.
func (s scrape) total(name string) int {
	sum := 0
	for _, n := range s.by(name) {
		sum += n
	}
	return sum
}

// of adds up the series of one deployment.
func (s scrape) of(name, deployment string) int {
	return s.by(name, "deployment")[key{app: deployment}]
}

// checkEqual compares two counts by key.
func checkEqual(t *testing.T, what string, got, want map[key]int) {
	t.Helper()
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	for _, k := range slices.Collect(maps.Keys(keys)) {
		if got[k] != want[k] {
			t.Errorf("%s of %+v: %d, want %d", what, k, got[k], want[k])
		}
	}
}
