package servingtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Gather returns the metrics of a collector whose names contain part, each with its
// value: "NAME 3", or "NAME COUNT SUM" for a histogram. A label model_id follows the name.
func Gather(tb testing.TB, collector prometheus.Collector, part string) []string {
	tb.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector); err != nil {
		tb.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	list := []string{}
	for _, f := range families {
		if !strings.Contains(f.GetName(), part) {
			continue
		}
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() == "model_id" {
					name += " " + l.GetValue()
				}
			}
			value := fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			if h := m.GetHistogram(); h != nil {
				value = fmt.Sprint(h.GetSampleCount(), " ", h.GetSampleSum())
			}
			list = append(list, name+" "+value)
		}
	}
	return list
}
