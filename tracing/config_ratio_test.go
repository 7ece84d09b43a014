package tracing

import (
	"testing"
)

func TestRootRatio(t *testing.T) {
	for sampler, want := range map[Sampler]float64{
		AlwaysOn: 1, ParentBasedAlwaysOn: 1, AlwaysOff: 0, ParentBasedAlwaysOff: 0,
		TraceIDRatio: 0.25, ParentBasedTraceIDRatio: 0.25,
	} {
		if got := (Config{Sampler: sampler, Ratio: 0.25}).RootRatio(); got != want {
			t.Errorf("%s: root ratio %v, want %v", sampler, got, want)
		}
	}
}
