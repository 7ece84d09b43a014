// Command discard is a plugin whose exporter does nothing. It is the counterpart of the
// batch processor with a no-op exporter.
package main

import (
	"context"

	"github.com/servetrace/servetrace/pluginsdk"
)

func main() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "discard",
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error { return nil }), nil
		},
	})
}
