package plugintest

import (
	"context"
)

// exportRules are about Export.
func exportRules() []rule {
	return []rule{
		{
			id: "export.delivered", title: "A batch of spans is answered OK",
			after: configured, check: func(ctx context.Context, t *trial) error {
				s, err := t.ready(ctx, how{})
				if err != nil {
					return err
				}
				return s.mustExport(ctx, t.numbers.batch(3))
			},
		},
	}
}
