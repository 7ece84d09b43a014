package multiplexing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// gather gives the metrics of models: a counter's or gauge's value with the
// model, a histogram's count and sum.
func gather(t *testing.T, set *metrics.Set) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(set); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, f := range families {
		if !strings.Contains(f.GetName(), "multiplexed") {
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

// TestMetricsOfModels asks for three models, one of them twice, with room for
// two, and for one that cannot be loaded. Loads and unloads take a second each.
func TestMetricsOfModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(), newShop()
		set := metrics.New()
		r.replica.Metrics = set.Replica("a", "D", "r1")
		s.fail = map[string]error{"bad": errors.New("no luck")}
		m := s.models(WithMaxModels(2))
		for _, id := range []string{"a", "a", "b", "c", "bad"} {
			ctx, end := r.call(t.Context(), id)
			<-s.ask(ctx, m)
			end()
			time.Sleep(time.Minute)
		}
		want := []string{
			"serve_multiplexed_get_model_requests_counter_total 5",
			"serve_multiplexed_model_load_latency_ms 3 3000",
			"serve_multiplexed_model_unload_latency_ms 2 2000",
			"serve_multiplexed_models_load_counter_total 4",
			"serve_multiplexed_models_unload_counter_total 2",
			"serve_num_multiplexed_models 1",
			"serve_registered_multiplexed_model_id c 1",
		}
		if diff := cmp.Diff(want, gather(t, set)); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		r.replica.Stop(t.Context())
	})
}
