package multiplexing_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/multiplexing"
	"github.com/servetrace/servetrace/test/servingtest"
)

// TestMetricsOfModels loads three models, one of them twice, with room for two, and tries
// to load a broken model. Loads and unloads take a second each.
func TestMetricsOfModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(), newShop()
		set := metrics.New()
		r.replica.Metrics = set.Replica("a", "D", "r1")
		s.fail = map[string]error{"bad": errors.New("no luck")}
		m := s.models(multiplexing.WithMaxModels(2))
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
		if diff := cmp.Diff(want, servingtest.Gather(t, set, "multiplexed")); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		r.replica.Stop(t.Context())
	})
}
