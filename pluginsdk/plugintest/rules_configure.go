package plugintest

import (
	"context"
	"slices"
	"sync"
)

// configureRules are about Configure, and the environment that a plugin starts
// with.
func configureRules() []rule {
	return []rule{
		{
			id: "configure.accepted", title: "Configure with the operator's variables and document is answered without a diagnostic of severity ERROR",
			needs: lifecycle, after: slices.Concat(described, []string{"describe.variables"}), check: func(ctx context.Context, t *trial) error {
				_, err := t.ready(ctx, how{})
				return err
			},
		},
	}
}

// atOnce calls f n times at once, and returns when the last call has.
func atOnce(n int, f func(i int)) {
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { f(i) })
	}
	calls.Wait()
}
