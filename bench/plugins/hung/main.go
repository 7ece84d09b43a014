// Command hung is a plugin that never answers. A call ends when the host cancels it.
package main

import (
	"context"

	"github.com/servetrace/servetrace/pluginsdk"
)

func main() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "hung",
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(ctx context.Context, _ *pluginsdk.Batch) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}), nil
		},
	})
}
