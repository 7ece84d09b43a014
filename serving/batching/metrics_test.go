package batching

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/test/servingtest"
)

// TestMetricsOfBatches runs a batch of two that waits for ten milliseconds, and
// one of four, full at once; one fails; and one request leaves the queue.
func TestMetricsOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := newRig(), newBook()
		set := metrics.New()
		r.replica.Metrics = set.Replica("a", "D", "r1")
		b := New("upper", func(ctx context.Context, ins []string) ([]string, error) {
			outs, _ := log.upper(ctx, ins)
			return outs[len(ins)/4:], nil // too few where there are four
		}, WithMaxBatchSize(4))
		var answers []<-chan answer
		for range 2 {
			answers = append(answers, ask(b.Do, r.call(t.Context(), ""), "x"))
		}
		time.Sleep(20 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 5 {
			of := t.Context()
			if i == 0 {
				of = ctx
			}
			answers = append(answers, ask(b.Do, r.call(of, ""), "x"))
			synctest.Wait()
		}
		queued := "serve_batch_queue_length 5"
		if got := strings.Join(servingtest.Gather(t, set, "batch"), "\n"); !strings.Contains(got, queued) {
			t.Errorf("no %q in:\n%s", queued, got)
		}
		cancel()
		for _, ch := range answers {
			<-ch
		}
		want := []string{
			"serve_actual_batch_size 2 6",
			"serve_batch_execution_time_ms 2 2000",
			"serve_batch_queue_length 0",
			"serve_batch_utilization_percent 2 150",
			"serve_batch_wait_time_ms 2 1000", // 10 and, while the first ran, 990
			"serve_batches_processed_total 2",
		}
		if diff := cmp.Diff(want, servingtest.Gather(t, set, "batch")); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}
